//! How much stands behind a sum: the number of samples, and the sum of their squared weights, for standard errors.
//!
//! In: profiles of one type. Out: figures of which a share p has the error √(p(1−p)·Σw²)/Σw. Of CPU time a profile says how many
//! stacks it stands for. Of memory each block of u bytes was sampled with probability p = 1 − exp(−u / interval) and
//! weighs u/p bytes or 1/p objects; how many blocks there are behind a stack follows from its bytes and objects, its mean
//! size standing for all of its sizes. What a block adds to the variance is its squared weight times 1 − p: a block that was
//! sampled for sure adds none. Goroutines are all counted. Behind time that was waited stands how often that was.

use profiler_proto::loss::stacks_of;
use profiler_proto::model::Id;
use profiler_proto::{Profile, ProfileSet, Sample};

use super::sample_type::SampleType;
use super::weight::{sum, weighted};

/// What stands behind all samples of some profiles.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Stacks, or about how many sampled blocks.
    stacks: f64,
    /// The sum of what they stand for.
    weight: u64,
    /// What blocks add to the variance of that.
    variance: f64,
}

impl Evidence {
    /// Adds a profile of `set`.
    pub(super) fn add(&mut self, sample_type: SampleType, profile: &Profile, set: &ProfileSet, finest: Option<i64>) {
        let weight = sum(weighted(profile, set, finest).map(|(_, weight)| weight));
        self.weight = self.weight.saturating_add(weight);
        match sample_type {
            SampleType::Cpu => self.stacks += stacks_of(profile, &set.dictionary) as f64,
            // All that there are were counted: nothing varies.
            SampleType::Goroutine => self.stacks += weight as f64,
            SampleType::BlockContentions | SampleType::MutexContentions => self.stacks += weight as f64,
            SampleType::BlockDelay | SampleType::MutexDelay => self.stacks += times(sample_type, profile, set),
            _ => self.add_blocks(sample_type, profile, set),
        }
    }

    /// Adds sampled blocks of memory.
    fn add_blocks(&mut self, sample_type: SampleType, profile: &Profile, set: &ProfileSet) {
        let Some(counterpart) = sample_type.counterpart() else { return };
        let others = beside(profile, counterpart, set).map_or(&[][..], |other| &other.samples);
        let in_bytes = counterpart.unit() == "objects";
        for (place, sample) in profile.samples.iter().enumerate().filter(|(_, sample)| sample.value > 0) {
            // Whoever makes both profiles makes them in the same order.
            let other = others.get(place).filter(|other| is_same(sample, other)).map_or(0, weight_of);
            let value = weight_of(sample) as f64;
            let (bytes, objects) = if in_bytes { (value, other as f64) } else { (other as f64, value) };
            let (blocks, chance) = blocks(bytes, objects, profile.kind.period as f64);
            self.stacks += blocks;
            self.variance += value * value / blocks * (1.0 - chance);
        }
    }

    /// Has this vary as much as `states` do together, for what changed between them: where memory was replaced by other memory, each
    /// was sampled for itself. What stayed varies less, so that this is the most.
    pub(super) fn vary_as<'a>(&mut self, sample_type: SampleType, states: impl Iterator<Item = &'a ProfileSet>) {
        let mut all = Self::default();
        for set in states {
            sample_type.profiles(set).for_each(|profile| all.add(sample_type, profile, set, None));
        }
        self.variance = all.variance;
    }

    /// Stacks, or about how many sampled blocks.
    pub(super) fn stacks(&self) -> u64 {
        self.stacks.round() as u64
    }

    /// The sum of what they stand for.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// The mean weight of a stack; 1 where profiles do not say how many stacks they stand for.
    ///
    /// Weight times this is the least that the sum of squared weights can be (Cauchy and Schwarz), and exactly that sum
    /// where all stacks weigh the same; weight divided by it is a number of stacks. Of memory, what a unit of weight adds to
    /// the variance.
    pub(super) fn mean_weight(&self, sample_type: SampleType) -> f64 {
        if self.weight == 0 || self.stacks == 0.0 {
            1.0
        } else if sample_type.is_heap() || sample_type == SampleType::Goroutine {
            self.variance / self.weight as f64
        } else {
            self.weight as f64 / self.stacks
        }
    }
}

/// The profile of another type over the same time.
fn beside<'a>(profile: &Profile, other: SampleType, set: &'a ProfileSet) -> Option<&'a Profile> {
    let window = |profile: &Profile| (profile.time_unix_nanos, profile.duration_nanos);
    other.profiles(set).find(|other| window(other) == window(profile))
}

/// How often was waited for as long as `profile` says.
fn times(sample_type: SampleType, profile: &Profile, set: &ProfileSet) -> f64 {
    let contentions = sample_type.counterpart().and_then(|other| beside(profile, other, set));
    contentions.map_or(0, |other| sum(other.samples.iter().map(weight_of))) as f64
}

/// A sample's value; what shrank weighs nothing.
pub(super) fn weight_of(sample: &Sample) -> u64 {
    u64::try_from(sample.value).unwrap_or(0)
}

fn is_same(a: &Sample, b: &Sample) -> bool {
    (a.stack.index(), a.attributes.index(), a.link.index()) == (b.stack.index(), b.attributes.index(), b.link.index())
}

/// About how many blocks were sampled for so many bytes in so many objects, one at least, and how likely each was to be; where the
/// one or the other is not known, one block that was very unlikely.
fn blocks(bytes: f64, objects: f64, interval: f64) -> (f64, f64) {
    if bytes <= 0.0 || objects <= 0.0 || interval <= 0.0 {
        return (1.0, 0.0);
    }
    let chance = -(-bytes / objects / interval).exp_m1();
    ((objects * chance).max(1.0), chance)
}

