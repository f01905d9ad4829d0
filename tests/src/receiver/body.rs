//! One request as it came: decoded, checked, and with the answer it got.
//!
//! In: the uncompressed bytes of an `ExportProfilesServiceRequest`. Out: its profiles, and what is wrong with it.

use profiler_proto::validate::{Finding, Rule, validate_bytes};
use profiler_proto::{Limits, ProfileSet, otlp};

use super::Answer;

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, `ProfilesService/Export`.
    Grpc,
    /// HTTP, `POST /v1development/profiles`.
    Http,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Body {
    /// How it came.
    pub protocol: Protocol,
    /// Its uncompressed length in bytes.
    pub length: usize,
    /// How it was answered.
    pub answer: Answer,
    /// What it says; nothing if it cannot be decoded.
    pub profiles: Vec<ProfileSet>,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
}

impl Body {
    pub(super) fn new(protocol: Protocol, bytes: &[u8], answer: Answer) -> Self {
        let mut findings = validate_bytes(bytes);
        let profiles = otlp::decode_bytes(bytes, &Limits::default()).unwrap_or_else(|error| {
            findings.push(Finding { path: error.to_string(), rule: Rule::Protobuf });
            Vec::new()
        });
        Self { protocol, length: bytes.len(), answer, profiles, findings }
    }
}
