//! Profiles by kind: which kinds are told apart, and what became of the profiles of each.
//!
//! In: counts of profiles as they are offered, acknowledged and given up. Out: rows in which `offered = exported + pending + Σ lost` holds.
//! Plain numbers; whoever shares them between threads brings the lock.

use profiler_proto::loss::{Cause, Loss};
#[cfg(feature = "export")]
use profiler_proto::{Dictionary, Profile, ProfileSet, loss::stacks_of};

/// What became of the profiles of one kind: `offered = exported + pending + Σ lost`.
///
/// Profiles without samples are not sent and not counted. One that is divided, for it is larger than a request may be, counts once for each of
/// its parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindStats {
    /// `cpu`, `heap`, `goroutine`, `block`, `mutex`, `other`.
    pub name: &'static str,
    /// Profiles that were handed over.
    pub offered: u64,
    /// Profiles in bodies that were acknowledged.
    pub exported: u64,
    /// Profiles on their way.
    pub pending: u64,
    /// Profiles that will never arrive, by cause.
    pub lost: Loss,
}

impl KindStats {
    /// Whether the equation holds; tests ask.
    #[must_use]
    pub fn balances(&self) -> bool {
        self.offered == self.exported + self.pending + self.lost.total()
    }
}

/// The names of the kinds.
pub(crate) const NAMES: [&str; 6] = ["cpu", "heap", "goroutine", "block", "mutex", "other"];

/// What a set of profiles, or a part of one, is counted as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg(feature = "export")]
pub(crate) struct Contents {
    /// On-CPU stacks that it stands for.
    pub(crate) stacks: u64,
    /// Profiles with samples, by kind, in the order of [`NAMES`].
    profiles: [u64; NAMES.len()],
}

#[cfg(feature = "export")]
impl Contents {
    /// What `set` is counted as.
    pub(crate) fn of(set: &ProfileSet) -> Self {
        let mut contents = Self::default();
        for profile in &set.profiles {
            if profile.kind.is_cpu(&set.dictionary) {
                contents.stacks = contents.stacks.saturating_add(stacks_of(profile, &set.dictionary));
            }
            contents.profiles[place_of(profile, &set.dictionary)] += u64::from(!profile.samples.is_empty());
        }
        contents
    }

    /// The profiles of all kinds.
    pub(crate) fn profiles(&self) -> u64 {
        self.profiles.iter().sum()
    }
}

/// The place in [`NAMES`] of a profile, by what its period is counted in.
#[cfg(feature = "export")]
fn place_of(profile: &Profile, dictionary: &Dictionary) -> usize {
    match dictionary.strings.text(profile.kind.period_type.kind) {
        "cpu" => 0,
        "space" => 1,
        "goroutine" => 2,
        "block" => 3,
        "mutex" => 4,
        _ => 5,
    }
}

/// The name of a profile's kind.
#[cfg(feature = "export")]
pub(crate) fn kind_of(profile: &Profile, dictionary: &Dictionary) -> &'static str {
    NAMES[place_of(profile, dictionary)]
}

/// A row for each kind, in the order of [`NAMES`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kinds {
    rows: [KindStats; NAMES.len()],
}

impl Default for Kinds {
    fn default() -> Self {
        Self { rows: NAMES.map(|name| KindStats { name, ..KindStats::default() }) }
    }
}

impl Kinds {
    /// All that is pending is lost.
    pub(super) fn write_off(&mut self, cause: Cause) {
        for row in &mut self.rows {
            row.lose(row.pending, cause);
        }
    }

    /// The rows, those at zero too.
    pub(crate) fn to_vec(self) -> Vec<KindStats> {
        self.rows.to_vec()
    }
}

#[cfg(feature = "export")]
impl Kinds {
    /// The profiles of `contents` are on their way.
    pub(crate) fn offer(&mut self, contents: &Contents) {
        for (row, profiles) in self.rows.iter_mut().zip(contents.profiles) {
            row.offered += profiles;
            row.pending += profiles;
        }
    }

    /// Moves the profiles of `contents` from pending to exported.
    pub(crate) fn export(&mut self, contents: &Contents) {
        for (row, profiles) in self.rows.iter_mut().zip(contents.profiles) {
            row.pending = row.pending.saturating_sub(profiles);
            row.exported += profiles;
        }
    }

    /// Moves the profiles of `contents` from pending to lost.
    pub(crate) fn lose(&mut self, contents: &Contents, cause: Cause) {
        for (row, profiles) in self.rows.iter_mut().zip(contents.profiles) {
            row.lose(profiles, cause);
        }
    }
}

impl KindStats {
    fn lose(&mut self, profiles: u64, cause: Cause) {
        self.pending = self.pending.saturating_sub(profiles);
        self.lost.add(cause, profiles);
    }
}
