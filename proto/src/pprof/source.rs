//! The tables of a pprof file that is being decoded, and what of them already stands in the set under way.
//!
//! In: ids and string indices found in the file. Out: ids of the set's dictionary, interned at the first reference in the
//! order of [`crate::model`]'s compact form. Every copy is taken off the budget.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::messages::{self as wire, Label};
use super::{labels, names};
use crate::error::DecodeError;
use crate::limits::{Budget, Limits};
use crate::model::import::Memo;
use crate::model::{
    Attribute, AttributeId, AttributeSetId, Dictionary, Function, FunctionId, Id, Line, LinkId, Location, LocationId,
    Mapping, MappingId, Stack, StackId, StringId, Value, ValueType,
};

/// Where a reference stands, for errors; called only when there is one.
type Path<'a> = &'a dyn Fn() -> String;

/// What an element of an interned table costs beyond its own size: its hash, its slot in the index.
const ENTRY: usize = 24;

/// A file's tables.
pub(super) struct Source<'a> {
    file: &'a wire::Profile,
    pub(super) budget: Budget,
    mapping_positions: HashMap<u64, u32>,
    function_positions: HashMap<u64, u32>,
    location_positions: HashMap<u64, u32>,
    strings: Memo<StringId>,
    mappings: Memo<MappingId>,
    functions: Memo<FunctionId>,
    locations: Memo<LocationId>,
}

impl<'a> Source<'a> {
    /// Indexes the tables of `file` by id.
    pub(super) fn new(file: &'a wire::Profile, limits: &Limits) -> Result<Self, DecodeError> {
        if file.string_table.first().is_some_and(|zero| !zero.is_empty()) {
            return Err(DecodeError::invalid("string_table[0]", "not \"\", which index 0 stands for everywhere"));
        }
        let mut budget = Budget::new(limits);
        let elements = file.mapping.len() + file.function.len() + file.location.len();
        budget.spend_on::<[u64; 4]>(elements)?;
        budget.spend_on::<u64>(file.string_table.len())?;
        Ok(Self {
            file,
            budget,
            mapping_positions: positions("mapping", file.mapping.iter().map(|mapping| mapping.id))?,
            function_positions: positions("function", file.function.iter().map(|function| function.id))?,
            location_positions: positions("location", file.location.iter().map(|location| location.id))?,
            strings: Memo::new(file.string_table.len()),
            mappings: Memo::new(file.mapping.len()),
            functions: Memo::new(file.function.len()),
            locations: Memo::new(file.location.len()),
        })
    }

