//! Choosing samples by their tags.
//!
//! In: keys and values, as a person picks them. Out: the samples that carry them. Whether a set of attributes matches is
//! found out once per set, not once per sample.

use std::collections::{BTreeMap, BTreeSet};

use super::{Dictionary, Id, ProfileSet, Sample, Value};

/// Which samples to keep: for every key named here, the sample must have it with one of the values named for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagFilter {
    wanted: BTreeMap<String, BTreeSet<String>>,
}

impl TagFilter {
    /// A filter that keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wants `key` to be `value`, or one of the values wanted for it before; a value that is no text is compared by its
    /// `Display` form.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.wanted.entry(key.into()).or_default().insert(value.into());
        self
    }

    /// Whether it keeps everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The test for samples that refer to `dictionary`.
    pub fn of(&self, dictionary: &Dictionary) -> impl Fn(&Sample) -> bool + use<> {
        let matches: Vec<bool> =
            dictionary.attribute_sets.entries().map(|(set, _)| self.keeps(set, dictionary)).collect();
        move |sample| matches.get(sample.attributes.index() as usize).copied().unwrap_or(false)
    }

    fn keeps(&self, set: super::AttributeSetId, dictionary: &Dictionary) -> bool {
        self.wanted.iter().all(|(key, values)| {
            dictionary.value_of(set, key).is_some_and(|value| match value {
                Value::String(text) => values.contains(&**text),
                other => values.contains(&other.to_string()),
            })
        })
    }
}

impl ProfileSet {
    /// The compact set of the samples that `filter` keeps; profiles stay, even if none of their samples does.
    #[must_use]
    pub fn filtered(&self, filter: &TagFilter) -> Self {
        let keeps = filter.of(&self.dictionary);
        self.with_samples(&self.profiles, |sample| keeps(sample))
    }
}
