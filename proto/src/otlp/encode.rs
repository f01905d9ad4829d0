//! From the model to an OTLP request.
//!
//! In: a [`ProfileSet`]. Out: a request with all seven tables, element 0 of each its zero value (`Link{}` and
//! `KeyValueAndUnit{}` without content), one value a sample, no timestamps, no string references, no orphans, no
//! duplicates. Equal sets give equal bytes.

use prost::Message;

use super::ExportProfilesServiceRequest;
use super::messages::{self as wire, AnyKind, AnyValue, KeyValue, KeyValueAndUnit};
use crate::model::{
    Attribute, AttributeSet, AttributeSetId, Dictionary, Id, Kind, Link, Location, Profile, ProfileSet, Sample, Value,
    ValueType,
};
use crate::resource::Resource;

/// The request that holds `set`, compact ([`ProfileSet::compacted`]).
///
/// Profiles without samples are left out, for some receivers refuse a whole request for one of them; if none is left,
/// the request has no `resource_profiles` and need not be sent. A period type that is not set becomes the sample type
/// with period 1, for a request without one harms some receivers.
#[must_use]
pub fn encode(set: &ProfileSet) -> ExportProfilesServiceRequest {
    encode_kept(&set.with_profiles(set.profiles.iter().filter(|profile| !profile.samples.is_empty())))
}

/// The same of a set that is compact already, as the parts of a [`split`](crate::split::split) are: it is not made so again, which takes
/// as long as the rest.
#[must_use]
pub fn encode_compact(set: &ProfileSet) -> ExportProfilesServiceRequest {
    if set.profiles.iter().any(|profile| profile.samples.is_empty()) { encode(set) } else { encode_kept(set) }
}

fn encode_kept(kept: &ProfileSet) -> ExportProfilesServiceRequest {
    let profiles: Vec<_> = kept.profiles.iter().map(|profile| encode_profile(profile, &kept.dictionary)).collect();
    let scope = wire::InstrumentationScope {
        name: kept.scope.name.clone(),
        version: kept.scope.version.clone(),
        ..Default::default()
    };
    let scope_profiles = wire::ScopeProfiles { scope: Some(scope), profiles, schema_url: String::new() };
    let resource_profiles = wire::ResourceProfiles {
        resource: Some(wire_resource(&kept.resource)),
        scope_profiles: vec![scope_profiles],
        schema_url: String::new(),
    };
    ExportProfilesServiceRequest {
        resource_profiles: if kept.profiles.is_empty() { Vec::new() } else { vec![resource_profiles] },
        dictionary: Some(encode_dictionary(&kept.dictionary)),
    }
}

/// The bytes of [`encode`]'s request.
#[must_use]
pub fn encode_to_vec(set: &ProfileSet) -> Vec<u8> {
    encode(set).encode_to_vec()
}

pub(super) fn wire_resource(resource: &Resource) -> wire::Resource {
    let given = resource.attributes().iter().filter(|(_, value)| *value != Value::Empty);
    wire::Resource { attributes: given.map(|(key, value)| key_value(key, value)).collect(), ..Default::default() }
}

fn encode_profile(profile: &Profile, dictionary: &Dictionary) -> wire::Profile {
    let kind = with_period(profile.kind);
    wire::Profile {
        sample_type: Some(encode_value_type(kind.sample_type)),
        samples: profile.samples.iter().map(|sample| encode_sample(sample, dictionary)).collect(),
        time_unix_nano: profile.time_unix_nanos,
        duration_nano: profile.duration_nanos,
        period_type: Some(encode_value_type(kind.period_type)),
        period: kind.period,
        attribute_indices: attribute_indices(profile.attributes, dictionary),
        ..Default::default()
    }
}

fn with_period(kind: Kind) -> Kind {
    if kind.period_type == ValueType::default() {
        Kind { period_type: kind.sample_type, period: 1, ..kind }
    } else {
        kind
    }
}

fn encode_value_type(value_type: ValueType) -> wire::ValueType {
    wire::ValueType { type_strindex: index(value_type.kind), unit_strindex: index(value_type.unit) }
}

