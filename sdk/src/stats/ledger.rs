//! The ledger: what became of every stack and of every profile.
//!
//! In: epochs of the sampler, what is handed to destinations, their verdicts; from any thread. Out: the account of the stacks and of each
//! kind of profiles as they stand. Every change is one entry under one lock, so that whoever looks sees a state in which the equations hold.

use std::sync::{Mutex, MutexGuard, PoisonError};

use profiler_proto::loss::{Account, Cause, Degraded, Loss};

#[cfg(feature = "export")]
use super::kinds::Contents;
use super::kinds::{KindStats, Kinds};

/// The accounts that the sampler and the exporter share.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
}

/// What the ledger's lock guards.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entries {
    /// On-CPU stacks.
    pub(crate) account: Account,
    /// Profiles.
    pub(crate) kinds: Kinds,
    pub(crate) degraded: Degraded,
    pub(crate) weight: u64,
    /// What becomes of all that is on its way is settled: it is lost.
    abandoned: Option<Cause>,
}

impl Entries {
    fn write_off(&mut self) {
        if let Some(cause) = self.abandoned {
            self.account.lost(self.account.pending, cause);
            self.kinds.write_off(cause);
        }
    }
}

impl Ledger {
    /// Enters one closed epoch of the sampler: see [`Account::enter`].
    pub fn enter(&self, taken: u64, drained: u64, weight: u64, lost: &Loss, degraded: &Degraded) {
        let mut entries = self.entries();
        entries.account.enter(taken, drained, lost);
        entries.degraded.merge(degraded);
        entries.weight += weight;
        entries.write_off();
    }

    /// `stacks` that were pending will never arrive: they were lost before any profile was made of them.
    pub fn lost(&self, stacks: u64, cause: Cause) {
        let mut entries = self.entries();
        if entries.abandoned.is_none() {
            entries.account.lost(stacks, cause);
        }
    }

    /// Nothing arrives any more: what is pending is lost, now and whenever there is more of it. Whoever still believes to
    /// have it in hand says nothing new.
    pub fn abandon(&self, cause: Cause) {
        let mut entries = self.entries();
        entries.abandoned = Some(cause);
        entries.write_off();
    }

    /// The account of the stacks as it stands.
    #[must_use]
    pub fn account(&self) -> Account {
        self.entries().account
    }

    /// The accounts of the profiles as they stand.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindStats> {
        self.entries().kinds.to_vec()
    }

    /// Everything as it stands.
    pub(crate) fn entries(&self) -> MutexGuard<'_, Entries> {
        // Each method changes plain numbers and cannot panic half-way: what a poisoned lock guards is whole.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "export")]
impl Ledger {
    /// Profiles were handed to export; their stacks are pending since they were taken.
    pub(crate) fn offered(&self, contents: &Contents) {
        let mut entries = self.entries();
        entries.kinds.offer(contents);
        entries.write_off();
    }

    /// A destination acknowledged `contents`.
    pub(crate) fn exported(&self, contents: &Contents) {
        let mut entries = self.entries();
        if entries.abandoned.is_none() {
            entries.account.exported(contents.stacks);
            entries.kinds.export(contents);
        }
    }

    /// No destination will ever get `contents`.
    pub(crate) fn given_up(&self, contents: &Contents, cause: Cause) {
        let mut entries = self.entries();
        if entries.abandoned.is_none() {
            entries.account.lost(contents.stacks, cause);
            entries.kinds.lose(contents, cause);
        }
    }
}
