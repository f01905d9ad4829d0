//! What changed between two states of memory in use: how leaks are found.
//!
//! In: two sets of one process, the later one first. Out: one set with a profile for each type of state, its values what there
//! is more (positive) or less (negative) of. Spans are left out: memory of another span at the same place is the same leak.

use indexmap::IndexMap;

use super::compact::Sums;
use super::import::Import;
use super::{LinkId, Profile, ProfileSet, Sample, ValueType};

/// A difference under way.
#[derive(Debug)]
pub struct Difference {
    sum: ProfileSet,
    changes: IndexMap<ValueType, Change>,
}

#[derive(Debug)]
struct Change {
    head: Profile,
    sums: Sums,
}

impl Difference {
    /// All that is in use in `newest`: the states in it ([`Kind::is_state`](super::Kind::is_state)).
    #[must_use]
    pub fn of(newest: &ProfileSet) -> Self {
        let sum =
            ProfileSet { resource: newest.resource.clone(), scope: newest.scope.clone(), ..ProfileSet::default() };
        let mut difference = Self { sum, changes: IndexMap::new() };
        difference.add(newest, 1);
        difference
    }

    /// Takes away what was in use in `first`; the window is then that between the two states.
    pub fn less(&mut self, first: &ProfileSet) {
        self.add(first, -1);
    }

    /// The set: one sample for each stack with its attributes that is in either state, in the same order in each profile,
    /// also where nothing changed.
    #[must_use]
    pub fn finish(mut self) -> ProfileSet {
        let profiles = self.changes.into_values();
        self.sum.profiles =
            profiles.map(|Change { head, sums }| Profile { samples: sums.into_samples(), ..head }).collect();
        self.sum.compacted()
    }

    fn add(&mut self, set: &ProfileSet, sign: i64) {
        let (mut import, into) = (Import::new(&set.dictionary), &mut self.sum.dictionary);
        for profile in set.profiles.iter().filter(|profile| profile.kind.is_state(&set.dictionary)) {
            let head = import.head(profile, into);
            let moment = head.end_unix_nanos();
            let change =
                self.changes.entry(head.kind.sample_type).or_insert_with(|| Change { head, sums: Sums::default() });
            if sign < 0 {
                let end = change.head.end_unix_nanos();
                change.head.time_unix_nanos = moment.min(end);
                change.head.duration_nanos = end - change.head.time_unix_nanos;
            }
            for sample in &profile.samples {
                let sample = import.sample(&Sample { link: LinkId::ZERO, ..*sample }, into);
                change.sums.add(Sample { value: sample.value.saturating_mul(sign), ..sample });
            }
        }
    }
}
