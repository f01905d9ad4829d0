//! Profiles on the wire as OTLP: `opentelemetry.proto.profiles.v1development`, Alpha as of proto 1.10.
//!
//! Out of [`encode`] come requests that the OpenTelemetry Collector, Pyroscope and Parca all take; [`crate::validate`]
//! holds the rules. Into [`decode`] goes what any conforming sender may write, string references included. What the model
//! has no place for is left out: profile ids, original payloads, single timestamps, attributes of a scope, schema URLs,
//! entity references and counts of dropped attributes.

mod context;
mod decode;
mod elements;
mod encode;
mod fields;
mod many;
mod order;
mod shape;
mod source;
mod write;

pub use context::ProcessContext;
pub use decode::{decode, decode_bytes};
pub use elements::wire_resource;
pub use encode::{encode, encode_to_vec};
pub use write::Request;

pub use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;

/// The generated messages that the sub-modules use, under one roof.
pub(crate) mod messages {
    pub(crate) use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
    pub(crate) use opentelemetry_proto::tonic::common::v1::{
        AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
    };
    pub(crate) use opentelemetry_proto::tonic::profiles::v1development::{
        Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles,
        Sample, ScopeProfiles, Stack, ValueType,
    };
    pub(crate) use opentelemetry_proto::tonic::resource::v1::Resource;
}
