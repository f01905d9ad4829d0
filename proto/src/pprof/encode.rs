//! From the model to a pprof file.
//!
//! In: a [`ProfileSet`]. Out: bytes, with gzip or without; equal sets give equal bytes. Ids in the file are the positions
//! of their elements in it, from 1, for some readers (Parca) refuse others.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::{IndexMap, IndexSet};
use prost::Message;

use super::{default_sample_type, labels, messages as wire, names};
use crate::hash::State;
use crate::model::compact::Identity;
use crate::model::{
    AttributeSetId, Dictionary, Function, Id, Kind, Location, Mapping, MappingId, Profile, ProfileSet, Sample,
    StringId, Value, ValueType,
};

/// The gzip file of the first capture in `set`: of all profiles with the window, period type and period of the first one.
///
/// Use [`captures`] where a set may hold several, or more than 64 types. On-CPU profiles ([`Kind::is_cpu`]) are written as the two types that
/// Go writes, `samples`/`count` and `cpu`/`nanoseconds`.
#[must_use]
pub fn encode(set: &ProfileSet) -> Vec<u8> {
    encode_compact_gzip(&first_capture(set), |key| key.into())
}

/// [`encode`] without gzip.
#[must_use]
pub fn encode_uncompressed(set: &ProfileSet) -> Vec<u8> {
    encode_compact(&first_capture(set), |key| key.into())
}

/// What of `set` is in one file.
fn first_capture(set: &ProfileSet) -> ProfileSet {
    let first = set.profiles.first().map(window);
    set.with_profiles(set.profiles.iter().filter(|profile| Some(window(profile)) == first).take(MOST_TYPES))
}

/// [`encode_uncompressed`] of a set that is one capture ([`is_capture`]) and compact, as the parts of a
/// [`split`](crate::split::split_by) are. Labels have the names that `rename` makes of their keys; names of a link are a link's.
#[must_use]
pub fn encode_compact(set: &ProfileSet, rename: fn(&str) -> Cow<'_, str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a `Vec` cannot fail.
    _ = Writer::new(set, rename).write(&mut bytes);
    bytes
}

/// [`encode_compact`] with gzip, without the plain form in memory.
#[must_use]
pub fn encode_compact_gzip(set: &ProfileSet, rename: fn(&str) -> Cow<'_, str>) -> Vec<u8> {
    gzip(|to| Writer::new(set, rename).write(to))
}

/// How many sample types a file has at most; with them grows every sample, and no producer knows more than four.
const MOST_TYPES: usize = 64;

/// `set` divided so that each part is one file of [`encode`], in the order of the profiles; together they hold all of it.
#[must_use]
pub fn captures(set: &ProfileSet) -> Vec<ProfileSet> {
    let mut groups: IndexMap<(Window, usize), Vec<&Profile>> = IndexMap::new();
    let mut counts: HashMap<Window, usize> = HashMap::new();
    for profile in &set.profiles {
        let count = counts.entry(window(profile)).or_default();
        groups.entry((window(profile), *count / MOST_TYPES)).or_default().push(profile);
        *count += 1;
    }
    groups.into_values().map(|group| set.with_profiles(group)).collect()
}

/// Whether [`encode`] makes one file of all of `set`.
#[must_use]
pub fn is_capture(set: &ProfileSet) -> bool {
    set.profiles.len() <= MOST_TYPES && set.profiles.iter().all(|profile| window(profile) == window(&set.profiles[0]))
}

/// Whether two profiles of a set stand in one file.
pub(crate) fn is_together(one: &Profile, other: &Profile) -> bool {
    window(one) == window(other)
}

/// What is the same for all profiles of a file: start, length, period type, period.
type Window = (u64, u64, ValueType, i64);

fn window(profile: &Profile) -> Window {
    (profile.time_unix_nanos, profile.duration_nanos, profile.kind.period_type, profile.kind.period)
}

/// The gzip file of one that was written without.
#[must_use]
pub fn compress(bytes: &[u8]) -> Vec<u8> {
    gzip(|to| to.write_all(bytes))
}

/// The gzip file of what `write` writes.
fn gzip(write: impl FnOnce(&mut BufWriter<GzEncoder<Vec<u8>>>) -> io::Result<()>) -> Vec<u8> {
    // Elements are a few bytes each, and the encoder would go to work for each.
    let mut to = BufWriter::with_capacity(1 << 16, GzEncoder::new(Vec::new(), Compression::default()));
    let written = write(&mut to).and_then(|()| Ok(to.into_inner()?)).and_then(GzEncoder::finish);
    // Writing to a `Vec` cannot fail.
    written.unwrap_or_default()
}

