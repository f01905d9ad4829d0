//! Every rule is broken once, and nothing but that rule is reported; what the encoder makes breaks none.

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    KeyValueAndUnit, Link, Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles,
};
use profiler_proto::otlp::{self, ExportProfilesServiceRequest};
use profiler_proto::validate::{Rule, validate, validate_bytes};
use proptest::prelude::*;
use prost::Message;

use crate::arbitrary::{plans, values};
use crate::sample::checkout;

/// A way to break a rule in an otherwise perfect request.
type Breach = fn(&mut ExportProfilesServiceRequest);

fn resource(request: &mut ExportProfilesServiceRequest) -> &mut ResourceProfiles {
    &mut request.resource_profiles[0]
}

fn attributes(request: &mut ExportProfilesServiceRequest) -> &mut Vec<KeyValue> {
    &mut resource(request).resource.as_mut().unwrap().attributes
}

fn scope(request: &mut ExportProfilesServiceRequest) -> &mut ScopeProfiles {
    &mut resource(request).scope_profiles[0]
}

fn profile(request: &mut ExportProfilesServiceRequest) -> &mut Profile {
    &mut scope(request).profiles[0]
}

fn sample(request: &mut ExportProfilesServiceRequest) -> &mut Sample {
    &mut profile(request).samples[0]
}

fn dictionary(request: &mut ExportProfilesServiceRequest) -> &mut ProfilesDictionary {
    request.dictionary.as_mut().unwrap()
}

/// The attribute of the first sample whose value is a text.
fn text_attribute(request: &mut ExportProfilesServiceRequest) -> &mut KeyValueAndUnit {
    let indices = sample(request).attribute_indices.clone();
    let table = &mut dictionary(request).attribute_table;
    let is_text = |attribute: &KeyValueAndUnit| {
        matches!(&attribute.value, Some(AnyValue { value: Some(AnyKind::StringValue(_)) }))
    };
    let index = indices.into_iter().find(|index| is_text(&table[*index as usize])).unwrap();
    &mut table[index as usize]
}

fn text(text: &str) -> Option<AnyValue> {
    Some(AnyValue { value: Some(AnyKind::StringValue(text.into())) })
}

/// The index of a text that is new to the request.
fn string_added(request: &mut ExportProfilesServiceRequest, text: &str) -> i32 {
    let table = &mut dictionary(request).string_table;
    table.push(text.into());
    i32::try_from(table.len() - 1).unwrap()
}

/// The index of an attribute with this key and number that is new to the request.
fn attribute_added(request: &mut ExportProfilesServiceRequest, key_strindex: i32, number: i64) -> i32 {
    let table = &mut dictionary(request).attribute_table;
    let value = Some(AnyValue { value: Some(AnyKind::IntValue(number)) });
    table.push(KeyValueAndUnit { key_strindex, value, unit_strindex: 0 });
    i32::try_from(table.len() - 1).unwrap()
}

fn string_index(request: &mut ExportProfilesServiceRequest, wanted: &str) -> usize {
    dictionary(request).string_table.iter().position(|text| text == wanted).unwrap()
}

