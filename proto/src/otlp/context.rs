//! Who a process is and how the contexts of its threads are read, as it publishes that to readers on the same machine:
//! OpenTelemetry's process context.
//!
//! In: a resource and further attributes. Out: the bytes of the message, and back. How a process shows these bytes and how a
//! reader finds them is not this crate's matter.
//!
//! Source: OTEP 4719, "Process Context", `ProcessContext`; OTEP 4947 for the attributes of thread contexts.

use prost::Message;

use super::decode::decode_resource;
use super::elements::{key_value, wire_resource};
use super::messages::{self as wire, ProfilesDictionary};
use super::shape::PROCESS_CONTEXT;
use super::source::Source;
use crate::error::DecodeError;
use crate::limits::Limits;
use crate::model::Value;
use crate::resource::Resource;

/// What a process says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessContext {
    /// Who it is.
    pub resource: Resource,
    /// What readers need to know beside that.
    pub attributes: Resource,
}

/// The message, which `opentelemetry-proto` does not have yet.
#[derive(Clone, PartialEq, Message)]
struct Wire {
    #[prost(message, optional, tag = "1")]
    resource: Option<wire::Resource>,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<wire::KeyValue>,
}

impl ProcessContext {
    /// The bytes of the message.
    #[must_use]
    pub fn encode_to_vec(&self) -> Vec<u8> {
        let attributes = self.attributes.attributes().iter().filter(|(_, value)| *value != Value::Empty);
        let attributes = attributes.map(|(key, value)| key_value(key, value)).collect();
        Wire { resource: Some(wire_resource(&self.resource)), attributes }.encode_to_vec()
    }

    /// The message in `bytes`, which anybody may have written.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if they are not the message, or its content goes beyond `limits`, which is known before anything
    /// is allocated.
    pub fn decode_bytes(bytes: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        crate::wire::check(bytes, &PROCESS_CONTEXT, limits)?;
        let wire = Wire::decode(bytes)
            .map_err(|error| DecodeError::Malformed { format: "protobuf", detail: error.to_string() })?;
        let nothing = ProfilesDictionary::default();
        let mut source = Source::new(&nothing, limits)?;
        let attributes = wire::Resource { attributes: wire.attributes, ..wire::Resource::default() };
        Ok(Self {
            resource: decode_resource(wire.resource.as_ref(), "process context", &mut source)?,
            attributes: decode_resource(Some(&attributes), "process context", &mut source)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the bytes are those of the specification's fields, and that they lead back to the same.
    #[test]
    fn a_context_survives_the_wire() {
        let keys = Value::List(Box::new(["profiler.tags".into(), "endpoint".into()]));
        let context = ProcessContext {
            resource: Resource::new().with("service.name", "a").with("process.pid", 7),
            attributes: Resource::new().with("threadlocal.attribute_key_map", keys).with("offset", -8),
        };
        let bytes = context.encode_to_vec();
        // Field 1, a message; in it field 1, a pair: its key, its value of the kind 1, a text.
        assert_eq!(&bytes[..1], [0x0a]);
        assert_eq!(&bytes[2..23], b"\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01a");
        assert_eq!(ProcessContext::decode_bytes(&bytes, &Limits::default()), Ok(context));
    }

    /// Check that bytes of others are refused by name, and what is large before it is allocated.
    #[test]
    fn bytes_of_others_are_refused() {
        let limits = Limits::default();
        assert!(ProcessContext::decode_bytes(b"OTEL_CTX", &limits).is_err());
        let many = [0x12, 0].repeat(1_000);
        let small = Limits { memory: 1_000, ..limits };
        assert!(matches!(ProcessContext::decode_bytes(&many, &small), Err(DecodeError::OverLimit { .. })));
        assert_eq!(ProcessContext::decode_bytes(&[], &limits), Ok(ProcessContext::default()));
    }
}
