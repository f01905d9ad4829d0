//! OTLP there and back, what foreign senders write, and what is refused.

use std::io::{self, Write};

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    Link as WireLink, ProfilesDictionary, ResourceProfiles, Sample,
};
use profiler_proto::model::{self, Function, Line, Link, Location, Profile, Stack, Value, ValueType};
use profiler_proto::otlp::{self, ExportProfilesServiceRequest};
use profiler_proto::{DecodeError, Limits, ProfileSet, fuzz};
use proptest::prelude::*;
use prost::Message;

use crate::arbitrary::{plans, values};
use crate::sample::checkout;

fn decoded(request: ExportProfilesServiceRequest) -> ProfileSet {
    let mut sets = otlp::decode(request, &Limits::default()).unwrap();
    assert_eq!(sets.len(), 1);
    sets.remove(0)
}

fn dictionary(request: &mut ExportProfilesServiceRequest) -> &mut ProfilesDictionary {
    request.dictionary.as_mut().unwrap()
}

fn samples(request: &mut ExportProfilesServiceRequest) -> &mut Vec<Sample> {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0].samples
}

/// What is said of a request that `change` made of the sample.
fn refusal(change: impl FnOnce(&mut ExportProfilesServiceRequest)) -> String {
    let mut request = otlp::encode(&checkout());
    change(&mut request);
    otlp::decode(request, &Limits::default()).unwrap_err().to_string()
}

/// Check that references to strings, which the Collector's file exporter writes, are resolved everywhere.
#[test]
fn string_references_are_resolved() {
    let mut request = otlp::encode(&checkout());
    for text in ["service.name", "checkout", "a", "b"] {
        dictionary(&mut request).string_table.push(text.into());
    }
    let last = dictionary(&mut request).string_table.len() as i32 - 1;
    let reference = |index| Some(AnyValue { value: Some(AnyKind::StringValueStrindex(index)) });
    let resource = request.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes[0] = KeyValue { key: String::new(), key_strindex: last - 3, value: reference(last - 2) };
    let list = ArrayValue { values: vec![reference(last - 1).unwrap(), reference(last).unwrap()] };
    let list = Some(AnyValue { value: Some(AnyKind::ArrayValue(list)) });
    dictionary(&mut request).attribute_table[1].value = list;
    let set = decoded(request);
    assert_eq!(set.resource.service_name(), Some("checkout"));
    assert!(set.dictionary.attributes.iter().any(|a| a.value == Value::List(["a".into(), "b".into()].into())));
}

/// Check that the Collector's zero elements are zero elements: a present but empty value, links of zero bytes, and
/// tables that are not there at all.
#[test]
fn other_zero_elements_are_zero() {
    let mut request = otlp::encode(&checkout());
    dictionary(&mut request).attribute_table[0].value = Some(AnyValue { value: None });
    dictionary(&mut request).link_table[0] = WireLink { trace_id: vec![0; 16], span_id: vec![0; 8] };
    assert_eq!(decoded(request.clone()), checkout().compacted());
    samples(&mut request).iter_mut().for_each(|sample| sample.link_index = 0);
    dictionary(&mut request).link_table.clear();
    assert!(decoded(request).profiles[0].samples.iter().all(|sample| sample.link.is_zero()));
}

/// Check that timestamps alone are counted, several values summed, and equal samples made one.
#[test]
fn other_shapes_of_samples_are_summed() {
    let mut request = otlp::encode(&checkout());
    let samples = samples(&mut request);
    (samples[0].values, samples[0].timestamps_unix_nano) = (vec![], vec![1, 2, 3]);
    (samples[1].values, samples[1].timestamps_unix_nano) = (vec![2, 2, 3, 3], vec![1, 2, 3, 4]);
    let copy = Sample {
        attribute_indices: samples[0].attribute_indices.iter().rev().copied().collect(),
        ..samples[0].clone()
    };
    samples.push(copy);
    let values: Vec<_> = decoded(request).profiles[0].samples.iter().map(|sample| sample.value).collect();
    assert_eq!(values, [6, 10]);
}

/// Check that each resource and scope becomes a set with a dictionary of its own, of only what it refers to.
#[test]
fn each_scope_is_a_set() {
    let mut request = otlp::encode(&checkout());
    let memory = request.resource_profiles[0].scope_profiles[0].profiles.pop().unwrap();
    let mut other = request.resource_profiles[0].clone();
    other.resource = None;
    other.scope_profiles[0].scope = None;
    other.scope_profiles[0].profiles = vec![memory];
    request.resource_profiles.extend([other, ResourceProfiles::default()]);
    let sets = otlp::decode(request, &Limits::default()).unwrap();
    assert_eq!(sets.len(), 2);
    let mut cpu = checkout();
    let memory = cpu.profiles.pop().unwrap();
    assert_eq!(sets[0], cpu.compacted());
    let expected = ProfileSet { dictionary: cpu.dictionary, profiles: vec![memory], ..ProfileSet::default() };
    assert_eq!(sets[1], expected.compacted());
}

