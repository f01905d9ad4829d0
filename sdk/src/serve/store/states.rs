//! States: of what is in use, what there was at a moment. They are found by their moments, and never summed over time.
//!
//! In: what the store holds, and a moment or a range. Out: one state of each process. A process that says nothing any more has none.

use std::sync::Arc;

use profiler_proto::ProfileSet;

use super::super::lane::{Lane, Stored};
use super::super::process::Chosen;
use super::super::range::Range;
use super::super::sample_type::SampleType;
use super::held::Held;

/// A process that gave no state for so many nanoseconds, while others did, is gone, and what it had with it.
pub(super) const GONE: u64 = 180_000_000_000;

impl Held {
    /// Of each chosen process the newest state of a type at or before `moment`, of those that were there still.
    pub(super) fn newest_states(&self, sample_type: SampleType, moment: u64, of: &Chosen) -> Vec<Arc<ProfileSet>> {
        let newest = |lanes| states(sample_type, lanes).filter(|(at, _)| *at <= moment).max_by_key(|(at, _)| *at);
        let states: Vec<_> = self.chosen(of).filter_map(newest).collect();
        let last = states.iter().map(|(at, _)| *at).max().unwrap_or(0);
        // One that is asked less often has longer.
        let interval =
            |set: &ProfileSet| sample_type.profiles(set).map(|profile| profile.duration_nanos).max().unwrap_or(0);
        let patience = |set: &ProfileSet| interval(set).saturating_mul(2);
        let until = |at: u64, set| at.saturating_add(GONE.max(patience(set)));
        let alive = states.into_iter().filter(|(at, set)| until(*at, set) >= last);
        alive.map(|(_, set)| Arc::clone(set)).collect()
    }

    /// Of each chosen process the first state of a type in a range of time.
    pub(super) fn first_states(&self, sample_type: SampleType, range: Range, of: &Chosen) -> Vec<Arc<ProfileSet>> {
        let first = |lanes| {
            let within = states(sample_type, lanes).filter(|(at, _)| (range.from..=range.to).contains(at));
            within.min_by_key(|(at, _)| *at)
        };
        self.chosen(of).filter_map(first).map(|(_, set)| Arc::clone(set)).collect()
    }
}

/// When the state of a type was that a set has.
pub(in crate::serve) fn moment_of(sample_type: SampleType, set: &ProfileSet) -> Option<u64> {
    sample_type.profiles(set).map(profiler_proto::Profile::end_unix_nanos).max()
}

/// The states of a type that a process had, each with its moment: the end of its window.
fn states(sample_type: SampleType, lanes: &[Lane; 2]) -> impl Iterator<Item = (u64, &Arc<ProfileSet>)> {
    let sets = lanes.iter().flat_map(Lane::iter).map(Stored::set);
    sets.filter_map(move |set| Some((moment_of(sample_type, set)?, set)))
}
