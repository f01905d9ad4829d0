//! Whether a set is compact already, which spares making it so: a copy of all that it has.
//!
//! In: a set. Out: whether its dictionary holds just what its profiles refer to, in the order in which [`Import`](super::import::Import) comes by it. The walk is
//! that copy's, without the copy.

use std::hash::Hash;

use super::attribute::AttributeSet;
use super::compact::Identity;
use super::table::{
    AttributeId, AttributeSetId, FunctionId, Id, LinkId, LocationId, MappingId, StackId, StringId, Table,
};
use super::{Attribute, Dictionary, Kind, Profile, ProfileSet, Sample, Stack, ValueType};
use crate::hash::Set;

/// Whether the compact form of `set` is that set.
pub(super) fn is_compact(set: &ProfileSet) -> bool {
    let mut walk = Walk::of(&set.dictionary);
    set.profiles.iter().all(|profile| walk.profile(profile).is_some()) && walk.is_through()
}

/// How far a walk has come: the elements of each table before these have been met.
struct Walk<'a> {
    dictionary: &'a Dictionary,
    strings: u32,
    mappings: u32,
    functions: u32,
    locations: u32,
    stacks: u32,
    attributes: u32,
    attribute_sets: u32,
    links: u32,
}

/// Meets `id`: `Some(true)` for the first time, `None` where another one should have been met first.
fn meet<I: Id>(next: &mut u32, id: I) -> Option<bool> {
    let is_new = id.index() == *next;
    *next += u32::from(is_new);
    (id.index() < *next).then_some(is_new)
}

impl<'a> Walk<'a> {
    /// Zero values are there before anything is met.
    fn of(dictionary: &'a Dictionary) -> Self {
        Self {
            dictionary,
            strings: 1,
            mappings: 1,
            functions: 1,
            locations: 1,
            stacks: 1,
            attributes: 1,
            attribute_sets: 1,
            links: 1,
        }
    }

    /// Whether all there is has been met.
    fn is_through(&self) -> bool {
        fn is_met<T: Hash + Eq + Default, I: Id>(table: &Table<T, I>, next: u32) -> bool {
            table.len() == next as usize
        }
        let Dictionary { strings, mappings, functions, locations, stacks, attributes, attribute_sets, links, .. } =
            self.dictionary;
        strings.len() == self.strings as usize
            && is_met(mappings, self.mappings)
            && is_met(functions, self.functions)
            && is_met(locations, self.locations)
            && is_met(stacks, self.stacks)
            && is_met(attributes, self.attributes)
            && is_met(attribute_sets, self.attribute_sets)
            && is_met(links, self.links)
    }

    fn profile(&mut self, profile: &Profile) -> Option<()> {
        self.kind(profile.kind)?;
        self.attribute_set(profile.attributes)?;
        let mut met: Set<Identity> = Set::default();
        met.reserve(profile.samples.len());
        profile.samples.iter().try_for_each(|sample| {
            met.insert((sample.stack, sample.attributes, sample.link)).then_some(())?;
            self.sample(sample)
        })
    }

    fn kind(&mut self, kind: Kind) -> Option<()> {
        self.value_type(kind.sample_type)?;
        self.value_type(kind.period_type)
    }

    fn value_type(&mut self, value_type: ValueType) -> Option<()> {
        self.string(value_type.kind)?;
        self.string(value_type.unit)
    }

    fn sample(&mut self, sample: &Sample) -> Option<()> {
        self.stack(sample.stack)?;
        self.attribute_set(sample.attributes)?;
        self.link(sample.link)
    }

    fn stack(&mut self, id: StackId) -> Option<()> {
        if meet(&mut self.stacks, id)? {
            let Stack { locations } = self.dictionary.stacks.get(id)?;
            locations.iter().try_for_each(|location| self.location(*location))?;
        }
        Some(())
    }

    fn location(&mut self, id: LocationId) -> Option<()> {
        if meet(&mut self.locations, id)? {
            let location = self.dictionary.locations.get(id)?;
            self.mapping(location.mapping)?;
            location.lines.iter().try_for_each(|line| self.function(line.function))?;
            self.attribute_set(location.attributes)?;
        }
        Some(())
    }

    fn mapping(&mut self, id: MappingId) -> Option<()> {
        if meet(&mut self.mappings, id)? {
            let mapping = self.dictionary.mappings.get(id)?;
            self.string(mapping.filename)?;
            self.attribute_set(mapping.attributes)?;
        }
        Some(())
    }

    fn function(&mut self, id: FunctionId) -> Option<()> {
        if meet(&mut self.functions, id)? {
            let function = self.dictionary.functions.get(id)?;
            self.string(function.name)?;
            self.string(function.system_name)?;
            self.string(function.filename)?;
        }
        Some(())
    }

    fn attribute_set(&mut self, id: AttributeSetId) -> Option<()> {
        if meet(&mut self.attribute_sets, id)? {
            let ids = self.dictionary.attribute_sets.get(id).map(AttributeSet::ids)?;
            ids.iter().try_for_each(|attribute| self.attribute(*attribute))?;
        }
        Some(())
    }

    fn attribute(&mut self, id: AttributeId) -> Option<()> {
        if meet(&mut self.attributes, id)? {
            let Attribute { key, unit, .. } = self.dictionary.attributes.get(id)?;
            self.string(*key)?;
            self.string(*unit)?;
        }
        Some(())
    }

    fn link(&mut self, id: LinkId) -> Option<()> {
        meet(&mut self.links, id).map(drop)
    }

    fn string(&mut self, id: StringId) -> Option<()> {
        meet(&mut self.strings, id).map(drop)
    }
}
