//! Attributes: of resources and scopes, which stand in place, and of all else, which stand in a table.

use std::collections::HashSet;

use super::references::{References, Table};
use super::{Report, Rule};
use crate::otlp::messages::{AnyKind, AnyValue, KeyValue};

/// How many attributes of a resource become labels at most; Pyroscope has 30 with five or so of its own.
const RESOURCE_ATTRIBUTES: usize = 25;

/// How many labels a sample may have, and how long a text may be. Source: Pyroscope, pkg/validation/limits.go.
const SAMPLE_LABELS: usize = 100;
const LABEL_BYTES: usize = 2048;

/// Keys whose value is an array by definition.
const ARRAYS: &[&str] = &["pprof.profile.comment"];

pub(super) fn check_resource(
    attributes: &[KeyValue],
    path: &str,
    references: &mut References<'_>,
    report: &mut Report,
) {
    let path = format!("{path}.attributes");
    check_in_place(attributes, &path, references, report);
    let labels = attributes.iter().filter(|attribute| {
        let kind = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        matches!(kind, Some(AnyKind::StringValue(_) | AnyKind::IntValue(_)))
    });
    report.check(labels.count() <= RESOURCE_ATTRIBUTES, &path, Rule::ResourceAttributes);
    for (i, attribute) in attributes.iter().enumerate() {
        check_length(attribute.value.as_ref(), &format!("{path}[{i}].value"), report);
    }
}

fn check_length(value: Option<&AnyValue>, path: &str, report: &mut Report) {
    let Some(AnyKind::StringValue(text)) = value.and_then(|value| value.value.as_ref()) else { return };
    report.check(text.len() <= LABEL_BYTES, path, Rule::LabelTooLong);
}

/// Checks attributes that have their keys in them.
pub(super) fn check_in_place(
    attributes: &[KeyValue],
    path: &str,
    references: &mut References<'_>,
    report: &mut Report,
) {
    let mut keys = HashSet::new();
    for (i, attribute) in attributes.iter().enumerate() {
        let path = format!("{path}[{i}]");
        if attribute.key_strindex != 0 {
            refer(attribute.key_strindex, &format!("{path}.key_strindex"), references, report);
        } else {
            report.check(!attribute.key.is_empty(), format!("{path}.key"), Rule::AttributeKey);
            report.check(keys.insert(&attribute.key), format!("{path}.key"), Rule::AttributeKeyTwice);
        }
        check_value(attribute.value.as_ref(), &format!("{path}.value"), references, report);
    }
}

/// Checks the value of an attribute.
pub(super) fn check_value(value: Option<&AnyValue>, path: &str, references: &mut References<'_>, report: &mut Report) {
    match value.and_then(|value| value.value.as_ref()) {
        None => report.add(path, Rule::AttributeValue),
        Some(kind) => check_kind(kind, path, references, report),
    }
}

/// Within lists and maps, a value may be left open.
fn check_kind(kind: &AnyKind, path: &str, references: &mut References<'_>, report: &mut Report) {
    match kind {
        AnyKind::StringValueStrindex(index) => refer(*index, path, references, report),
        AnyKind::ArrayValue(array) => {
            for (i, value) in array.values.iter().enumerate() {
                check_nested(Some(value), &format!("{path}.array_value.values[{i}]"), references, report);
            }
        }
        AnyKind::KvlistValue(map) => {
            for (i, pair) in map.values.iter().enumerate() {
                let path = format!("{path}.kvlist_value.values[{i}]");
                if pair.key_strindex != 0 {
                    refer(pair.key_strindex, &format!("{path}.key_strindex"), references, report);
                }
                check_nested(pair.value.as_ref(), &format!("{path}.value"), references, report);
            }
        }
        _ => {}
    }
}

fn check_nested(value: Option<&AnyValue>, path: &str, references: &mut References<'_>, report: &mut Report) {
    if let Some(kind) = value.and_then(|value| value.value.as_ref()) {
        check_kind(kind, path, references, report);
    }
}

/// Reports a reference where a text should stand; the text has somebody who refers to it all the same.
fn refer(index: i32, path: &str, references: &mut References<'_>, report: &mut Report) {
    report.add(path, Rule::StringReference);
    references.to(Table::String, index, path, report);
}

/// Checks the `attribute_indices` of the message at `path`; gives their keys.
pub(super) fn check_indices<'a>(
    indices: &[i32],
    path: &str,
    references: &mut References<'a>,
    report: &mut Report,
) -> HashSet<&'a str> {
    let mut keys = HashSet::new();
    for (i, index) in indices.iter().enumerate() {
        let path = format!("{path}.attribute_indices[{i}]");
        references.to(Table::Attribute, *index, &path, report);
        let attribute = usize::try_from(*index).ok().and_then(|i| references.dictionary.attribute_table.get(i));
        let Some(attribute) = attribute else { continue };
        let key = references.text(attribute.key_strindex);
        // An element without a key is reported in its table, but for element 0, which is none.
        report.check(*index != 0, &path, Rule::AttributeKey);
        report.check(keys.insert(key), &path, Rule::AttributeKeyTwice);
        report.check(!key.starts_with("code."), &path, Rule::CodeAttribute);
    }
    keys
}

/// Checks what becomes labels of a sample: how many they are, how long, and that single texts are no arrays.
pub(super) fn check_labels(indices: &[i32], path: &str, references: &References<'_>, report: &mut Report) {
    report.check(indices.len() <= SAMPLE_LABELS, format!("{path}.attribute_indices"), Rule::LabelsTooMany);
    for (i, index) in indices.iter().enumerate() {
        let attribute = usize::try_from(*index).ok().and_then(|i| references.dictionary.attribute_table.get(i));
        let Some(attribute) = attribute else { continue };
        let path = format!("{path}.attribute_indices[{i}]");
        check_length(attribute.value.as_ref(), &path, report);
        if let Some(AnyKind::ArrayValue(array)) = attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            let one = array.values.len() == 1 && !ARRAYS.contains(&references.text(attribute.key_strindex));
            report.check(!one, path, Rule::ArrayOfOne);
        }
    }
}
