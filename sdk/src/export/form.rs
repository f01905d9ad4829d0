//! The forms in which profiles are sent. A destination names its form; a set is written once for all destinations of one form.
//!
//! In: a part of a set, small enough for a request. Out: the body of one request. Pure.

use std::io;

use profiler_proto::{ProfileSet, otlp};

use super::body::Body;
use super::protocol::Compression;

/// What a destination takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A request of OTLP, over gRPC and HTTP alike.
    Otlp(Compression),
}

impl Form {
    /// Writes `part` in this form.
    ///
    /// # Errors
    /// If it cannot be.
    pub(super) fn write(self, part: &ProfileSet) -> io::Result<Body> {
        let samples = part.profiles.iter().map(|profile| profile.samples.len()).sum();
        match self {
            Self::Otlp(compression) => Body::new(&otlp::encode_compact(part), samples, compression),
        }
    }
}
