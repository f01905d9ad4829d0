//! What can be asked for: on-CPU time, or one of the heap's four types, by Go's names.
//!
//! In: the kind of a stored profile, or a name in a request. Out: one of five types, and what sets them apart: their unit,
//! and whether values say what happened over a time (summed) or what is in use at a moment (never summed).

use profiler_proto::model::{Kind, Profile, ProfileSet};

/// A type of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleType {
    Cpu,
    InuseSpace,
    InuseObjects,
    AllocSpace,
    AllocObjects,
}

impl SampleType {
    /// All of them, in the order in which they are offered.
    pub(super) const ALL: [Self; 5] =
        [Self::Cpu, Self::InuseSpace, Self::InuseObjects, Self::AllocSpace, Self::AllocObjects];

    /// As requests name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::InuseSpace => "inuse_space",
            Self::InuseObjects => "inuse_objects",
            Self::AllocSpace => "alloc_space",
            Self::AllocObjects => "alloc_objects",
        }
    }

    /// In words, for a title.
    #[cfg(feature = "svg")]
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::InuseSpace | Self::InuseObjects => "heap in use",
            Self::AllocSpace | Self::AllocObjects => "allocated",
        }
    }

    /// What values count.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "samples",
            Self::InuseSpace | Self::AllocSpace => "bytes",
            Self::InuseObjects | Self::AllocObjects => "objects",
        }
    }

    /// Whether values say what is in use at a moment.
    pub(super) const fn is_state(self) -> bool {
        matches!(self, Self::InuseSpace | Self::InuseObjects)
    }

    /// The type that counts bytes where this one counts objects, and the other way round.
    pub(super) const fn counterpart(self) -> Option<Self> {
        match self {
            Self::Cpu => None,
            Self::InuseSpace => Some(Self::InuseObjects),
            Self::InuseObjects => Some(Self::InuseSpace),
            Self::AllocSpace => Some(Self::AllocObjects),
            Self::AllocObjects => Some(Self::AllocSpace),
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
        let unit = match self.unit() {
            "bytes" => "bytes",
            _ => "count",
        };
        let text = |id| set.dictionary.strings.text(id);
        match self {
            Self::Cpu => kind.is_cpu(&set.dictionary),
            _ => (text(kind.sample_type.kind), text(kind.sample_type.unit)) == (self.name(), unit),
        }
    }
}
