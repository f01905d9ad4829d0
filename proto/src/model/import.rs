//! Copies what is referred to from one dictionary into another.
//!
//! In: ids of the source. Out: ids of the target. Elements are interned in the order in which they are first referred to,
//! children before parents; this order is what "compact" means, and the decoders follow it too. Ids that point beyond
//! their table become "not set".

use super::attribute::AttributeSet;
use super::mapping::BUILD_IDS;
use super::table::{AttributeId, AttributeSetId, FunctionId, Id, LinkId, LocationId, MappingId, StackId, StringId};
use super::{Attribute, Dictionary, Function, Kind, Line, Location, Mapping, Profile, Sample, Stack, ValueType};

/// A copy under way from one dictionary into one other.
#[derive(Debug)]
pub(crate) struct Import<'a> {
    from: &'a Dictionary,
    /// Whether mappings whose build nobody can name become "no mapping".
    needs_builds: bool,
    strings: Memo<StringId>,
    mappings: Memo<MappingId>,
    functions: Memo<FunctionId>,
    locations: Memo<LocationId>,
    stacks: Memo<StackId>,
    attributes: Memo<AttributeId>,
    attribute_sets: Memo<AttributeSetId>,
    links: Memo<LinkId>,
}

impl<'a> Import<'a> {
    /// A copy out of `from`; use it with one target only, or [`Import::forget`] between two.
    pub(crate) fn new(from: &'a Dictionary) -> Self {
        Self {
            from,
            needs_builds: false,
            strings: Memo::new(from.strings.len()),
            mappings: Memo::new(from.mappings.len()),
            functions: Memo::new(from.functions.len()),
            locations: Memo::new(from.locations.len()),
            stacks: Memo::new(from.stacks.len()),
            attributes: Memo::new(from.attributes.len()),
            attribute_sets: Memo::new(from.attribute_sets.len()),
            links: Memo::new(from.links.len()),
        }
    }

    /// The same, where mappings whose build nobody can name become "no mapping": receivers tell files by their builds.
    pub(crate) fn of_known_builds(from: &'a Dictionary) -> Self {
        Self { needs_builds: true, ..Self::new(from) }
    }

    /// Another target follows.
    pub(crate) fn forget(&mut self) {
        self.strings.forget();
        self.mappings.forget();
        self.functions.forget();
        self.locations.forget();
        self.stacks.forget();
        self.attributes.forget();
        self.attribute_sets.forget();
        self.links.forget();
    }

    /// All of `profile` but its samples.
    pub(crate) fn head(&mut self, profile: &Profile, into: &mut Dictionary) -> Profile {
        Profile {
            kind: self.kind(profile.kind, into),
            time_unix_nanos: profile.time_unix_nanos,
            duration_nanos: profile.duration_nanos,
            attributes: self.attribute_set(profile.attributes, into),
            samples: Vec::new(),
        }
    }

    /// A sample.
    pub(crate) fn sample(&mut self, sample: &Sample, into: &mut Dictionary) -> Sample {
        Sample {
            stack: self.stack(sample.stack, into),
            attributes: self.attribute_set(sample.attributes, into),
            link: self.link(sample.link, into),
            value: sample.value,
        }
    }

    /// A kind.
    pub(crate) fn kind(&mut self, kind: Kind, into: &mut Dictionary) -> Kind {
        Kind {
            sample_type: self.value_type(kind.sample_type, into),
            period_type: self.value_type(kind.period_type, into),
            period: kind.period,
        }
    }

    /// A set of attributes.
    pub(crate) fn attribute_set(&mut self, id: AttributeSetId, into: &mut Dictionary) -> AttributeSetId {
        self.attribute_sets.known(id).unwrap_or_else(|| {
            let from = self.from;
            let ids = from.attribute_sets.get(id).map_or(&[][..], AttributeSet::ids);
            let copied: Vec<_> = ids.iter().map(|id| self.attribute(*id, into)).collect();
            let copy = into.attribute_set(copied);
            self.attribute_sets.keep(id, copy)
        })
    }

    fn stack(&mut self, id: StackId, into: &mut Dictionary) -> StackId {
        self.stacks.known(id).unwrap_or_else(|| {
            let from = self.from;
            let locations = from.stacks.get(id).map_or(&[][..], |stack| &stack.locations);
            let locations = locations.iter().map(|location| self.location(*location, into)).collect();
            let copy = into.stacks.intern(Stack { locations });
            self.stacks.keep(id, copy)
        })
    }

