//! What a profile is, in memory: the one type that everything captured, received, stored, served and sent passes through.
//!
//! A [`ProfileSet`] is one process's [`Resource`], one [`Dictionary`] of interned tables and any number of [`Profile`]s
//! that refer to it by typed ids. An id is valid for the dictionary that gave it out and for no other.

mod attribute;
pub(crate) mod compact;
mod difference;
mod filter;
mod function;
pub(crate) mod import;
mod join;
mod kind;
mod link;
mod location;
mod mapping;
mod merge;
mod order;
pub mod resource;
mod sample;
mod size;
mod stack;
mod string;
mod table;

pub use attribute::{Attribute, AttributeSet, Double, Value};
pub use compact::Excerpts;
pub use difference::Difference;
pub use filter::TagFilter;
pub use function::Function;
pub use join::{Labels, Scale, join};
pub use kind::{Contention, Kind, ValueType};
pub use link::Link;
pub use location::{Line, Location};
pub(crate) use mapping::BUILD_IDS;
pub use mapping::Mapping;
pub use merge::{Merge, merge};
pub use sample::{Profile, Sample};
pub use stack::Stack;
pub use string::Strings;
pub use table::{AttributeId, AttributeSetId, FunctionId, Id, LinkId, LocationId, MappingId, StackId, StringId, Table};

use self::resource::Resource;

/// Profiles of one process, with all that they refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileSet {
    /// Who was profiled.
    pub resource: Resource,
    /// What made the profiles.
    pub scope: Scope,
    /// What the profiles refer to.
    pub dictionary: Dictionary,
    /// One profile per kind and time window.
    pub profiles: Vec<Profile>,
}

/// The producer of profiles: OTLP's instrumentation scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// The producer's name; `[a-zA-Z0-9_]` only, for some backends make it part of a metric name.
    pub name: String,
    /// The producer's version.
    pub version: String,
}

/// The interned tables that samples refer to; element 0 of each is its zero value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dictionary {
    /// Names, units, file names.
    pub strings: Strings,
    /// What was mapped where.
    pub mappings: Table<Mapping, MappingId>,
    /// Source functions.
    pub functions: Table<Function, FunctionId>,
    /// Places in the code.
    pub locations: Table<Location, LocationId>,
    /// Call stacks.
    pub stacks: Table<Stack, StackId>,
    /// Keys with values.
    pub attributes: Table<Attribute, AttributeId>,
    /// Sets of attributes, as samples and others carry them.
    pub attribute_sets: Table<AttributeSet, AttributeSetId>,
    /// Spans.
    pub links: Table<Link, LinkId>,
}

impl Dictionary {
    /// The attribute `key = value` without a unit.
    pub fn attribute(&mut self, key: &str, value: impl Into<Value>) -> AttributeId {
        let key = self.strings.intern_str(key);
        self.attributes.intern(Attribute { key, value: value.into(), unit: StringId::ZERO })
    }

    /// The set of `attributes`; where a key stands twice, the last one holds.
    pub fn attribute_set(&mut self, attributes: impl IntoIterator<Item = AttributeId>) -> AttributeSetId {
        let set = AttributeSet::new(attributes, &self.attributes);
        self.attribute_sets.intern(set)
    }

    /// Gives back the room that is left in the tables.
    pub(crate) fn shrink(&mut self) {
        let Self { strings, mappings, functions, locations, stacks, attributes, attribute_sets, links } = self;
        strings.shrink();
        mappings.shrink();
        functions.shrink();
        locations.shrink();
        stacks.shrink();
        attributes.shrink();
        attribute_sets.shrink();
        links.shrink();
    }

    /// The attributes of a set as (key, value), in the order of their ids.
    pub fn attributes_of(&self, set: AttributeSetId) -> impl Iterator<Item = (&str, &Value)> + '_ {
        let ids = self.attribute_sets.get(set).map_or(&[][..], AttributeSet::ids);
        ids.iter().filter_map(|id| self.attributes.get(*id)).map(|a| (self.strings.text(a.key), &a.value))
    }

    /// The value of `key` in a set.
    #[must_use]
    pub fn value_of(&self, set: AttributeSetId, key: &str) -> Option<&Value> {
        self.attributes_of(set).find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}