    pub(super) fn value_type(
        &mut self,
        value_type: &wire::ValueType,
        into: &mut Dictionary,
        path: Path<'_>,
    ) -> Result<ValueType, DecodeError> {
        Ok(ValueType {
            kind: self.string(value_type.r#type, into, &|| format!("{}.type", path()))?,
            unit: self.string(value_type.unit, into, &|| format!("{}.unit", path()))?,
        })
    }

    /// The names of the sample types; `""` for a reference that points to nothing.
    pub(super) fn type_names(&self, types: &[wire::ValueType]) -> Vec<&'a str> {
        let strings = &self.file.string_table;
        let name = |index| usize::try_from(index).ok().and_then(|i| strings.get(i)).map_or("", String::as_str);
        types.iter().map(|value_type| name(value_type.r#type)).collect()
    }

    pub(super) fn stack(
        &mut self,
        location_ids: &[u64],
        into: &mut Dictionary,
        path: Path<'_>,
    ) -> Result<StackId, DecodeError> {
        self.budget.spend_on::<LocationId>(location_ids.len())?;
        self.budget.spend(size_of::<Stack>() + ENTRY)?;
        let mut locations = Vec::with_capacity(location_ids.len());
        for (i, id) in location_ids.iter().enumerate() {
            locations.push(self.location(*id, into, &|| format!("{}.location_id[{i}]", path()))?);
        }
        Ok(into.stacks.intern(Stack { locations: locations.into() }))
    }

    fn location(&mut self, id: u64, into: &mut Dictionary, path: Path<'_>) -> Result<LocationId, DecodeError> {
        let Some(position) = position(id, &self.location_positions, "location", path)? else {
            return Ok(LocationId::ZERO);
        };
        let (location, known) = (&self.file.location[position as usize], LocationId::from_index(position));
        if let Some(copy) = self.locations.known(known) {
            return Ok(copy);
        }
        self.budget.spend_on::<Line>(location.line.len())?;
        self.budget.spend(size_of::<Location>() + ENTRY)?;
        let path = || format!("location[{position}]");
        let mapping = self.mapping(location.mapping_id, into, &|| format!("{}.mapping_id", path()))?;
        let mut lines = Vec::with_capacity(location.line.len());
        for (i, line) in location.line.iter().enumerate() {
            let path = || format!("{}.line[{i}]", path());
            lines.push(Line {
                function: self.function(line.function_id, into, &|| format!("{}.function_id", path()))?,
                line: line_number(line.line, &|| format!("{}.line", path()))?,
                column: line_number(line.column, &|| format!("{}.column", path()))?,
            });
        }
        let folded = location.is_folded.then(|| into.attribute(names::IS_FOLDED, true));
        let attributes = into.attribute_set(folded);
        let copy = Location { mapping, address: location.address, lines: lines.into(), attributes };
        let copy = into.locations.intern(copy);
        Ok(self.locations.keep(known, copy))
    }

    fn mapping(&mut self, id: u64, into: &mut Dictionary, path: Path<'_>) -> Result<MappingId, DecodeError> {
        let Some(position) = position(id, &self.mapping_positions, "mapping", path)? else {
            return Ok(MappingId::ZERO);
        };
        let (mapping, known) = (&self.file.mapping[position as usize], MappingId::from_index(position));
        if let Some(copy) = self.mappings.known(known) {
            return Ok(copy);
        }
        self.budget.spend(size_of::<Mapping>() + ENTRY)?;
        let path = |field| move || format!("mapping[{position}].{field}");
        let copy = Mapping {
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
            filename: self.string(mapping.filename, into, &path("filename"))?,
            attributes: {
                let build_id = self.owned_text(mapping.build_id, &path("build_id"))?;
                self.mapping_attributes(mapping, build_id, into)?
            },
        };
        let copy = into.mappings.intern(copy);
        Ok(self.mappings.keep(known, copy))
    }

    /// `has_functions` is always noted, so that the encoder knows that the flags are the file's own.
    fn mapping_attributes(
        &mut self,
        mapping: &wire::Mapping,
        build_id: String,
        into: &mut Dictionary,
    ) -> Result<AttributeSetId, DecodeError> {
        self.budget.spend_on::<(Attribute, AttributeId)>(5)?;
        let mut ids = vec![into.attribute(names::HAS_FUNCTIONS, mapping.has_functions)];
        let flags = [
            (names::HAS_FILENAMES, mapping.has_filenames),
            (names::HAS_LINE_NUMBERS, mapping.has_line_numbers),
            (names::HAS_INLINE_FRAMES, mapping.has_inline_frames),
        ];
        ids.extend(flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| into.attribute(name, true)));
        if !build_id.is_empty() {
            // A GNU build id is hexadecimal; Go's has other letters and slashes.
            let gnu = build_id.bytes().all(|digit| digit.is_ascii_hexdigit());
            ids.push(into.attribute(if gnu { names::BUILD_ID_GNU } else { names::BUILD_ID_GO }, build_id));
        }
        Ok(into.attribute_set(ids))
    }

    fn function(&mut self, id: u64, into: &mut Dictionary, path: Path<'_>) -> Result<FunctionId, DecodeError> {
        let Some(position) = position(id, &self.function_positions, "function", path)? else {
            return Ok(FunctionId::ZERO);
        };
        let (function, known) = (&self.file.function[position as usize], FunctionId::from_index(position));
        if let Some(copy) = self.functions.known(known) {
            return Ok(copy);
        }
        self.budget.spend(size_of::<Function>() + ENTRY)?;
        let path = |field| move || format!("function[{position}].{field}");
        let name = self.string(function.name, into, &path("name"))?;
        let system_name = self.string(function.system_name, into, &path("system_name"))?;
        let copy = Function {
            name,
            system_name: if system_name == name { StringId::ZERO } else { system_name },
            filename: self.string(function.filename, into, &path("filename"))?,
            start_line: line_number(function.start_line, &path("start_line"))?,
        };
        let copy = into.functions.intern(copy);
        Ok(self.functions.keep(known, copy))
    }

    /// The attributes and the link that a sample's labels stand for; a key that stands several times has a list.
    pub(super) fn labels(
        &mut self,
        labels: &[Label],
        into: &mut Dictionary,
        path: Path<'_>,
    ) -> Result<(AttributeSetId, LinkId), DecodeError> {
        if labels.is_empty() {
            return Ok((AttributeSetId::ZERO, LinkId::ZERO));
        }
        self.budget.spend(labels.len().saturating_mul(2 * size_of::<Attribute>() + ENTRY))?;
        let mut by_key: IndexMap<&str, Vec<(usize, &Label)>> = IndexMap::new();
        for (i, label) in labels.iter().enumerate() {
            let key = text(label.key, self.file, &|| format!("{}.label[{i}].key", path()))?;
            by_key.entry(key).or_default().push((i, label));
        }
        let link = labels::decode_link(|key| match by_key.get(key)?.as_slice() {
            [(_, label)] if label.str != 0 => text(label.str, self.file, path).ok(),
            _ => None,
        });
        let mut ids = Vec::with_capacity(by_key.len());
        for (key, labels) in &by_key {
            if link.is_none() || !labels::is_link_key(key) {
                let attribute = self.attribute(labels, into, path)?;
                ids.push(into.attributes.intern(attribute));
            }
        }
        Ok((into.attribute_set(ids), link.map_or(LinkId::ZERO, |link| into.links.intern(link))))
    }

    /// The attribute of labels of one key, each with its position; the first unit holds.
    fn attribute(
        &mut self,
        labels: &[(usize, &Label)],
        into: &mut Dictionary,
        path: Path<'_>,
    ) -> Result<Attribute, DecodeError> {
        let values = labels.iter().map(|(i, label)| self.label_value(label, &|| format!("{}.label[{i}]", path())));
        let mut values = values.collect::<Result<Vec<_>, _>>()?;
        let value = if values.len() == 1 { values.remove(0) } else { Value::List(values.into()) };
        let Some(&(i, first)) = labels.first() else { return Ok(Attribute::default()) };
        // Of zero, the key that stands for a unit is none.
        let num_unit = if first.num == 0 && first.num_unit == first.key { 0 } else { first.num_unit };
        Ok(Attribute {
            key: self.string(first.key, into, &|| format!("{}.label[{i}].key", path()))?,
            value,
            unit: self.string(num_unit, into, &|| format!("{}.label[{i}].num_unit", path()))?,
        })
    }

    fn label_value(&mut self, label: &Label, path: Path<'_>) -> Result<Value, DecodeError> {
        match label.str {
            0 => Ok(Value::Int(label.num)),
            index => Ok(Value::from(self.owned_text(index, &|| format!("{}.str", path()))?)),
        }
    }

    /// A copy of a string of the file.
    pub(super) fn owned_text(&mut self, index: i64, path: Path<'_>) -> Result<String, DecodeError> {
        let text = text(index, self.file, path)?;
        self.budget.spend(text.len())?;
        Ok(text.to_owned())
    }

    fn string(&mut self, index: i64, into: &mut Dictionary, path: Path<'_>) -> Result<StringId, DecodeError> {
        let text = text(index, self.file, path)?;
        let known = StringId::from_index(u32::try_from(index).unwrap_or(0));
        if let Some(copy) = self.strings.known(known) {
            return Ok(copy);
        }
        self.budget.spend(text.len() + size_of::<Box<str>>() + ENTRY)?;
        let copy = into.strings.intern_str(text);
        Ok(self.strings.keep(known, copy))
    }
}

fn positions(table: &str, ids: impl Iterator<Item = u64>) -> Result<HashMap<u64, u32>, DecodeError> {
    let mut positions = HashMap::new();
    for (position, id) in (0..).zip(ids) {
        if id == 0 || positions.insert(id, position).is_some() {
            let what = if id == 0 { "0, which stands for \"none\"".into() } else { format!("{id}, a second time") };
            return Err(DecodeError::invalid(format!("{table}[{position}].id"), what));
        }
    }
    Ok(positions)
}

/// The position of the element with `id`; `None` for id 0, "none".
fn position(id: u64, positions: &HashMap<u64, u32>, table: &str, path: Path<'_>) -> Result<Option<u32>, DecodeError> {
    if id == 0 {
        return Ok(None);
    }
    let position = positions.get(&id).copied();
    position.map(Some).ok_or_else(|| DecodeError::invalid(path(), format!("{id} is the id of no {table}")))
}

fn text<'a>(index: i64, file: &'a wire::Profile, path: Path<'_>) -> Result<&'a str, DecodeError> {
    if index == 0 {
        return Ok("");
    }
    let text = usize::try_from(index).ok().and_then(|index| file.string_table.get(index));
    text.map(String::as_str).ok_or_else(|| DecodeError::OutOfRange {
        path: path(),
        index,
        table: "string_table",
        len: file.string_table.len(),
    })
}

/// A line or column, from 1, or 0 for unknown.
fn line_number(number: i64, path: Path<'_>) -> Result<u32, DecodeError> {
    u32::try_from(number)
        .map_err(|_| DecodeError::invalid(path(), format!("{number} is not a line or column from 0 to {}", u32::MAX)))
}
