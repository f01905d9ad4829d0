//! The compact form of a set: nothing twice, nothing unused, everything in the order of first reference.
//!
//! In: any [`ProfileSet`]. Out: an equal one in the form that the encoders write and the decoders give back.

use std::borrow::Cow;

use indexmap::IndexMap;

use super::import::Import;
use super::order;
use super::table::{AttributeSetId, LinkId, StackId};
use super::{Dictionary, Profile, ProfileSet, Sample};
use crate::hash::State;

impl ProfileSet {
    /// The same profiles with a dictionary that holds only what they refer to, in the order of first reference, and with
    /// samples of equal (stack, attributes, link) summed into the first of them.
    ///
    /// The compact form of a compact set is that set.
    #[must_use]
    pub fn compacted(&self) -> Self {
        self.with_profiles(&self.profiles)
    }

    /// The same; this set itself, where it is compact, as one is that was put together in this order.
    #[must_use]
    pub fn compact(&self) -> Cow<'_, Self> {
        if order::is_compact(self) { Cow::Borrowed(self) } else { Cow::Owned(self.compacted()) }
    }

    /// The compact form without mappings whose build nobody can name, as in what Go writes of programs that its linker gave no build id:
    /// receivers tell files by their builds.
    #[must_use]
    pub fn of_known_builds(&self) -> Self {
        let excerpt = Excerpts { import: Import::of_known_builds(&self.dictionary) }.of(&self.profiles);
        Self { resource: self.resource.clone(), scope: self.scope.clone(), ..excerpt }
    }

    /// The compact set of `profiles`, which refer to this set's dictionary.
    pub(crate) fn with_profiles<'a>(&self, profiles: impl IntoIterator<Item = &'a Profile>) -> Self {
        self.with_samples(profiles, |_| true)
    }

    /// The same, of only those samples that `keep` wants.
    pub(crate) fn with_samples<'a>(
        &self,
        profiles: impl IntoIterator<Item = &'a Profile>,
        keep: impl FnMut(&Sample) -> bool,
    ) -> Self {
        let excerpt = Excerpts::new(&self.dictionary).of_samples(profiles, keep);
        Self { resource: self.resource.clone(), scope: self.scope.clone(), ..excerpt }
    }
}

/// Compact sets of profiles that refer to one dictionary, made one after another. Each costs what it holds, not what the dictionary holds.
#[derive(Debug)]
pub struct Excerpts<'a> {
    import: Import<'a>,
}

impl<'a> Excerpts<'a> {
    /// Excerpts from `dictionary`, none made yet.
    #[must_use]
    pub fn new(dictionary: &'a Dictionary) -> Self {
        Self { import: Import::new(dictionary) }
    }

    /// The compact set of `profiles`, without resource and scope.
    pub fn of<'p>(&mut self, profiles: impl IntoIterator<Item = &'p Profile>) -> ProfileSet {
        self.of_samples(profiles, |_| true)
    }

    fn of_samples<'p>(
        &mut self,
        profiles: impl IntoIterator<Item = &'p Profile>,
        mut keep: impl FnMut(&Sample) -> bool,
    ) -> ProfileSet {
        let mut set = ProfileSet::default();
        for profile in profiles {
            let mut copy = self.import.head(profile, &mut set.dictionary);
            let mut sums = Sums::default();
            for sample in profile.samples.iter().filter(|sample| keep(sample)) {
                sums.add(self.import.sample(sample, &mut set.dictionary));
            }
            copy.samples = sums.into_samples();
            set.profiles.push(copy);
        }
        self.import.forget();
        set.dictionary.shrink();
        set
    }
}

/// What makes two samples of a profile the same.
pub(crate) type Identity = (StackId, AttributeSetId, LinkId);

/// What one sum takes up: identity, value, hash, slot in the index, and the sample that it becomes.
pub(crate) type SumEntry = (Identity, i64, u64, u64, Sample);

/// Samples of one profile, summed by identity, in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    values: IndexMap<Identity, i64, State>,
}

impl Sums {
    /// Adds `sample`; a sum ends at the ends of `i64`.
    pub(crate) fn add(&mut self, sample: Sample) {
        let value = self.values.entry((sample.stack, sample.attributes, sample.link)).or_default();
        *value = value.saturating_add(sample.value);
    }

    /// One sample per identity.
    pub(crate) fn into_samples(self) -> Vec<Sample> {
        let sums = self.values.into_iter();
        sums.map(|((stack, attributes, link), value)| Sample { stack, attributes, link, value }).collect()
    }
}