#[cfg(test)]
mod tests {
    use profiler_proto::model::{Contention, Kind};

    use super::*;
    use crate::serve::testing::{BLOCK, INTERVAL, Stacks};

    fn evidence(sample_type: SampleType, set: &ProfileSet) -> Evidence {
        let mut evidence = Evidence::default();
        sample_type.profiles(set).for_each(|profile| evidence.add(sample_type, profile, set, None));
        evidence
    }

    /// Check that of CPU time the mean weight is one period where each stack weighs one, and more where they weigh more.
    #[test]
    fn a_stack_of_one_period_weighs_one() {
        let of = |stacks, weight| evidence(SampleType::Cpu, &Stacks::new().stacks(stacks).sample("a", weight).set());
        assert_eq!((of(3, 3).stacks(), of(3, 3).mean_weight(SampleType::Cpu)), (3, 1.0));
        assert_eq!((of(7, 9).weight(), of(7, 9).mean_weight(SampleType::Cpu)), (9, 9.0 / 7.0));
        assert_eq!(of(0, 9).mean_weight(SampleType::Cpu), 1.0);
    }

    /// Check that as many blocks are found behind memory as were sampled on average, and that the variance is theirs, for bytes
    /// and for objects.
    #[test]
    fn blocks_are_found_behind_memory() {
        let set = Stacks::new().sample("a", 1000 * INTERVAL).sample("b", 500 * INTERVAL).heap();
        let chance = -(-(BLOCK as f64) / INTERVAL as f64).exp_m1();
        for (sample_type, times, unit) in
            [(SampleType::InuseSpace, 1, BLOCK), (SampleType::InuseObjects, 1, 1), (SampleType::AllocSpace, 2, BLOCK)]
        {
            let evidence = evidence(sample_type, &set);
            let objects = (times * 1500 * INTERVAL / BLOCK) as f64;
            assert_eq!(evidence.stacks(), (objects * chance).round() as u64, "{sample_type:?}");
            // Each block stands for 1/p of its kind, and varies by (1 - p)/p².
            let variance = objects * chance * (unit as f64 / chance).powi(2) * (1.0 - chance);
            let said = evidence.mean_weight(sample_type) * evidence.weight() as f64;
            assert!((said / variance - 1.0).abs() < 1e-9, "{sample_type:?}: {said} of {variance}");
        }
    }

    /// Check that what changed varies as both of its states do.
    #[test]
    fn what_changed_varies_as_both_states() {
        let [first, newest] = [3, 5].map(|times| Stacks::new().sample("a", times * INTERVAL).heap());
        let of = |set: &ProfileSet| evidence(SampleType::InuseSpace, set);
        let mut change = of(&Stacks::new().sample("a", 2 * INTERVAL).heap());
        change.vary_as(SampleType::InuseSpace, [&first, &newest].into_iter());
        assert_eq!(change.variance, of(&first).variance + of(&newest).variance);
        assert_eq!(change.weight(), 2 * INTERVAL as u64);
    }

    /// Check that what was sampled for sure has no variance, and that what is not known or cannot be makes no nonsense.
    #[test]
    fn what_is_sure_does_not_vary() {
        assert_eq!(blocks(1e12, 10.0, 1.0), (10.0, 1.0));
        assert_eq!(
            (blocks(10.0, 0.0, 1.0), blocks(0.0, 1.0, 1.0), blocks(1.0, 1.0, 0.0)),
            ((1.0, 0.0), (1.0, 0.0), (1.0, 0.0))
        );
        let mut set = Stacks::new().sample("a", 10 * BLOCK).heap();
        let kind = SampleType::InuseSpace.profiles(&set).next().unwrap().kind;
        set.profiles.retain(|profile| profile.kind == kind);
        let alone = evidence(SampleType::InuseSpace, &set);
        assert_eq!((alone.stacks(), alone.mean_weight(SampleType::InuseSpace)), (1, (10 * BLOCK) as f64));
        let shrank = Stacks::new().sample("a", -BLOCK).heap();
        let shrank = evidence(SampleType::InuseSpace, &shrank);
        assert_eq!((shrank.weight(), shrank.stacks()), (0, 0));
    }
    /// Check that goroutines are known exactly, and that behind waited time stands how often it was waited.
    #[test]
    fn goroutines_are_exact_and_waits_are_counted() {
        let mut set = Stacks::new().sample("a", 30).sample("b", 10).set();
        set.profiles[0].kind = Kind::goroutine(&mut set.dictionary);
        let goroutines = evidence(SampleType::Goroutine, &set);
        assert_eq!((goroutines.stacks(), goroutines.mean_weight(SampleType::Goroutine)), (40, 0.0));
        let kinds = Kind::contention(&mut set.dictionary, Contention::Mutex);
        let mut delay = Profile { kind: kinds[1], ..set.profiles[0].clone() };
        delay.samples.iter_mut().for_each(|sample| sample.value *= 1000);
        set.profiles[0].kind = kinds[0];
        set.profiles.push(delay);
        let waited = evidence(SampleType::MutexDelay, &set);
        assert_eq!(
            (waited.stacks(), waited.weight(), waited.mean_weight(SampleType::MutexDelay)),
            (40, 40_000, 1000.0)
        );
        assert_eq!(evidence(SampleType::MutexContentions, &set).mean_weight(SampleType::MutexContentions), 1.0);
    }
}