/// One column of a file: a profile, or the nanoseconds that follow from the on-CPU samples of one.
struct Column<'a> {
    profile: &'a Profile,
    value_type: ValueType,
    factor: i64,
}

/// A file under construction from one compact capture.
struct Writer<'a> {
    set: &'a ProfileSet,
    dictionary: &'a Dictionary,
    /// The texts in use so far, by their index.
    strings: IndexSet<Box<str>, State>,
    /// The name of a label, from its key.
    rename: fn(&str) -> Cow<'_, str>,
    /// The mapping that stands first in the file, by its id. Readers take the first for the program itself (pprof's profile.proto, `mapping`).
    program: u32,
}

impl<'a> Writer<'a> {
    fn new(set: &'a ProfileSet, rename: fn(&str) -> Cow<'_, str>) -> Self {
        let program = set.dictionary.mappings.entries().skip(1).find(|(_, mapping)| is_program(mapping, set));
        let program = program.map_or(1, |(id, _)| id.index());
        Self { set, dictionary: &set.dictionary, strings: IndexSet::from_iter(["".into()]), rename, program }
    }

    /// Writes the file, its fields in the order of their numbers. Samples and texts are most of it: each is written as it is made, so that no two are in memory
    /// beside the set.
    fn write(mut self, to: &mut impl Write) -> io::Result<()> {
        let mut field = |fields: wire::Profile| to.write_all(&fields.encode_to_vec());
        let columns = columns(self.set);
        let sample_type = columns.iter().map(|column| self.value_type(column.value_type)).collect();
        field(wire::Profile { sample_type, ..wire::Profile::default() })?;
        self.samples(&columns, |sample| field(wire::Profile { sample: vec![sample], ..wire::Profile::default() }))?;
        let (mapping, location, function) = (self.mappings(), self.locations(), self.functions());
        let others = self.others(&columns);
        field(wire::Profile { mapping, location, function, ..wire::Profile::default() })?;
        for text in self.strings {
            field(wire::Profile { string_table: vec![text.into_string()], ..wire::Profile::default() })?;
        }
        field(others)
    }

