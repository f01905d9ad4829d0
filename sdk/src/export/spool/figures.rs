//! What a spool says about itself, and what its front and its thread share.
//!
//! In: what the keeper has done and what went wrong. Out: figures, and log lines where something begins to fail and where it is well
//! again. Any thread.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What the spool says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::export) struct Figures {
    /// Bytes of all segments.
    pub(in crate::export) bytes: u64,
    /// Segments.
    pub(in crate::export) segments: usize,
    /// Records that this process has written.
    pub(in crate::export) appended: u64,
    /// All records with smaller numbers are confirmed by the disk.
    pub(in crate::export) synced_below: u64,
    /// Records that were there and of which nothing is known any more, summed over destinations.
    pub(in crate::export) missing: u64,
    /// Bytes found in segments of earlier processes that hold no whole record: what was being written when one ended, or damage.
    pub(in crate::export) unreadable_bytes: u64,
    /// Records of earlier processes in a form, or of a version, that no destination takes.
    pub(in crate::export) untaken: u64,
    /// What is wrong at present: bodies are in memory alone.
    pub(in crate::export) trouble: Option<String>,
}

/// What the front and the keeper share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Bytes of bodies that wait for the disk.
    pub(super) waiting: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Since when the keeper waits for the disk.
    pub(super) busy: Option<Instant>,
    pub(super) figures: Figures,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Plain values, changed in steps that cannot panic: what a poisoned lock guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bodies are in memory alone, because of `why`; said once.
    pub(super) fn is_ill(&self, why: &str) {
        let before = self.state().figures.trouble.replace(why.to_owned());
        if before.is_none() {
            tracing::warn!(why, "profiles are not being spooled: they are in memory alone");
        }
    }

    /// The disk has them again.
    pub(super) fn is_well(&self) {
        if self.state().figures.trouble.take().is_some() {
            tracing::info!("profiles are being spooled again");
        }
    }
}
