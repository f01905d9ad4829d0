//! What can be asked for: on-CPU time, one of the heap's four types, what Go's runtime keeps; all by Go's names.
//!
//! In: the kind of a stored profile, or a name in a request. Out: one of ten types, and what sets them apart: their unit,
//! and whether values say what happened over a time (summed) or what there is at a moment (never summed).

use profiler_proto::model::{Contention, Kind, Profile, ProfileSet};

/// A type of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleType {
    Cpu,
    InuseSpace,
    InuseObjects,
    AllocSpace,
    AllocObjects,
    /// Goroutines that there are.
    Goroutine,
    /// How long goroutines waited, how often; and how long they were made to wait for locks, how often.
    BlockDelay,
    BlockContentions,
    MutexDelay,
    MutexContentions,
}

impl SampleType {
    /// All of them, in the order in which they are offered.
    pub(super) const ALL: [Self; 10] = [
        Self::Cpu,
        Self::InuseSpace,
        Self::InuseObjects,
        Self::AllocSpace,
        Self::AllocObjects,
        Self::Goroutine,
        Self::BlockDelay,
        Self::BlockContentions,
        Self::MutexDelay,
        Self::MutexContentions,
    ];

    /// As requests name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::InuseSpace => "inuse_space",
            Self::InuseObjects => "inuse_objects",
            Self::AllocSpace => "alloc_space",
            Self::AllocObjects => "alloc_objects",
            Self::Goroutine => "goroutine",
            Self::BlockDelay => "block_delay",
            Self::BlockContentions => "block_contentions",
            Self::MutexDelay => "mutex_delay",
            Self::MutexContentions => "mutex_contentions",
        }
    }

    /// In words, for a title.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::InuseSpace | Self::InuseObjects => "heap in use",
            Self::AllocSpace | Self::AllocObjects => "allocated",
            Self::Goroutine => "goroutines",
            Self::BlockDelay | Self::BlockContentions => "block",
            Self::MutexDelay | Self::MutexContentions => "mutex",
        }
    }

    /// What values count.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "samples",
            Self::InuseSpace | Self::AllocSpace => "bytes",
            Self::InuseObjects | Self::AllocObjects => "objects",
            Self::Goroutine => "goroutines",
            Self::BlockDelay | Self::MutexDelay => "nanoseconds",
            Self::BlockContentions | Self::MutexContentions => "contentions",
        }
    }

    /// Whether values say what there is at a moment.
    pub(super) const fn is_state(self) -> bool {
        matches!(self, Self::InuseSpace | Self::InuseObjects | Self::Goroutine)
    }

    /// Whether it is one of the heap's.
    pub(super) const fn is_heap(self) -> bool {
        matches!(self, Self::InuseSpace | Self::InuseObjects | Self::AllocSpace | Self::AllocObjects)
    }

    /// The type that counts things where this one measures them, and the other way round.
    pub(super) const fn counterpart(self) -> Option<Self> {
        match self {
            Self::Cpu | Self::Goroutine => None,
            Self::InuseSpace => Some(Self::InuseObjects),
            Self::InuseObjects => Some(Self::InuseSpace),
            Self::AllocSpace => Some(Self::AllocObjects),
            Self::AllocObjects => Some(Self::AllocSpace),
            Self::BlockDelay => Some(Self::BlockContentions),
            Self::BlockContentions => Some(Self::BlockDelay),
            Self::MutexDelay => Some(Self::MutexContentions),
            Self::MutexContentions => Some(Self::MutexDelay),
        }
    }

    /// The profiles of this type in a set.
    pub(super) fn profiles(self, set: &ProfileSet) -> impl Iterator<Item = &Profile> + '_ {
        set.profiles.iter().filter(move |profile| self.is_of(profile.kind, set))
    }

    /// Whether a set has a profile of this type, with samples or without.
    pub(super) fn is_in(self, set: &ProfileSet) -> bool {
        self.profiles(set).next().is_some()
    }

    fn is_of(self, kind: Kind, set: &ProfileSet) -> bool {
        let text = |id| set.dictionary.strings.text(id);
        let sample_type = (text(kind.sample_type.kind), text(kind.sample_type.unit));
        let of_period = |name| text(kind.period_type.kind) == name;
        match self {
            Self::Cpu => kind.is_cpu(&set.dictionary),
            Self::InuseSpace | Self::AllocSpace => sample_type == (self.name(), "bytes"),
            Self::InuseObjects | Self::AllocObjects | Self::Goroutine => sample_type == (self.name(), "count"),
            Self::BlockDelay => sample_type == ("delay", "nanoseconds") && of_period(Contention::Block.name()),
            Self::BlockContentions => sample_type == ("contentions", "count") && of_period(Contention::Block.name()),
            Self::MutexDelay => sample_type == ("delay", "nanoseconds") && of_period(Contention::Mutex.name()),
            Self::MutexContentions => sample_type == ("contentions", "count") && of_period(Contention::Mutex.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each kind that there is is one type, and that kinds of others are none.
    #[test]
    fn each_kind_is_one_type() {
        let mut set = ProfileSet::default();
        let dictionary = &mut set.dictionary;
        let mut kinds = vec![Kind::cpu(dictionary, 1)];
        let [objects, space, in_use, bytes] = Kind::heap(dictionary, 1);
        kinds.extend([bytes, in_use, space, objects, Kind::goroutine(dictionary)]);
        for of in [Contention::Block, Contention::Mutex] {
            let [contentions, delay] = Kind::contention(dictionary, of);
            kinds.extend([delay, contentions]);
        }
        let other = Kind::threads(dictionary);
        let types = |kind| SampleType::ALL.into_iter().filter(|known| known.is_of(kind, &set)).collect::<Vec<_>>();
        assert_eq!(kinds.into_iter().flat_map(types).collect::<Vec<_>>(), SampleType::ALL);
        assert_eq!(types(other), []);
        assert!(
            SampleType::ALL
                .iter()
                .all(|known| known.counterpart().is_none_or(|other| other.counterpart() == Some(*known)))
        );
    }
}