/// Check that a profile without samples is not sent, nor a request without profiles, nor a period type without a name.
#[test]
fn what_receivers_refuse_is_not_sent() {
    let mut set = checkout();
    set.profiles[0].kind.period_type = ValueType::default();
    set.profiles[0].kind.period = 0;
    set.profiles[1].samples.clear();
    let sent = decoded(otlp::encode(&set));
    let kind = sent.profiles[0].kind;
    assert_eq!((sent.profiles.len(), kind.period_type, kind.period), (1, kind.sample_type, 1));
    set.profiles = vec![Profile::default()];
    let request = otlp::encode(&set);
    assert_eq!((request.resource_profiles.len(), request.dictionary.unwrap().string_table), (0, vec![String::new()]));
}

/// Check that an error names the field, its value and the table.
#[test]
fn references_to_nothing_are_named() {
    let path = "resource_profiles[0].scope_profiles[0].profiles[0].samples[1]";
    let error = refusal(|request| samples(request)[1].stack_index = 99);
    assert_eq!(error, format!("{path}.stack_index: 99 is beyond stack_table (3 elements)"));
    let error = refusal(|request| samples(request)[1].attribute_indices[0] = -1);
    assert_eq!(error, format!("{path}.attribute_indices[0]: -1 is beyond attribute_table (8 elements)"));
    let error = refusal(|request| dictionary(request).location_table[2].lines[0].function_index = 7);
    assert_eq!(error, "dictionary.location_table[2].lines[0].function_index: 7 is beyond function_table (5 elements)");
    let error = refusal(|request| dictionary(request).attribute_table[1].key_strindex = 70);
    assert_eq!(error, "dictionary.attribute_table[1].key_strindex: 70 is beyond string_table (24 elements)");
    let error =
        refusal(|request| request.resource_profiles[0].resource.as_mut().unwrap().attributes[1].key_strindex = 70);
    assert_eq!(
        error,
        "resource_profiles[0].resource.attributes[1].key_strindex: 70 is beyond string_table (24 elements)"
    );
}

/// Check that content that means nothing is named.
#[test]
fn senseless_content_is_named() {
    let error = refusal(|request| samples(request)[0].values.clear());
    assert_eq!(error, "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]: neither values nor timestamps");
    let error = refusal(|request| _ = dictionary(request).link_table[1].span_id.pop());
    assert_eq!(error, "dictionary.link_table[1].span_id: 7 bytes, not 8");
    let error = refusal(|request| dictionary(request).function_table[1].start_line = -3);
    assert_eq!(error, "dictionary.function_table[1].start_line: -3 is not a line or column from 0 to 4294967295");
    let error = refusal(|request| dictionary(request).string_table[0] = "x".into());
    assert_eq!(error, "dictionary.string_table[0]: not the zero value, which index 0 stands for everywhere");
}

/// Check that input beyond a limit is refused before it is decoded, and bytes that are no request are named.
#[test]
fn limits_hold() {
    let bytes = otlp::encode_to_vec(&checkout());
    let error = |limits| otlp::decode_bytes(&bytes, &limits).unwrap_err();
    let limits = Limits { bytes: bytes.len() - 1, ..Limits::default() };
    assert_eq!(error(limits), DecodeError::OverLimit { what: "bytes of input", limit: bytes.len() - 1 });
    let limits = Limits { memory: 1_000, ..Limits::default() };
    assert_eq!(error(limits), DecodeError::OverLimit { what: "bytes of decoded content", limit: 1_000 });
    let cut = otlp::decode_bytes(&bytes[..bytes.len() - 1], &Limits::default()).unwrap_err().to_string();
    assert!(cut.starts_with("not valid protobuf: a field of "), "{cut}");
}

/// Check that a value may nest as deep as allowed and no deeper, from bytes and from a message.
#[test]
fn depth_is_limited() {
    let limits = Limits { depth: 3, ..Limits::default() };
    for (depth, allowed) in [(3, true), (4, false)] {
        let mut request = otlp::encode(&checkout());
        let nest = |value| AnyValue { value: Some(AnyKind::ArrayValue(ArrayValue { values: vec![value] })) };
        let value = (0..depth).fold(AnyValue { value: Some(AnyKind::IntValue(1)) }, |value, _| nest(value));
        dictionary(&mut request).attribute_table[1].value = Some(value);
        assert_eq!(otlp::decode_bytes(&request.encode_to_vec(), &limits).is_ok(), allowed);
        assert_eq!(otlp::decode(request, &limits).is_ok(), allowed);
    }
}

