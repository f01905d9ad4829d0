//! What samples weigh, in one period for all of a request.
//!
//! In: profiles of one type, of any number of processes, each with its own rate. Out: their samples with weights that can be summed: on-CPU
//! samples in the finest period of all. Sums of weights end at the end of their type: values may come from anybody.

use profiler_proto::model::Scale;
use profiler_proto::{Profile, ProfileSet, Sample};

use super::sample_type::SampleType;

/// The finest period of the profiles of a type in `sets`; `None` where there is none above zero.
pub(super) fn finest<'a>(sample_type: SampleType, sets: impl Iterator<Item = &'a ProfileSet>) -> Option<i64> {
    let periods = sets.flat_map(|set| sample_type.profiles(set)).map(|profile| profile.kind.period);
    periods.filter(|period| *period > 0).min()
}

/// The samples of a profile of `set` with their weights, in the period `finest`; what shrank weighs nothing.
pub(super) fn weighted<'a>(
    profile: &'a Profile,
    set: &ProfileSet,
    finest: Option<i64>,
) -> impl Iterator<Item = (&'a Sample, u64)> + use<'a> {
    let mut scale = Scale::new(profile.kind, finest.unwrap_or(0), &set.dictionary);
    profile.samples.iter().map(move |sample| (sample, u64::try_from(scale.apply(sample.value)).unwrap_or(0)))
}

/// The sum of weights, or the most that there can be.
pub(super) fn sum(weights: impl Iterator<Item = u64>) -> u64 {
    weights.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{PERIOD, Stacks};

    /// Check that weights of processes with different rates can be summed, and that sums end where their type ends.
    #[test]
    fn weights_have_one_period() {
        let fine = Stacks::new().sample("a", 4).set();
        let mut coarse = Stacks::new().sample("a", 3).sample("b", i64::MAX).sample("c", -5).set();
        coarse.profiles[0].kind.period = 10 * PERIOD;
        let finest = finest(SampleType::Cpu, [&fine, &coarse].into_iter());
        assert_eq!(finest, Some(PERIOD));
        let weights =
            |set: &ProfileSet| weighted(&set.profiles[0], set, finest).map(|(_, weight)| weight).collect::<Vec<_>>();
        assert_eq!((weights(&fine), weights(&coarse)), (vec![4], vec![30, i64::MAX as u64, 0]));
        assert_eq!(sum([u64::MAX, 5].into_iter()), u64::MAX);
    }
}