fn encode_sample(sample: &Sample, dictionary: &Dictionary) -> wire::Sample {
    wire::Sample {
        stack_index: index(sample.stack),
        attribute_indices: attribute_indices(sample.attributes, dictionary),
        link_index: index(sample.link),
        values: vec![sample.value],
        timestamps_unix_nano: Vec::new(),
    }
}

fn encode_dictionary(dictionary: &Dictionary) -> wire::ProfilesDictionary {
    wire::ProfilesDictionary {
        mapping_table: dictionary
            .mappings
            .iter()
            .map(|mapping| wire::Mapping {
                memory_start: mapping.start,
                memory_limit: mapping.limit,
                file_offset: mapping.offset,
                filename_strindex: index(mapping.filename),
                attribute_indices: attribute_indices(mapping.attributes, dictionary),
            })
            .collect(),
        location_table: dictionary.locations.iter().map(|location| encode_location(location, dictionary)).collect(),
        function_table: dictionary
            .functions
            .iter()
            .map(|function| wire::Function {
                name_strindex: index(function.name),
                system_name_strindex: index(function.system_name),
                filename_strindex: index(function.filename),
                start_line: function.start_line.into(),
            })
            .collect(),
        link_table: dictionary.links.iter().map(encode_link).collect(),
        string_table: dictionary.strings.iter().map(|text| text.clone().into_string()).collect(),
        attribute_table: dictionary.attributes.iter().map(encode_attribute).collect(),
        stack_table: dictionary
            .stacks
            .iter()
            .map(|stack| wire::Stack { location_indices: stack.locations.iter().copied().map(index).collect() })
            .collect(),
    }
}

fn encode_location(location: &Location, dictionary: &Dictionary) -> wire::Location {
    let lines = location.lines.iter().map(|line| wire::Line {
        function_index: index(line.function),
        line: line.line.into(),
        column: line.column.into(),
    });
    wire::Location {
        mapping_index: index(location.mapping),
        address: location.address,
        lines: lines.collect(),
        attribute_indices: attribute_indices(location.attributes, dictionary),
    }
}

/// `Link{}` for "no link": profiles.proto would have zero-filled ids there, profcheck and Parca refuse them.
fn encode_link(link: &Link) -> wire::Link {
    if *link == Link::default() {
        wire::Link::default()
    } else {
        wire::Link { trace_id: link.trace_id.to_vec(), span_id: link.span_id.to_vec() }
    }
}

fn encode_attribute(attribute: &Attribute) -> KeyValueAndUnit {
    let value = (attribute.value != Value::Empty).then(|| any_value(&attribute.value));
    KeyValueAndUnit { key_strindex: index(attribute.key), value, unit_strindex: index(attribute.unit) }
}

pub(super) fn key_value(key: &str, value: &Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(any_value(value)), key_strindex: 0 }
}

fn any_value(value: &Value) -> AnyValue {
    let kind = match value {
        Value::Empty => return AnyValue { value: None },
        Value::String(text) => AnyKind::StringValue(text.clone().into_string()),
        Value::Bool(truth) => AnyKind::BoolValue(*truth),
        Value::Int(number) => AnyKind::IntValue(*number),
        Value::Double(number) => AnyKind::DoubleValue(number.value()),
        Value::Bytes(bytes) => AnyKind::BytesValue(bytes.to_vec()),
        Value::List(values) => AnyKind::ArrayValue(wire::ArrayValue { values: values.iter().map(any_value).collect() }),
        Value::Map(values) => AnyKind::KvlistValue(wire::KeyValueList {
            values: values.iter().map(|(key, value)| key_value(key, value)).collect(),
        }),
    };
    AnyValue { value: Some(kind) }
}

fn attribute_indices(set: AttributeSetId, dictionary: &Dictionary) -> Vec<i32> {
    let ids = dictionary.attribute_sets.get(set).map_or(&[][..], AttributeSet::ids);
    ids.iter().copied().map(index).collect()
}

/// The index on the wire; a table of 2³¹ elements, for which it would be "not set", does not fit into any request.
fn index(id: impl Id) -> i32 {
    i32::try_from(id.index()).unwrap_or(0)
}