/// Check that one long string, referred to again and again, is not copied without bound.
#[test]
fn shared_content_is_not_multiplied() {
    let mut request = otlp::encode(&checkout());
    dictionary(&mut request).string_table.push("x".repeat(1 << 20));
    let index = dictionary(&mut request).string_table.len() as i32 - 1;
    let long = || AnyValue { value: Some(AnyKind::StringValueStrindex(index)) };
    let many = ArrayValue { values: (0..1_000).map(|_| long()).collect() };
    dictionary(&mut request).attribute_table[1].value = Some(AnyValue { value: Some(AnyKind::ArrayValue(many)) });
    let error = otlp::decode_bytes(&request.encode_to_vec(), &Limits::default()).unwrap_err();
    assert_eq!(error, DecodeError::OverLimit { what: "bytes of decoded content", limit: 256 << 20 });
}

/// What is written, and where it was flushed.
#[derive(Default)]
struct Flushed {
    bytes: Vec<u8>,
    at: Vec<usize>,
}

impl Write for Flushed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.at.push(self.bytes.len());
        Ok(())
    }
}

/// Check that a request is flushed behind each long kind of its elements, so that what compresses it begins anew there, and that a short one is
/// not at all.
#[test]
fn a_request_is_flushed_behind_long_kinds_of_elements() {
    let written = |set: &ProfileSet| {
        let mut out = Flushed::default();
        otlp::Request::of(set).write(&mut out).unwrap();
        assert_eq!(ExportProfilesServiceRequest::decode(&*out.bytes), Ok(otlp::encode(set)));
        out
    };
    assert_eq!(written(&checkout().compacted()).at, []);
    let mut set = checkout();
    set.profiles.truncate(1);
    let dictionary = &mut set.dictionary;
    set.profiles[0].samples = (1..1000_u32)
        .map(|number| {
            let name = dictionary.strings.intern_str(&format!("function {number}"));
            let function = dictionary.functions.intern(Function { name, ..Function::default() });
            let lines = Box::new([Line { function, ..Line::default() }]);
            let location = dictionary.locations.intern(Location { lines, ..Location::default() });
            let stack = dictionary.stacks.intern(Stack { locations: Box::new([location]) });
            let link = dictionary
                .links
                .intern(Link { trace_id: [number as u8; 16], span_id: u64::from(number).to_be_bytes() });
            model::Sample { stack, link, value: 1, ..model::Sample::default() }
        })
        .collect();
    let out = written(&set.compacted());
    // Samples, locations, functions, links, strings.
    assert_eq!(out.at.len(), 5);
    let spans = &out.bytes[out.at[2]..out.at[3]];
    assert!(spans.ends_with(&999_u64.to_be_bytes()));
    let strings = otlp::encode(&set).dictionary.unwrap().string_table;
    assert!(out.bytes[out.at[3]..out.at[4]].ends_with(strings.last().unwrap().as_bytes()));
}

proptest! {
    /// Check that a set comes back from OTLP as its compact self, and that the same set gives the same bytes.
    #[test]
    fn a_set_comes_back(plan in plans(values())) {
        let set = plan.build(false);
        prop_assume!(!set.profiles.is_empty());
        let compact = set.compacted();
        prop_assert_eq!(&compact.compacted(), &compact);
        prop_assert_eq!(&decoded(otlp::encode(&set)), &compact);
        let bytes = otlp::encode_to_vec(&set);
        prop_assert_eq!(&otlp::encode_to_vec(&compact), &bytes);
        let (request, mut written) = (otlp::Request::of(&compact), Vec::new());
        request.write(&mut written).unwrap();
        prop_assert_eq!((request.bytes(), written.len()), (bytes.len(), bytes.len()));
        // As bytes: what is not a number is not equal to itself.
        prop_assert_eq!(ExportProfilesServiceRequest::decode(&*written).unwrap().encode_to_vec(), bytes.clone());
        prop_assert_eq!(otlp::decode_bytes(&bytes, &Limits::default()), Ok(vec![compact]));
    }

    /// Check that any bytes are decoded or refused, and that what was decoded comes back from our own encoding.
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::otlp(&bytes);
    }

    /// Check that a request with some bytes changed is decoded or refused.
    #[test]
    fn changed_bytes_are_decoded_or_refused(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
        let mut bytes = otlp::encode_to_vec(&checkout());
        for (position, byte) in changes {
            let len = bytes.len();
            bytes[usize::from(position) % len] = byte;
        }
        fuzz::otlp(&bytes);
    }
}
