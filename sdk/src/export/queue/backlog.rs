//! What the queue has left to the spool: pending here, its body only there.
//!
//! In: parcels that there was no room or no time for; what comes back from the disk, of this process and of earlier ones, with its verdict;
//! what the spool has lost, told by its thread at any time. Out: entries in the ledger for what is of this process, figures of
//! their own for what is of earlier ones: these were never taken by this one.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use profiler_proto::loss::Cause;

use super::super::manifest::Manifest;
use super::super::parcel::{Fate, Spooled};
use super::super::shelf::Shelf;
use super::super::spool::Receipt;
use super::{Entry, Parcel, Queue, State};

/// What has its body on disk only.
#[derive(Debug)]
pub(super) struct Released {
    fate: Arc<Fate>,
    receipt: Arc<Receipt>,
}

impl Released {
    pub(super) fn stacks(&self) -> u64 {
        self.fate.contents().stacks
    }
}

/// What the spool has lost of a destination.
#[derive(Debug)]
pub(in crate::export) enum Lost {
    /// One record.
    Record(Manifest),
    /// All with these numbers of the spool, whatever they were.
    Numbers(Range<u64>),
}

/// Losses that are not entered yet.
#[derive(Debug, Default)]
pub(super) struct Mail(Mutex<Vec<(Lost, Cause)>>);

impl Queue {
    /// Gives the destination its place in the spool, before anything is pushed.
    pub(in crate::export) fn put_on(&self, shelf: Shelf) {
        let _first = self.shelf.set(shelf);
    }

    /// The place of the destination in the spool, if there is one.
    pub(in crate::export) fn shelf(&self) -> Option<&Shelf> {
        self.shelf.get()
    }

    /// The oldest parcel as [`Queue::next`] gives it; `None` if there is none by `until`.
    pub(in crate::export) async fn next_by(&self, until: Instant) -> Option<(u64, Parcel)> {
        tokio::time::timeout_at(until.into(), self.next()).await.ok()
    }

    /// The spool has lost something. For its thread: what follows from it is done when somebody looks.
    pub(in crate::export) fn post(&self, lost: Lost, cause: Cause) {
        self.mail.0.lock().unwrap_or_else(PoisonError::into_inner).push((lost, cause));
    }

    /// Enters what the spool has lost. Nobody who waits for this queue is concerned.
    pub(in crate::export) fn read_mail(&self) {
        let mail = std::mem::take(&mut *self.mail.0.lock().unwrap_or_else(PoisonError::into_inner));
        if mail.is_empty() {
            return;
        }
        let mut state = self.state();
        for (lost, cause) in mail {
            match lost {
                Lost::Record(manifest) => state.lose(&manifest, self.is_of_us(&manifest), cause),
                Lost::Numbers(numbers) => state.lose_all(&numbers, cause),
            }
        }
    }

    /// What came back from disk was acknowledged, perhaps with a warning.
    pub(in crate::export) fn replayed(&self, manifest: &Manifest, receipt: Arc<Receipt>, warning: Option<String>) {
        let mut state = self.state();
        state.stats.last_error = warning.or(state.stats.last_error.take());
        match state.claim(manifest, self.is_of_us(manifest)) {
            Some(fate) => {
                state.stats.delivered += fate.contents().stacks;
                state.kinds.export(fate.contents());
                fate.accepted();
            }
            None => state.stats.replayed += manifest.contents.stacks,
        }
        self.settle(receipt);
    }

    /// What came back from disk will not be sent again.
    pub(in crate::export) fn replay_given_up(&self, manifest: &Manifest, receipt: Arc<Receipt>, cause: Cause) {
        self.state().lose(manifest, self.is_of_us(manifest), cause);
        self.settle(receipt);
    }

    /// An attempt to send what came back from disk has failed.
    pub(in crate::export) fn failed(&self, why: String) {
        self.state().stats.last_error = Some(why);
    }

    fn settle(&self, receipt: Arc<Receipt>) {
        if let Some(shelf) = self.shelf.get() {
            shelf.settle(receipt);
        }
    }

    fn is_of_us(&self, manifest: &Manifest) -> bool {
        self.shelf.get().is_some_and(|shelf| shelf.run() == manifest.run)
    }
}

impl State {
    /// Forgets the body of an entry that the spool has.
    pub(super) fn release_at(&mut self, index: usize, shelf: &Shelf) {
        let Some(Entry { parcel, .. }) = self.entries.remove(index) else { return };
        self.bytes -= parcel.body.len();
        if let Some(Spooled { serial, receipt }) = parcel.spooled {
            shelf.release(Arc::clone(&receipt));
            self.released.insert(serial, Released { fate: parcel.fate, receipt });
        }
    }

    /// The fate of what came back, if it is still to be decided: of an earlier process it is not ours to decide.
    fn claim(&mut self, manifest: &Manifest, is_of_us: bool) -> Option<Arc<Fate>> {
        let released = is_of_us.then(|| self.released.remove(&manifest.serial))?;
        released.map(|released| released.fate)
    }

    fn lose(&mut self, manifest: &Manifest, is_of_us: bool, cause: Cause) {
        match self.claim(manifest, is_of_us) {
            Some(fate) => self.give_up(&fate, cause),
            // Of ours, it has its verdict already, or memory still has it.
            None if is_of_us => {}
            None => self.stats.replay_dropped.add(cause, manifest.contents.stacks),
        }
    }

    fn lose_all(&mut self, numbers: &Range<u64>, cause: Cause) {
        let is_lost = |released: &Released| numbers.contains(&released.receipt.number());
        let lost: Vec<u64> = self.released.iter().filter(|(_, r)| is_lost(r)).map(|(serial, _)| *serial).collect();
        for serial in lost {
            if let Some(released) = self.released.remove(&serial) {
                self.give_up(&released.fate, cause);
            }
        }
    }
}