    /// All that stands behind the texts.
    fn others(&mut self, columns: &[Column<'_>]) -> wire::Profile {
        let kind = self.set.profiles.first().map(|profile| profile.kind).unwrap_or_default();
        let mut file = wire::Profile {
            period_type: (kind != Kind::default()).then(|| self.value_type(kind.period_type)),
            period: kind.period,
            comment: self.comments(),
            drop_frames: self.profile_text(names::DROP_FRAMES),
            keep_frames: self.profile_text(names::KEEP_FRAMES),
            doc_url: self.profile_text(names::DOC_URL),
            default_sample_type: self.default_sample_type(columns),
            ..wire::Profile::default()
        };
        if let Some(profile) = self.set.profiles.first() {
            file.time_nanos = i64::try_from(profile.time_unix_nanos).unwrap_or(i64::MAX);
            file.duration_nanos = i64::try_from(profile.duration_nanos).unwrap_or(i64::MAX);
        }
        file
    }

    /// One sample per stack, attributes and link, with the values of all columns; 0 where a profile has no such sample.
    fn samples(
        &mut self,
        columns: &[Column<'_>],
        mut write: impl FnMut(wire::Sample) -> io::Result<()>,
    ) -> io::Result<()> {
        let (rows, values) = rows(columns);
        let (dictionary, rename) = (self.dictionary, self.rename);
        for ((stack, attributes, link), value) in rows.into_iter().zip(values.chunks_exact(columns.len().max(1))) {
            let locations = dictionary.stacks.get(stack).map_or(&[][..], |stack| &stack.locations);
            let sample = Sample { stack, attributes, link, value: 0 };
            write(wire::Sample {
                location_id: locations.iter().map(|id| element(*id, dictionary.locations.len())).collect(),
                value: value.to_vec(),
                label: labels::encode(&sample, dictionary, rename, &mut |text| self.text(text)),
            })?;
        }
        Ok(())
    }

    fn mappings(&mut self) -> Vec<wire::Mapping> {
        let dictionary = self.dictionary;
        let mut mappings: Vec<_> =
            dictionary.mappings.entries().skip(1).map(|(id, mapping)| self.mapping(id, mapping)).collect();
        for location in dictionary.locations.iter() {
            let Some(position) = (location.mapping.index() as usize).checked_sub(1) else { continue };
            if !has_flags(dictionary.mappings.get(location.mapping), dictionary) {
                note_symbols(&mut mappings[position], location, dictionary);
            }
        }
        mappings.sort_unstable_by_key(|mapping| mapping.id);
        mappings
    }

    /// The id of a mapping in the file: the program's first, the others in their order.
    fn mapping_id(&self, mapping: MappingId) -> u64 {
        match mapping.index() {
            index if index == self.program => 1,
            index if (1..self.program).contains(&index) => u64::from(index) + 1,
            index => index.into(),
        }
    }

    fn mapping(&mut self, mapping_id: MappingId, mapping: &Mapping) -> wire::Mapping {
        let dictionary = self.dictionary;
        let build_id = [names::BUILD_ID_GNU, names::BUILD_ID_GO, names::BUILD_ID_HTLHASH];
        let build_id = build_id.iter().find_map(|name| dictionary.value_of(mapping.attributes, name)?.as_str());
        let flag = |name| is_true(mapping.attributes, name, dictionary);
        wire::Mapping {
            id: self.mapping_id(mapping_id),
            memory_start: mapping.start,
            memory_limit: mapping.limit,
            file_offset: mapping.offset,
            filename: self.string(mapping.filename),
            build_id: self.text(build_id.unwrap_or("")),
            has_functions: flag(names::HAS_FUNCTIONS),
            has_filenames: flag(names::HAS_FILENAMES),
            has_line_numbers: flag(names::HAS_LINE_NUMBERS),
            has_inline_frames: flag(names::HAS_INLINE_FRAMES),
        }
    }

    fn locations(&self) -> Vec<wire::Location> {
        let stacks = self.dictionary.stacks.iter();
        let unknown = stacks.flat_map(|stack| &stack.locations).any(|id| id.is_zero());
        zero_last(self.dictionary.locations.entries(), unknown)
            .map(|(id, location)| self.location(id, location))
            .collect()
    }

    fn functions(&mut self) -> Vec<wire::Function> {
        let locations = self.dictionary.locations.iter();
        let unknown = locations.flat_map(|location| &location.lines).any(|line| line.function.is_zero());
        zero_last(self.dictionary.functions.entries(), unknown)
            .map(|(id, function)| self.function(id, function))
            .collect()
    }

    fn location(&self, location_id: impl Id, location: &Location) -> wire::Location {
        let line = |line: &crate::model::Line| wire::Line {
            function_id: element(line.function, self.dictionary.functions.len()),
            line: line.line.into(),
            column: line.column.into(),
        };
        wire::Location {
            id: element(location_id, self.dictionary.locations.len()),
            mapping_id: self.mapping_id(location.mapping),
            address: location.address,
            line: location.lines.iter().map(line).collect(),
            is_folded: is_true(location.attributes, names::IS_FOLDED, self.dictionary),
        }
    }

    fn function(&mut self, function_id: impl Id, function: &Function) -> wire::Function {
        // In pprof the two are equal where the linker's name is no other; ours is then not set. Neither is pprof's where the name is of Rust or C++: `go tool pprof`
        // takes what is in brackets out of one that is equal to the linker's (internal/symbolizer, `looksLikeDemangledCPlusPlus`).
        let is_bare = function.system_name.is_zero() && !self.dictionary.strings.text(function.name).contains("::");
        let system_name = if is_bare { function.name } else { function.system_name };
        wire::Function {
            id: element(function_id, self.dictionary.functions.len()),
            name: self.string(function.name),
            system_name: self.string(system_name),
            filename: self.string(function.filename),
            start_line: function.start_line.into(),
        }
    }

    fn value_type(&mut self, value_type: ValueType) -> wire::ValueType {
        wire::ValueType { r#type: self.string(value_type.kind), unit: self.string(value_type.unit) }
    }

    /// The comments that came with the profiles, then what pprof has no other place for: resource and counts of loss.
    fn comments(&mut self) -> Vec<i64> {
        let mut comments = IndexSet::new();
        for profile in &self.set.profiles {
            match self.dictionary.value_of(profile.attributes, names::COMMENT) {
                Some(Value::List(texts)) => comments.extend(texts.iter().map(Value::to_string)),
                Some(text) => _ = comments.insert(text.to_string()),
                None => {}
            }
        }
        comments.extend(self.set.resource.attributes().iter().map(|(key, value)| format!("{key}={value}")));
        for profile in &self.set.profiles {
            let ours =
                self.dictionary.attributes_of(profile.attributes).filter(|(key, _)| key.starts_with("profiler."));
            let ours = ours.filter(|(key, _)| *key != names::DEFAULT_SAMPLE_TYPE);
            comments.extend(ours.map(|(key, value)| format!("{key}={value}")));
        }
        comments.iter().map(|comment| self.text(comment)).collect()
    }

    fn default_sample_type(&mut self, columns: &[Column<'_>]) -> i64 {
        let types: Vec<_> = columns.iter().map(|column| self.dictionary.strings.text(column.value_type.kind)).collect();
        let said = self.first_of_profiles(names::DEFAULT_SAMPLE_TYPE);
        self.text(said.unwrap_or_else(|| default_sample_type(&types)))
    }

    fn profile_text(&mut self, name: &str) -> i64 {
        let text = self.first_of_profiles(name).unwrap_or("");
        self.text(text)
    }

    /// The text of attribute `name` of the first profile that has it.
    fn first_of_profiles(&self, name: &str) -> Option<&'a str> {
        let profiles = self.set.profiles.iter();
        profiles.filter_map(|profile| self.dictionary.value_of(profile.attributes, name)).find_map(Value::as_str)
    }

    fn string(&mut self, id: StringId) -> i64 {
        self.text(self.dictionary.strings.text(id))
    }

    fn text(&mut self, text: &str) -> i64 {
        let index = self.strings.get_index_of(text).unwrap_or_else(|| self.strings.insert_full(text.into()).0);
        i64::try_from(index).unwrap_or(0)
    }
}

/// Whether a mapping is of the executable that the resource names.
fn is_program(mapping: &Mapping, set: &ProfileSet) -> bool {
    let program = set.resource.get("process.executable.name").and_then(Value::as_str);
    let file = set.dictionary.strings.text(mapping.filename).rsplit('/').next();
    file.is_some() && file == program
}

/// The rows of a table, the zero value at the end if it is `wanted`.
fn zero_last<T>(mut rows: impl Iterator<Item = T>, wanted: bool) -> impl Iterator<Item = T> {
    let zero = rows.next().filter(|_| wanted);
    rows.chain(zero)
}

/// The columns of a capture. Nanoseconds follow on-CPU samples, but where a profile of the set already holds them.
fn columns(set: &ProfileSet) -> Vec<Column<'_>> {
    let has_nanos = set.profiles.iter().any(|profile| profile.kind.sample_type == profile.kind.period_type);
    let mut columns = Vec::new();
    for profile in &set.profiles {
        let kind = profile.kind;
        columns.push(Column { profile, value_type: kind.sample_type, factor: 1 });
        if kind.is_cpu(&set.dictionary) && !has_nanos {
            columns.push(Column { profile, value_type: kind.period_type, factor: kind.period });
        }
    }
    columns
}

/// What samples are of, each once, and row by row the values of all columns.
fn rows(columns: &[Column<'_>]) -> (IndexSet<Identity, State>, Vec<i64>) {
    let (mut rows, mut values) = (IndexSet::<Identity, State>::default(), Vec::new());
    for (i, column) in columns.iter().enumerate() {
        for sample in &column.profile.samples {
            let (row, is_new) = rows.insert_full((sample.stack, sample.attributes, sample.link));
            if is_new {
                values.resize(values.len() + columns.len(), 0);
            }
            values[row * columns.len() + i] = sample.value.saturating_mul(column.factor);
        }
    }
    (rows, values)
}

/// Whether something said of `mapping` which symbols it has.
fn has_flags(mapping: Option<&Mapping>, dictionary: &Dictionary) -> bool {
    mapping.is_some_and(|mapping| dictionary.value_of(mapping.attributes, names::HAS_FUNCTIONS).is_some())
}

/// Sets the flags that say which symbols `location` has, so that a viewer does not look for them again.
fn note_symbols(mapping: &mut wire::Mapping, location: &Location, dictionary: &Dictionary) {
    let function = |line: &crate::model::Line| dictionary.functions.get(line.function);
    mapping.has_functions |= !location.lines.is_empty();
    mapping.has_filenames |= location.lines.iter().filter_map(function).any(|function| !function.filename.is_zero());
    mapping.has_line_numbers |= location.lines.iter().any(|line| line.line != 0);
    mapping.has_inline_frames |= location.lines.len() > 1;
}

fn is_true(set: AttributeSetId, name: &str, dictionary: &Dictionary) -> bool {
    dictionary.value_of(set, name) == Some(&Value::Bool(true))
}

/// The id of a location or function in a file, from the length of its table. Readers refuse a reference to none of them,
/// so that the unknown one is an element too, where it is in use.
fn element(id: impl Id, len: usize) -> u64 {
    if id.index() == 0 { len as u64 } else { id.index().into() }
}
