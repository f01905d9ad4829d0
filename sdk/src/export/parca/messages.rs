//! The messages of Parca's `WriteRaw`, of which only what is sent here is written down.
//!
//! Field numbers and types: github.com/parca-dev/parca, proto/parca/profilestore/v1alpha1/profilestore.proto.

use prost::Message;

/// Profiles with the labels that they are found by. `normalized` is not set: addresses are those of the process.
#[derive(Clone, PartialEq, Message)]
pub(in crate::export) struct WriteRawRequest {
    #[prost(message, repeated, tag = "2")]
    pub(super) series: Vec<RawProfileSeries>,
}

/// Profiles that have all their labels in common.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawProfileSeries {
    #[prost(message, optional, tag = "1")]
    pub(super) labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<RawSample>,
}

/// Labels with distinct names.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
}

/// A name and what it stands for.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A pprof file, gzip or not.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw_profile: Vec<u8>,
}

/// The answer, which says nothing.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WriteRawResponse {}
