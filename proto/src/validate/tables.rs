//! The seven tables of a dictionary: their zero elements, duplicates, and what their elements say.

use std::collections::HashSet;

use prost::Message;

use super::attributes::{check_indices, check_value};
use super::references::{References, Table};
use super::{Report, Rule};
use crate::model::BUILD_IDS;
use crate::otlp::messages::{Function, KeyValueAndUnit, Link, Location, Mapping, Stack};

pub(super) fn check(references: &mut References<'_>, report: &mut Report) {
    let dictionary = references.dictionary;
    check_table(&dictionary.mapping_table, Table::Mapping, |m| sorted(m, |m| &mut m.attribute_indices), report);
    check_table(&dictionary.location_table, Table::Location, |l| sorted(l, |l| &mut l.attribute_indices), report);
    check_table(&dictionary.function_table, Table::Function, Message::encode_to_vec, report);
    check_table(&dictionary.link_table, Table::Link, Message::encode_to_vec, report);
    check_table(&dictionary.string_table, Table::String, |text| text.clone().into_bytes(), report);
    check_table(&dictionary.attribute_table, Table::Attribute, Message::encode_to_vec, report);
    check_table(&dictionary.stack_table, Table::Stack, Message::encode_to_vec, report);
    check_elements(&dictionary.mapping_table, Table::Mapping, references, report, check_mapping);
    check_elements(&dictionary.location_table, Table::Location, references, report, check_location);
    check_elements(&dictionary.function_table, Table::Function, references, report, check_function);
    check_elements(&dictionary.link_table, Table::Link, references, report, check_link);
    check_elements(&dictionary.stack_table, Table::Stack, references, report, check_stack);
    check_elements(&dictionary.attribute_table, Table::Attribute, references, report, check_attribute);
}

/// Checks what holds for every table; `identity` gives equal bytes for equal elements.
fn check_table<T>(table: &[T], kind: Table, identity: impl Fn(&T) -> Vec<u8>, report: &mut Report) {
    let path = format!("dictionary.{}", kind.name());
    let Some(zero) = table.first() else {
        report.add(path, Rule::TableEmpty);
        return;
    };
    let zero = identity(zero);
    report.check(zero.is_empty(), format!("{path}[0]"), Rule::ZeroElement);
    let mut known = HashSet::from([zero]);
    for (i, element) in table.iter().enumerate().skip(1) {
        report.check(known.insert(identity(element)), format!("{path}[{i}]"), Rule::Duplicate);
    }
}

/// The bytes of `message` with one of its lists, whose order means nothing, in order.
fn sorted<M: Message + Clone>(message: &M, list: impl Fn(&mut M) -> &mut Vec<i32>) -> Vec<u8> {
    let mut message = message.clone();
    list(&mut message).sort_unstable();
    message.encode_to_vec()
}

fn check_elements<'a, T>(
    table: &'a [T],
    kind: Table,
    references: &mut References<'a>,
    report: &mut Report,
    check: impl Fn(&'a T, &str, &mut References<'a>, &mut Report),
) {
    for (i, element) in table.iter().enumerate().skip(1) {
        check(element, &format!("dictionary.{}[{i}]", kind.name()), references, report);
    }
}

fn check_mapping(mapping: &Mapping, path: &str, references: &mut References<'_>, report: &mut Report) {
    let (start, limit) = (mapping.memory_start, mapping.memory_limit);
    report.check(start < limit || (start, limit) == (0, 0), format!("{path}.memory_limit"), Rule::MappingRange);
    references.to(Table::String, mapping.filename_strindex, &format!("{path}.filename_strindex"), report);
    let keys = check_indices(&mapping.attribute_indices, path, references, report);
    report.check(BUILD_IDS.iter().any(|id| keys.contains(id)), path, Rule::MappingBuildId);
}

fn check_location(location: &Location, path: &str, references: &mut References<'_>, report: &mut Report) {
    references.to(Table::Mapping, location.mapping_index, &format!("{path}.mapping_index"), report);
    let mapping = usize::try_from(location.mapping_index).ok();
    if let Some(mapping) = mapping.and_then(|index| references.dictionary.mapping_table.get(index)) {
        let within = (mapping.memory_start..=mapping.memory_limit).contains(&location.address);
        let known = location.address != 0 && mapping.memory_limit != 0;
        report.check(within || !known, format!("{path}.address"), Rule::AddressRange);
    }
    report.check(!location.lines.is_empty(), format!("{path}.lines"), Rule::FrameUnnamed);
    for (i, line) in location.lines.iter().enumerate() {
        let path = format!("{path}.lines[{i}]");
        references.to(Table::Function, line.function_index, &format!("{path}.function_index"), report);
        report.check(line.function_index != 0, format!("{path}.function_index"), Rule::FrameUnnamed);
        report.check(line.line >= 0, format!("{path}.line"), Rule::NegativePosition);
        report.check(line.column >= 0, format!("{path}.column"), Rule::NegativePosition);
    }
    check_indices(&location.attribute_indices, path, references, report);
}

fn check_function(function: &Function, path: &str, references: &mut References<'_>, report: &mut Report) {
    let texts = [
        (function.name_strindex, "name_strindex"),
        (function.system_name_strindex, "system_name_strindex"),
        (function.filename_strindex, "filename_strindex"),
    ];
    for (index, field) in texts {
        references.to(Table::String, index, &format!("{path}.{field}"), report);
    }
    report.check(texts.iter().any(|(index, _)| *index != 0), path, Rule::FunctionUnnamed);
    report.check(function.start_line >= 0, format!("{path}.start_line"), Rule::NegativePosition);
}

fn check_link(link: &Link, path: &str, _: &mut References<'_>, report: &mut Report) {
    for (field, id, len) in [("trace_id", &link.trace_id, 16), ("span_id", &link.span_id, 8)] {
        report.check(id.len() == len, format!("{path}.{field}"), Rule::LinkIdLength);
        report.check(id.len() != len || id.iter().any(|byte| *byte != 0), format!("{path}.{field}"), Rule::LinkIdZero);
    }
}

fn check_stack(stack: &Stack, path: &str, references: &mut References<'_>, report: &mut Report) {
    for (i, location) in stack.location_indices.iter().enumerate() {
        let path = format!("{path}.location_indices[{i}]");
        references.to(Table::Location, *location, &path, report);
        report.check(*location != 0, path, Rule::FrameUnnamed);
    }
}

fn check_attribute(attribute: &KeyValueAndUnit, path: &str, references: &mut References<'_>, report: &mut Report) {
    references.to(Table::String, attribute.key_strindex, &format!("{path}.key_strindex"), report);
    references.to(Table::String, attribute.unit_strindex, &format!("{path}.unit_strindex"), report);
    report.check(attribute.key_strindex != 0, format!("{path}.key_strindex"), Rule::AttributeKey);
    check_value(attribute.value.as_ref(), &format!("{path}.value"), references, report);
}