    fn location(&mut self, id: LocationId, into: &mut Dictionary) -> LocationId {
        self.locations.known(id).unwrap_or_else(|| {
            let from = self.from;
            let Some(location) = from.locations.get(id) else { return LocationId::ZERO };
            let copy = Location {
                mapping: self.mapping(location.mapping, into),
                address: location.address,
                lines: location.lines.iter().map(|line| self.line(*line, into)).collect(),
                attributes: self.attribute_set(location.attributes, into),
            };
            let copy = into.locations.intern(copy);
            self.locations.keep(id, copy)
        })
    }

    fn line(&mut self, line: Line, into: &mut Dictionary) -> Line {
        Line { function: self.function(line.function, into), ..line }
    }

    fn mapping(&mut self, id: MappingId, into: &mut Dictionary) -> MappingId {
        self.mappings.known(id).unwrap_or_else(|| {
            let from = self.from;
            let Some(mapping) = from.mappings.get(id).copied() else { return MappingId::ZERO };
            let has_build = || from.attributes_of(mapping.attributes).any(|(key, _)| BUILD_IDS.contains(&key));
            if self.needs_builds && !has_build() {
                return self.mappings.keep(id, MappingId::ZERO);
            }
            let copy = Mapping {
                filename: self.string(mapping.filename, into),
                attributes: self.attribute_set(mapping.attributes, into),
                ..mapping
            };
            let copy = into.mappings.intern(copy);
            self.mappings.keep(id, copy)
        })
    }

    fn function(&mut self, id: FunctionId, into: &mut Dictionary) -> FunctionId {
        self.functions.known(id).unwrap_or_else(|| {
            let Some(function) = self.from.functions.get(id).copied() else { return FunctionId::ZERO };
            let copy = Function {
                name: self.string(function.name, into),
                system_name: self.string(function.system_name, into),
                filename: self.string(function.filename, into),
                start_line: function.start_line,
            };
            let copy = into.functions.intern(copy);
            self.functions.keep(id, copy)
        })
    }

    fn attribute(&mut self, id: AttributeId, into: &mut Dictionary) -> AttributeId {
        self.attributes.known(id).unwrap_or_else(|| {
            let from = self.from;
            let Some(attribute) = from.attributes.get(id) else { return AttributeId::ZERO };
            let copy = Attribute {
                key: self.string(attribute.key, into),
                value: attribute.value.clone(),
                unit: self.string(attribute.unit, into),
            };
            let copy = into.attributes.intern(copy);
            self.attributes.keep(id, copy)
        })
    }

    fn link(&mut self, id: LinkId, into: &mut Dictionary) -> LinkId {
        self.links.known(id).unwrap_or_else(|| {
            let copy = into.links.intern(self.from.links.get(id).copied().unwrap_or_default());
            self.links.keep(id, copy)
        })
    }

    fn value_type(&mut self, value_type: ValueType, into: &mut Dictionary) -> ValueType {
        ValueType { kind: self.string(value_type.kind, into), unit: self.string(value_type.unit, into) }
    }

    fn string(&mut self, id: StringId, into: &mut Dictionary) -> StringId {
        self.strings.known(id).unwrap_or_else(|| {
            let copy = into.strings.intern_str(self.from.strings.text(id));
            self.strings.keep(id, copy)
        })
    }
}

/// For each index of a source table, the id it has in the target, once it has one.
///
/// Serves several targets one after another: [`Memo::forget`] costs nothing however long the table is.
#[derive(Debug)]
pub(crate) struct Memo<I> {
    target: u32,
    ids: Vec<(u32, I)>,
}

impl<I: Id> Memo<I> {
    /// Nothing known of a table of `len` elements.
    pub(crate) fn new(len: usize) -> Self {
        Self { target: 1, ids: vec![(0, I::from_index(0)); len] }
    }

    /// Nothing known any more: another target follows.
    pub(crate) fn forget(&mut self) {
        self.target += 1;
    }

    /// What `id` became, if it was copied.
    pub(crate) fn known(&self, id: I) -> Option<I> {
        self.ids.get(id.index() as usize).filter(|(target, _)| *target == self.target).map(|(_, copy)| *copy)
    }

    /// Notes that `id` became `copy`, which is given back.
    pub(crate) fn keep(&mut self, id: I, copy: I) -> I {
        if let Some(entry) = self.ids.get_mut(id.index() as usize) {
            *entry = (self.target, copy);
        }
        copy
    }
}
