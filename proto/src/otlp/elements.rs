//! Elements of a request, each made from its own in the model.
//!
//! In: an element with the dictionary that it refers to. Out: the message of it, as [`encode`](super::encode()) says what is in it.

use super::messages::{self as wire, AnyKind, AnyValue, KeyValue, KeyValueAndUnit};
use super::order::Orders;
use crate::model::{
    Attribute, AttributeSet, AttributeSetId, Dictionary, Function, Id, Kind, Link, Location, Mapping, Profile, Sample,
    Scope, Stack, Value, ValueType,
};
use crate::resource::Resource;

/// A resource as OTLP has it, without attributes that have no value.
#[must_use]
pub fn wire_resource(resource: &Resource) -> wire::Resource {
    let given = resource.attributes().iter().filter(|(_, value)| *value != Value::Empty);
    wire::Resource { attributes: given.map(|(key, value)| key_value(key, value)).collect(), ..Default::default() }
}

pub(super) fn scope(scope: &Scope) -> wire::InstrumentationScope {
    wire::InstrumentationScope { name: scope.name.clone(), version: scope.version.clone(), ..Default::default() }
}

pub(super) fn mapping(mapping: &Mapping, dictionary: &Dictionary, orders: &Orders) -> wire::Mapping {
    wire::Mapping {
        memory_start: mapping.start,
        memory_limit: mapping.limit,
        file_offset: mapping.offset,
        filename_strindex: orders.strings.number(mapping.filename),
        attribute_indices: attribute_indices(mapping.attributes, dictionary),
    }
}

pub(super) fn function(function: &Function, orders: &Orders) -> wire::Function {
    wire::Function {
        name_strindex: orders.strings.number(function.name),
        system_name_strindex: orders.strings.number(function.system_name),
        filename_strindex: orders.strings.number(function.filename),
        start_line: function.start_line.into(),
    }
}

pub(super) fn stack(stack: &Stack, orders: &Orders) -> wire::Stack {
    wire::Stack { location_indices: stack.locations.iter().map(|id| orders.locations.number(*id)).collect() }
}

/// A profile without its samples.
pub(super) fn profile(profile: &Profile, dictionary: &Dictionary, orders: &Orders) -> wire::Profile {
    let kind = with_period(profile.kind);
    wire::Profile {
        sample_type: Some(value_type(kind.sample_type, orders)),
        time_unix_nano: profile.time_unix_nanos,
        duration_nano: profile.duration_nanos,
        period_type: Some(value_type(kind.period_type, orders)),
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

fn value_type(value_type: ValueType, orders: &Orders) -> wire::ValueType {
    let [kind, unit] = [value_type.kind, value_type.unit].map(|id| orders.strings.number(id));
    wire::ValueType { type_strindex: kind, unit_strindex: unit }
}

pub(super) fn sample(sample: &Sample, dictionary: &Dictionary, orders: &Orders) -> wire::Sample {
    wire::Sample {
        stack_index: orders.stacks.number(sample.stack),
        attribute_indices: attribute_indices(sample.attributes, dictionary),
        link_index: index(sample.link),
        values: vec![sample.value],
        timestamps_unix_nano: Vec::new(),
    }
}

pub(super) fn location(location: &Location, dictionary: &Dictionary, orders: &Orders) -> wire::Location {
    let lines = location.lines.iter().map(|line| wire::Line {
        function_index: orders.functions.number(line.function),
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
pub(super) fn link(link: &Link) -> wire::Link {
    if *link == Link::default() {
        wire::Link::default()
    } else {
        wire::Link { trace_id: link.trace_id.to_vec(), span_id: link.span_id.to_vec() }
    }
}

pub(super) fn attribute(attribute: &Attribute, orders: &Orders) -> KeyValueAndUnit {
    let value = (attribute.value != Value::Empty).then(|| any_value(&attribute.value));
    let [key, unit] = [attribute.key, attribute.unit].map(|id| orders.strings.number(id));
    KeyValueAndUnit { key_strindex: key, value, unit_strindex: unit }
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
pub(super) fn index(id: impl Id) -> i32 {
    i32::try_from(id.index()).unwrap_or(0)
}
