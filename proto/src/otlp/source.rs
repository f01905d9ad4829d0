//! The dictionary of a request that is being decoded, and what of it already stands in the set under way.
//!
//! In: indices found on the wire. Out: ids of the set's own dictionary, interned at the first reference in the order of
//! [`crate::model`]'s compact form. Every copy is taken off the budget, so that a request whose sets share a large
//! dictionary cannot multiply it.

use super::messages::{AnyKind, AnyValue, KeyValue, ProfilesDictionary, ValueType as WireValueType};
use crate::error::DecodeError;
use crate::limits::{Budget, Limits};
use crate::model::import::Memo;
use crate::model::{
    Attribute, AttributeId, AttributeSetId, Dictionary, Double, Function, FunctionId, Id, Line, Link, LinkId, Location,
    LocationId, Mapping, MappingId, Stack, StackId, StringId, Value, ValueType,
};

/// Where an index stands, for errors; called only when there is one.
type Path<'a> = &'a dyn Fn() -> String;

/// A request's dictionary.
pub(super) struct Source<'a> {
    wire: &'a ProfilesDictionary,
    depth: usize,
    pub(super) budget: Budget,
    strings: Memo<StringId>,
    mappings: Memo<MappingId>,
    functions: Memo<FunctionId>,
    locations: Memo<LocationId>,
    stacks: Memo<StackId>,
    attributes: Memo<AttributeId>,
    links: Memo<LinkId>,
}

/// What an element of an interned table costs beyond its own size: its hash, its slot in the index.
const ENTRY: usize = 24;

impl<'a> Source<'a> {
    /// Checks the zero elements of `wire`; an absent table counts as one that holds just its zero element.
    pub(super) fn new(wire: &'a ProfilesDictionary, limits: &Limits) -> Result<Self, DecodeError> {
        check_zero_elements(wire)?;
        let mut budget = Budget::new(limits);
        let elements = wire.string_table.len()
            + wire.mapping_table.len()
            + wire.function_table.len()
            + wire.location_table.len()
            + wire.stack_table.len()
            + wire.attribute_table.len()
            + wire.link_table.len();
        budget.spend_on::<(u32, StringId)>(elements)?;
        Ok(Self {
            wire,
            depth: limits.depth,
            budget,
            strings: Memo::new(wire.string_table.len()),
            mappings: Memo::new(wire.mapping_table.len()),
            functions: Memo::new(wire.function_table.len()),
            locations: Memo::new(wire.location_table.len()),
            stacks: Memo::new(wire.stack_table.len()),
            attributes: Memo::new(wire.attribute_table.len()),
            links: Memo::new(wire.link_table.len()),
        })
    }

    /// Another set begins, with a dictionary of its own.
    pub(super) fn start_set(&mut self) -> Result<(), DecodeError> {
        self.strings.forget();
        self.mappings.forget();
        self.functions.forget();
        self.locations.forget();
        self.stacks.forget();
        self.attributes.forget();
        self.links.forget();
        // Eight tables with their zero elements, in the smallest size that they are allocated in.
        self.budget.spend(size_of::<crate::ProfileSet>() + 8 * 4 * (64 + ENTRY))
    }

    pub(super) fn value_type(
        &mut self,
        value_type: Option<WireValueType>,
        into: &mut Dictionary,
        path: Path<'_>,
    ) -> Result<ValueType, DecodeError> {
        let value_type = value_type.unwrap_or_default();
        Ok(ValueType {
            kind: self.string(value_type.type_strindex, into, &|| format!("{}.type_strindex", path()))?,
            unit: self.string(value_type.unit_strindex, into, &|| format!("{}.unit_strindex", path()))?,
        })
    }