/// One breach of each rule that a decoded request can break, and where it is found.
const BREACHES: &[(Rule, &str, Breach)] = &[
    (Rule::Dictionary, "dictionary", |r| r.dictionary = None),
    (Rule::ResourceProfiles, "resource_profiles", |r| {
        r.resource_profiles.clear();
        r.dictionary = Some(zero_dictionary());
    }),
    (Rule::Resource, "resource_profiles[0].resource", |r| resource(r).resource = None),
    (Rule::ScopeProfiles, "resource_profiles[1].scope_profiles", |r| {
        let empty = ResourceProfiles { resource: Some(Default::default()), ..Default::default() };
        r.resource_profiles.push(empty);
    }),
    (Rule::Scope, "resource_profiles[0].scope_profiles[0].scope", |r| scope(r).scope = None),
    (Rule::Profiles, "resource_profiles[0].scope_profiles[1].profiles", |r| {
        resource(r).scope_profiles.push(ScopeProfiles { scope: Some(Default::default()), ..Default::default() });
    }),
    (Rule::Samples, "resource_profiles[0].scope_profiles[0].profiles[2].samples", |r| {
        let empty = Profile { samples: Vec::new(), ..profile(r).clone() };
        scope(r).profiles.push(empty);
    }),
    (Rule::TableEmpty, "dictionary.link_table", |r| {
        sample(r).link_index = 0;
        dictionary(r).link_table.clear();
    }),
    (Rule::ZeroElement, "dictionary.link_table[0]", |r| {
        dictionary(r).link_table[0] = Link { trace_id: vec![0; 16], span_id: vec![0; 8] };
    }),
    (Rule::Duplicate, "dictionary.mapping_table[2]", |r| {
        let copy = dictionary(r).mapping_table[1].clone();
        dictionary(r).mapping_table.push(copy);
        dictionary(r).location_table[1].mapping_index = 2;
    }),
    (Rule::Orphan, "dictionary.link_table[2]", |r| {
        dictionary(r).link_table.push(Link { trace_id: vec![1; 16], span_id: vec![1; 8] });
    }),
    (Rule::OutOfRange, "resource_profiles[0].scope_profiles[0].profiles[0].samples[1].link_index", |r| {
        profile(r).samples[1].link_index = 99;
    }),
    (Rule::StringReference, "resource_profiles[0].resource.attributes[0].key_strindex", |r| {
        attributes(r)[0].key_strindex = 1;
    }),
    (Rule::StringReference, "resource_profiles[0].resource.attributes[0].value", |r| {
        // A text that nothing else refers to.
        dictionary(r).string_table.push("elsewhere".into());
        let index = dictionary(r).string_table.len() as i32 - 1;
        attributes(r)[0].value = Some(AnyValue { value: Some(AnyKind::StringValueStrindex(index)) });
    }),
    (Rule::AttributeKey, "resource_profiles[0].resource.attributes[0].key", |r| attributes(r)[0].key.clear()),
    (Rule::AttributeKeyTwice, "resource_profiles[0].resource.attributes[1].key", |r| {
        attributes(r)[1].key = attributes(r)[0].key.clone();
    }),
    (Rule::AttributeValue, "resource_profiles[0].resource.attributes[0].value", |r| attributes(r)[0].value = None),
    (Rule::ArrayOfOne, "resource_profiles[0].scope_profiles[0].profiles[0].samples[0].attribute_indices[0]", |r| {
        // Only one of the two samples has the attribute, so that there is one finding.
        profile(r).samples[1].attribute_indices.remove(0);
        let attribute = text_attribute(r);
        let values = attribute.value.take().into_iter().collect();
        attribute.value = Some(AnyValue { value: Some(AnyKind::ArrayValue(ArrayValue { values })) });
    }),
    (Rule::CodeAttribute, "resource_profiles[0].scope_profiles[0].profiles[1].samples[0].attribute_indices[0]", |r| {
        let index = string_index(r, "size");
        dictionary(r).string_table[index] = "code.line.number".into();
    }),
    (Rule::ResourceAttributes, "resource_profiles[0].resource.attributes", |r| {
        let more = (0..24).map(|i| KeyValue { key: format!("key{i}"), value: text("value"), key_strindex: 0 });
        attributes(r).extend(more);
    }),
    (Rule::LabelTooLong, "resource_profiles[0].resource.attributes[0].value", |r| {
        attributes(r)[0].value = text(&"x".repeat(2049));
    }),
    (Rule::LabelsTooMany, "resource_profiles[0].scope_profiles[0].profiles[0].samples[0].attribute_indices", |r| {
        for i in 0..100 {
            let key = string_added(r, &format!("label{i}"));
            let index = attribute_added(r, key, 0);
            sample(r).attribute_indices.push(index);
        }
    }),
    (Rule::SamplesTooMany, "resource_profiles[0].scope_profiles[0].profiles[0].samples", |r| {
        let key = string_added(r, "number");
        let first = sample(r).clone();
        for i in 0..16_000 {
            let mut another = first.clone();
            another.attribute_indices.push(attribute_added(r, key, i));
            profile(r).samples.push(another);
        }
    }),
    (Rule::MappingRange, "dictionary.mapping_table[1].memory_limit", |r| {
        for location in &mut dictionary(r).location_table {
            location.address = 0;
        }
        // Distinct frames, that no address tells apart any more, must stay distinct.
        for (line, location) in (1..).zip(dictionary(r).location_table.iter_mut().skip(1)) {
            location.lines[0].line = line;
        }
        let mapping = &mut dictionary(r).mapping_table[1];
        mapping.memory_limit = mapping.memory_start;
    }),
    (Rule::MappingBuildId, "dictionary.mapping_table[1]", |r| {
        let index = string_index(r, "process.executable.build_id.gnu");
        dictionary(r).string_table[index] = "build_id".into();
    }),
    (Rule::AddressRange, "dictionary.location_table[1].address", |r| dictionary(r).location_table[1].address = 1),
    (Rule::FrameUnnamed, "dictionary.location_table[3].lines", |r| {
        // The inner function of the inlined pair keeps the names in use.
        let lines = std::mem::take(&mut dictionary(r).location_table[3].lines);
        dictionary(r).location_table[2].lines.extend(lines);
    }),
    (Rule::FunctionUnnamed, "dictionary.function_table[5]", |r| {
        let mut unnamed = dictionary(r).function_table[1];
        (unnamed.name_strindex, unnamed.system_name_strindex, unnamed.filename_strindex) = (0, 0, 0);
        dictionary(r).function_table.push(unnamed);
        // The one that it takes the place of stays in use.
        let lines = &mut dictionary(r).location_table[2].lines;
        lines.push(lines[0]);
        lines[0].function_index = 5;
    }),
    (Rule::NegativePosition, "dictionary.location_table[1].lines[0].line", |r| {
        dictionary(r).location_table[1].lines[0].line = -1;
    }),
    (Rule::LinkIdLength, "dictionary.link_table[1].span_id", |r| _ = dictionary(r).link_table[1].span_id.pop()),
    (Rule::LinkIdZero, "dictionary.link_table[1].trace_id", |r| dictionary(r).link_table[1].trace_id = vec![0; 16]),
    (Rule::SampleType, "resource_profiles[0].scope_profiles[0].profiles[0].sample_type", |r| {
        let unit = profile(r).sample_type.unwrap().unit_strindex;
        profile(r).sample_type = Some(Default::default());
        // What it named must be in use elsewhere.
        let (kind, other) = (string_index(r, "samples") as i32, string_index(r, "checkout::price") as i32);
        let function = dictionary(r).function_table.iter_mut().find(|f| f.name_strindex == other).unwrap();
        (function.system_name_strindex, function.filename_strindex) = (kind, unit);
        dictionary(r).function_table[3].system_name_strindex = string_index(r, "src/price.rs") as i32;
    }),
    (Rule::PeriodType, "resource_profiles[0].scope_profiles[0].profiles[0].period_type", |r| {
        let period_type = profile(r).period_type.take().unwrap();
        dictionary(r).function_table[1].system_name_strindex = period_type.type_strindex;
        dictionary(r).function_table[2].system_name_strindex = period_type.unit_strindex;
    }),
    (Rule::Period, "resource_profiles[0].scope_profiles[0].profiles[0].period", |r| profile(r).period = 0),
    (Rule::Name, "resource_profiles[0].scope_profiles[0].profiles[0].sample_type.type_strindex", |r| {
        let index = string_index(r, "samples");
        dictionary(r).string_table[index] = "on-cpu".into();
    }),
    (Rule::Time, "resource_profiles[0].scope_profiles[0].profiles[0].time_unix_nano", |r| {
        profile(r).time_unix_nano = 0;
    }),
    (Rule::Duration, "resource_profiles[0].scope_profiles[0].profiles[0].duration_nano", |r| {
        profile(r).duration_nano = 0;
    }),
    (Rule::ProfileId, "resource_profiles[0].scope_profiles[0].profiles[0].profile_id", |r| {
        profile(r).profile_id = vec![0; 16];
    }),
    (Rule::OriginalPayload, "resource_profiles[0].scope_profiles[0].profiles[0].original_payload", |r| {
        profile(r).original_payload_format = "pprof".into();
    }),
    (Rule::SampleEmpty, "resource_profiles[0].scope_profiles[0].profiles[1].samples[0]", |r| {
        scope(r).profiles[1].samples[0].values.clear();
    }),
    (Rule::SeveralValues, "resource_profiles[0].scope_profiles[0].profiles[0].samples[0].values", |r| {
        sample(r).values.push(1);
    }),
    (Rule::ValuesAndTimestamps, "resource_profiles[0].scope_profiles[0].profiles[1].samples[0]", |r| {
        let time = profile(r).time_unix_nano;
        scope(r).profiles[1].samples[0].timestamps_unix_nano = vec![time];
    }),
    (Rule::ValuesDiffer, "resource_profiles[0].scope_profiles[0].profiles[1].samples[0].values", |r| {
        let time = profile(r).time_unix_nano;
        scope(r).profiles[1].samples[0].timestamps_unix_nano = vec![time, time + 1];
    }),
    (Rule::Timestamp, "resource_profiles[0].scope_profiles[0].profiles[1].samples[0].timestamps_unix_nano[0]", |r| {
        scope(r).profiles[1].samples[0].values.clear();
        scope(r).profiles[1].samples[0].timestamps_unix_nano = vec![1];
    }),
    (Rule::Shape, "resource_profiles[0].scope_profiles[0].profiles[0].samples[1]", |r| {
        let time = profile(r).time_unix_nano;
        profile(r).samples[1].values.clear();
        profile(r).samples[1].timestamps_unix_nano = vec![time];
    }),
    (Rule::SampleTwice, "resource_profiles[0].scope_profiles[0].profiles[0].samples[2]", |r| {
        let mut copy = sample(r).clone();
        copy.attribute_indices.reverse();
        profile(r).samples.push(copy);
    }),
];