    pub(super) fn stack(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<StackId, DecodeError> {
        let wire = self.wire;
        let (id, stack) = match find(index, &wire.stack_table, "stack_table", path)? {
            None => return Ok(StackId::ZERO),
            Some((id, element)) => (StackId::from_index(id), element),
        };
        if let Some(known) = self.stacks.known(id) {
            return Ok(known);
        }
        self.budget.spend_on::<LocationId>(stack.location_indices.len())?;
        self.budget.spend(size_of::<Stack>() + ENTRY)?;
        let mut locations = Vec::with_capacity(stack.location_indices.len());
        for (i, location) in stack.location_indices.iter().enumerate() {
            let path = || format!("dictionary.stack_table[{index}].location_indices[{i}]");
            locations.push(self.location(*location, into, &path)?);
        }
        let copy = into.stacks.intern(Stack { locations: locations.into() });
        Ok(self.stacks.keep(id, copy))
    }

    fn location(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<LocationId, DecodeError> {
        let wire = self.wire;
        let (id, location) = match find(index, &wire.location_table, "location_table", path)? {
            None => return Ok(LocationId::ZERO),
            Some((id, element)) => (LocationId::from_index(id), element),
        };
        if let Some(known) = self.locations.known(id) {
            return Ok(known);
        }
        self.budget.spend_on::<Line>(location.lines.len())?;
        self.budget.spend(size_of::<Location>() + ENTRY)?;
        let path = || format!("dictionary.location_table[{index}]");
        let mapping = self.mapping(location.mapping_index, into, &|| format!("{}.mapping_index", path()))?;
        let mut lines = Vec::with_capacity(location.lines.len());
        for (i, line) in location.lines.iter().enumerate() {
            let path = || format!("{}.lines[{i}]", path());
            lines.push(Line {
                function: self.function(line.function_index, into, &|| format!("{}.function_index", path()))?,
                line: position(line.line, &|| format!("{}.line", path()))?,
                column: position(line.column, &|| format!("{}.column", path()))?,
            });
        }
        let attributes = self.attribute_set(&location.attribute_indices, into, &path)?;
        let copy =
            into.locations.intern(Location { mapping, address: location.address, lines: lines.into(), attributes });
        Ok(self.locations.keep(id, copy))
    }

    fn mapping(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<MappingId, DecodeError> {
        let wire = self.wire;
        let (id, mapping) = match find(index, &wire.mapping_table, "mapping_table", path)? {
            None => return Ok(MappingId::ZERO),
            Some((id, element)) => (MappingId::from_index(id), element),
        };
        if let Some(known) = self.mappings.known(id) {
            return Ok(known);
        }
        self.budget.spend(size_of::<Mapping>() + ENTRY)?;
        let path = || format!("dictionary.mapping_table[{index}]");
        let copy = Mapping {
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
            filename: self.string(mapping.filename_strindex, into, &|| format!("{}.filename_strindex", path()))?,
            attributes: self.attribute_set(&mapping.attribute_indices, into, &path)?,
        };
        let copy = into.mappings.intern(copy);
        Ok(self.mappings.keep(id, copy))
    }

    fn function(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<FunctionId, DecodeError> {
        let wire = self.wire;
        let (id, function) = match find(index, &wire.function_table, "function_table", path)? {
            None => return Ok(FunctionId::ZERO),
            Some((id, element)) => (FunctionId::from_index(id), element),
        };
        if let Some(known) = self.functions.known(id) {
            return Ok(known);
        }
        self.budget.spend(size_of::<Function>() + ENTRY)?;
        let path = |field| move || format!("dictionary.function_table[{index}].{field}");
        let copy = Function {
            name: self.string(function.name_strindex, into, &path("name_strindex"))?,
            system_name: self.string(function.system_name_strindex, into, &path("system_name_strindex"))?,
            filename: self.string(function.filename_strindex, into, &path("filename_strindex"))?,
            start_line: position(function.start_line, &path("start_line"))?,
        };
        let copy = into.functions.intern(copy);
        Ok(self.functions.keep(id, copy))
    }

    pub(super) fn link(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<LinkId, DecodeError> {
        let wire = self.wire;
        let (id, link) = match find(index, &wire.link_table, "link_table", path)? {
            None => return Ok(LinkId::ZERO),
            Some((id, element)) => (LinkId::from_index(id), element),
        };
        if let Some(known) = self.links.known(id) {
            return Ok(known);
        }
        self.budget.spend(size_of::<Link>() + ENTRY)?;
        let path = |field| move || format!("dictionary.link_table[{index}].{field}");
        let copy = Link {
            trace_id: span_part(&link.trace_id, &path("trace_id"))?,
            span_id: span_part(&link.span_id, &path("span_id"))?,
        };
        let copy = into.links.intern(copy);
        Ok(self.links.keep(id, copy))
    }

    /// The set of the attributes at `indices`, a field of the message at `path`.
    pub(super) fn attribute_set(
        &mut self,
        indices: &[i32],
        into: &mut Dictionary,
        path: Path<'_>,
    ) -> Result<AttributeSetId, DecodeError> {
        if indices.is_empty() {
            return Ok(AttributeSetId::ZERO);
        }
        self.budget.spend_on::<AttributeId>(indices.len())?;
        let mut ids = Vec::with_capacity(indices.len());
        for (i, index) in indices.iter().enumerate() {
            ids.push(self.attribute(*index, into, &|| format!("{}.attribute_indices[{i}]", path()))?);
        }
        Ok(into.attribute_set(ids))
    }

    fn attribute(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<AttributeId, DecodeError> {
        let wire = self.wire;
        let (id, attribute) = match find(index, &wire.attribute_table, "attribute_table", path)? {
            None => return Ok(AttributeId::ZERO),
            Some((id, element)) => (AttributeId::from_index(id), element),
        };
        if let Some(known) = self.attributes.known(id) {
            return Ok(known);
        }
        self.budget.spend(size_of::<Attribute>() + ENTRY)?;
        let path = || format!("dictionary.attribute_table[{index}]");
        let value = self.value(attribute.value.as_ref(), 0, &|| format!("{}.value", path()))?;
        if value == Value::Empty {
            return Ok(self.attributes.keep(id, AttributeId::ZERO));
        }
        let copy = Attribute {
            key: self.string(attribute.key_strindex, into, &|| format!("{}.key_strindex", path()))?,
            value,
            unit: self.string(attribute.unit_strindex, into, &|| format!("{}.unit_strindex", path()))?,
        };
        let copy = into.attributes.intern(copy);
        Ok(self.attributes.keep(id, copy))
    }

    fn string(&mut self, index: i32, into: &mut Dictionary, path: Path<'_>) -> Result<StringId, DecodeError> {
        let wire = self.wire;
        let (id, text) = match find(index, &wire.string_table, "string_table", path)? {
            None => return Ok(StringId::ZERO),
            Some((id, element)) => (StringId::from_index(id), element),
        };
        if let Some(known) = self.strings.known(id) {
            return Ok(known);
        }
        self.budget.spend(text.len() + size_of::<Box<str>>() + ENTRY)?;
        let copy = into.strings.intern_str(text);
        Ok(self.strings.keep(id, copy))
    }

    /// A pair of a resource or of a map, its string references resolved.
    pub(super) fn key_value(
        &mut self,
        pair: &KeyValue,
        depth: usize,
        path: Path<'_>,
    ) -> Result<(String, Value), DecodeError> {
        self.budget.spend(size_of::<(String, Value)>())?;
        let key = if pair.key_strindex == 0 {
            self.budget.spend(pair.key.len())?;
            pair.key.clone()
        } else {
            self.referred_text(pair.key_strindex, &|| format!("{}.key_strindex", path()))?
        };
        let value = self.value(pair.value.as_ref(), depth, &|| format!("{}.value", path()))?;
        Ok((key, value))
    }

    fn value(&mut self, value: Option<&AnyValue>, depth: usize, path: Path<'_>) -> Result<Value, DecodeError> {
        if depth > self.depth {
            return Err(DecodeError::OverLimit { what: "levels of lists and maps in a value", limit: self.depth });
        }
        Ok(match value.and_then(|value| value.value.as_ref()) {
            None => Value::Empty,
            Some(AnyKind::StringValue(text)) => {
                self.budget.spend(text.len())?;
                Value::String(text.as_str().into())
            }
            Some(AnyKind::StringValueStrindex(index)) => {
                Value::from(self.referred_text(*index, &|| format!("{}.string_value_strindex", path()))?)
            }
            Some(AnyKind::BoolValue(truth)) => Value::Bool(*truth),
            Some(AnyKind::IntValue(number)) => Value::Int(*number),
            Some(AnyKind::DoubleValue(number)) => Value::Double(Double::new(*number)),
            Some(AnyKind::BytesValue(bytes)) => {
                self.budget.spend(bytes.len())?;
                Value::Bytes(bytes.as_slice().into())
            }
            Some(AnyKind::ArrayValue(list)) => {
                self.budget.spend_on::<Value>(list.values.len())?;
                let values = list.values.iter().enumerate().map(|(i, value)| {
                    self.value(Some(value), depth + 1, &|| format!("{}.array_value.values[{i}]", path()))
                });
                Value::List(values.collect::<Result<_, _>>()?)
            }
            Some(AnyKind::KvlistValue(map)) => {
                let values = map.values.iter().enumerate().map(|(i, pair)| {
                    let path = || format!("{}.kvlist_value.values[{i}]", path());
                    self.key_value(pair, depth + 1, &path).map(|(key, value)| (key.into_boxed_str(), value))
                });
                Value::Map(values.collect::<Result<_, _>>()?)
            }
        })
    }

    fn referred_text(&mut self, index: i32, path: Path<'_>) -> Result<String, DecodeError> {
        let text = find(index, &self.wire.string_table, "string_table", path)?.map_or("", |(_, text)| text.as_str());
        self.budget.spend(text.len())?;
        Ok(text.to_owned())
    }
}

fn check_zero_elements(wire: &ProfilesDictionary) -> Result<(), DecodeError> {
    let no_link = |link: &super::messages::Link| link.trace_id.iter().chain(&link.span_id).all(|byte| *byte == 0);
    let no_value = |value: &Option<AnyValue>| value.as_ref().is_none_or(|value| value.value.is_none());
    let checks = [
        ("string_table", wire.string_table.first().is_none_or(String::is_empty)),
        ("mapping_table", wire.mapping_table.first().is_none_or(|zero| *zero == Default::default())),
        ("function_table", wire.function_table.first().is_none_or(|zero| *zero == Default::default())),
        ("location_table", wire.location_table.first().is_none_or(|zero| *zero == Default::default())),
        ("stack_table", wire.stack_table.first().is_none_or(|zero| *zero == Default::default())),
        ("link_table", wire.link_table.first().is_none_or(no_link)),
        (
            "attribute_table",
            wire.attribute_table
                .first()
                .is_none_or(|zero| zero.key_strindex == 0 && zero.unit_strindex == 0 && no_value(&zero.value)),
        ),
    ];
    match checks.into_iter().find(|(_, is_zero)| !is_zero) {
        None => Ok(()),
        Some((table, _)) => Err(DecodeError::invalid(
            format!("dictionary.{table}[0]"),
            "not the zero value, which index 0 stands for everywhere",
        )),
    }
}

/// The element at `index` with its index; `None` for index 0, "not set".
fn find<'a, T>(
    index: i32,
    table: &'a [T],
    name: &'static str,
    path: Path<'_>,
) -> Result<Option<(u32, &'a T)>, DecodeError> {
    if index == 0 {
        return Ok(None);
    }
    let element = u32::try_from(index).ok().and_then(|index| Some((index, table.get(index as usize)?)));
    element.map(Some).ok_or_else(|| DecodeError::OutOfRange {
        path: path(),
        index: index.into(),
        table: name,
        len: table.len(),
    })
}

/// A line or column, from 1, or 0 for unknown.
fn position(number: i64, path: Path<'_>) -> Result<u32, DecodeError> {
    u32::try_from(number)
        .map_err(|_| DecodeError::invalid(path(), format!("{number} is not a line or column from 0 to {}", u32::MAX)))
}

/// A trace or span id; absent bytes are all zero.
fn span_part<const N: usize>(bytes: &[u8], path: Path<'_>) -> Result<[u8; N], DecodeError> {
    match bytes {
        [] => Ok([0; N]),
        _ => bytes.try_into().map_err(|_| DecodeError::invalid(path(), format!("{} bytes, not {N}", bytes.len()))),
    }
}