fn zero_dictionary() -> ProfilesDictionary {
    ProfilesDictionary {
        mapping_table: vec![Default::default()],
        location_table: vec![Default::default()],
        function_table: vec![Default::default()],
        link_table: vec![Default::default()],
        string_table: vec![String::new()],
        attribute_table: vec![Default::default()],
        stack_table: vec![Default::default()],
    }
}

/// Check that a request with something of everything breaks no rule.
#[test]
fn the_sample_is_valid() {
    assert_eq!(validate(&otlp::encode(&checkout())), []);
    assert_eq!(validate_bytes(&otlp::encode_to_vec(&checkout())), []);
}

/// Check that each breach is found where it is, and is found to break its rule and no other.
#[test]
fn each_rule_is_told_from_the_others() {
    let mut wrong = Vec::new();
    for (rule, path, breach) in BREACHES {
        let mut request = otlp::encode(&checkout());
        breach(&mut request);
        let found: Vec<_> = validate(&request).into_iter().map(|finding| (finding.rule, finding.path)).collect();
        if found != [(*rule, (*path).to_owned())] {
            wrong.push((rule, path, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Check that no rule is without a breach that finds it.
#[test]
fn every_rule_is_broken_once() {
    let broken: Vec<_> = BREACHES.iter().map(|(rule, ..)| *rule).chain([Rule::Protobuf, Rule::Utf8]).collect();
    let forgotten: Vec<_> = Rule::ALL.iter().filter(|rule| !broken.contains(rule)).collect();
    assert_eq!(forgotten, [] as [&Rule; 0]);
}

/// Check that bytes are told apart from a request, and bad text from good.
#[test]
fn bytes_are_checked_too() {
    let rules = |bytes: &[u8]| validate_bytes(bytes).iter().map(|finding| finding.rule).collect::<Vec<_>>();
    assert_eq!(rules(b"\x0a\xff"), [Rule::Protobuf]);
    let mut bytes = otlp::encode(&checkout()).encode_to_vec();
    let position = bytes.windows(8).position(|window| window == b"checkout").unwrap();
    bytes[position] = 0xff;
    assert_eq!(rules(&bytes), [Rule::Utf8]);
}

/// Check that a finding reads as field, rule and reason.
#[test]
fn a_finding_names_its_source() {
    let mut request = otlp::encode(&checkout());
    profile(&mut request).period = 0;
    assert_eq!(
        validate(&request)[0].to_string(),
        "resource_profiles[0].scope_profiles[0].profiles[0].period: period is positive (Pyroscope: seen to answer 400)"
    );
}

proptest! {
    /// Check that what the encoder makes of any set breaks no rule that the encoder, not the set's maker, answers for.
    #[test]
    fn the_encoder_keeps_the_rules(plan in plans(values())) {
        let set = plan.build(false);
        prop_assume!(!set.profiles.is_empty());
        let of_the_maker = [
            Rule::Name, Rule::MappingBuildId, Rule::AddressRange, Rule::FrameUnnamed, Rule::ArrayOfOne, Rule::CodeAttribute,
        ];
        let findings: Vec<_> = validate(&otlp::encode(&set))
            .into_iter()
            .filter(|finding| !of_the_maker.contains(&finding.rule))
            .collect();
        prop_assert_eq!(findings, []);
    }
}
