//! What the queue has left to the spool: pending here, its body only there.
//!
//! In: parcels that there was no room or no time for; what comes back from the disk, of this process and of earlier ones, with its verdict;
//! what the spool has lost, told by its thread at any time. Out: entries in the ledger for what is of this process, figures of
//! their own for what is of earlier ones: these were never taken by this one.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use profiler_proto::loss::Cause;

use super::super::manifest::Manifest;
use super::super::parcel::{Fate, Spooled};
use super::super::shelf::Shelf;
use super::super::spool::Receipt;
use super::{Entry, Parcel, Queue, State, or_unanswered};

/// How long what was left to the disk is left there at least, while nothing else is to be sent.
const SOON: Duration = Duration::from_secs(1);

/// What has its body on disk only.
#[derive(Debug)]
pub(super) struct Released {
    number: u64,
    unanswered: bool,
    fate: Arc<Fate>,
    /// The number of its record when memory let go of it: the receipt, which other destinations have too, loses it where one of them does.
    record: u64,
}

/// What came back from disk and is being sent: its body is here, whatever happens on disk.
#[derive(Debug)]
pub(super) struct InHand {
    manifest: Manifest,
    is_of_us: bool,
    receipt: Arc<Receipt>,
}

impl Released {
    /// Its number in the queue.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

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

    /// The oldest parcel as [`Queue::next`] gives it; `None` if there is none by `until`, or soon, where something waits on disk alone.
    pub(in crate::export) async fn next_by(&self, mut until: Instant) -> Option<(u64, Parcel)> {
        loop {
            if let Some(front) = self.begin(Instant::now()) {
                return Some(front);
            }
            if self.has_released() {
                until = until.min(Instant::now() + SOON);
            }
            tokio::time::timeout_at(until.into(), self.arrived.notified()).await.ok()?;
        }
    }

    /// The spool has lost something. For its thread: what follows from it is done when somebody looks.
    pub(in crate::export) fn post(&self, lost: Lost, cause: Cause) {
        self.mail.0.lock().unwrap_or_else(PoisonError::into_inner).push((lost, cause));
    }

    /// Enters what the spool has lost, and lets those know who wait for this queue. For the task that delivers.
    pub(in crate::export) fn settle_mail(&self) {
        self.read_mail();
        self.publish(&self.state());
    }

    /// Enters what the spool has lost, and wakes nobody: for any thread.
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

    /// What came back from disk is being sent, until it has its verdict.
    pub(in crate::export) fn hold(&self, manifest: &Manifest, receipt: &Arc<Receipt>) {
        let (manifest, receipt, is_of_us) = (manifest.clone(), Arc::clone(receipt), self.is_of_us(manifest));
        self.state().in_hand = Some(InHand { manifest, is_of_us, receipt });
    }

    /// Whether anything of this process waits on disk alone.
    pub(in crate::export) fn has_released(&self) -> bool {
        !self.state().released.is_empty()
    }

    /// What came back from disk was acknowledged, perhaps with a warning.
    pub(in crate::export) fn replayed(&self, manifest: &Manifest, receipt: Arc<Receipt>, warning: Option<String>) {
        let mut state = self.state();
        state.stats.last_error = warning.or(state.stats.last_error.take());
        state.in_hand = None;
        let is_of_us = self.is_of_us(manifest);
        match state.claim(manifest, is_of_us) {
            Some(Released { fate, .. }) => {
                state.stats.delivered += fate.contents().stacks;
                state.kinds.export(fate.contents());
                fate.accepted();
            }
            // It has its verdict already.
            None if is_of_us => {}
            None => state.stats.replayed += manifest.contents.stacks,
        }
        self.publish(&state);
        drop(state);
        self.settle(receipt);
    }

    /// What came back from disk will not be sent again.
    pub(in crate::export) fn replay_given_up(&self, manifest: &Manifest, receipt: Arc<Receipt>, cause: Cause) {
        let mut state = self.state();
        state.in_hand = None;
        state.lose(manifest, self.is_of_us(manifest), cause);
        self.publish(&state);
        drop(state);
        self.settle(receipt);
    }

    /// An attempt to send what came back from disk has failed: perhaps without an answer.
    pub(in crate::export) fn failed(&self, unanswered: bool, why: String) {
        let mut state = self.state();
        state.stats.last_error = Some(why);
        let serial = state.in_hand.as_ref().filter(|in_hand| in_hand.is_of_us).map(|in_hand| in_hand.manifest.serial);
        if let Some(released) = serial.and_then(|serial| state.released.get_mut(&serial)) {
            released.unanswered |= unanswered;
        }
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
        let Some(Entry { number, parcel, unanswered, .. }) = self.entries.remove(index) else { return };
        self.bytes -= parcel.body.len();
        if let Some(Spooled { serial, receipt }) = parcel.spooled {
            let record = receipt.number();
            shelf.release(receipt);
            self.released.insert(serial, Released { number, unanswered, fate: parcel.fate, record });
        }
    }

    /// What is being sent goes with its body, if that is on disk no more: the next process will not have it.
    pub(super) fn let_go_of_hand(&mut self, cause: Cause) {
        if let Some(InHand { manifest, is_of_us, .. }) = self.in_hand.take_if(|in_hand| !in_hand.receipt.is_kept()) {
            self.lose(&manifest, is_of_us, cause);
        }
    }

    /// The fate of what came back, if it is still to be decided: of an earlier process it is not ours to decide.
    fn claim(&mut self, manifest: &Manifest, is_of_us: bool) -> Option<Released> {
        is_of_us.then(|| self.released.remove(&manifest.serial))?
    }

    fn lose(&mut self, manifest: &Manifest, is_of_us: bool, cause: Cause) {
        match self.claim(manifest, is_of_us) {
            Some(Released { fate, unanswered, .. }) => self.give_up(&fate, or_unanswered(cause, unanswered)),
            // Of ours, it has its verdict already, or memory still has it.
            None if is_of_us => {}
            None => self.stats.replay_dropped.add(cause, manifest.contents.stacks),
        }
    }

    fn lose_all(&mut self, numbers: &Range<u64>, cause: Cause) {
        let in_hand = self.in_hand.as_ref().filter(|in_hand| in_hand.is_of_us).map(|in_hand| in_hand.manifest.serial);
        let is_lost = |serial: u64, released: &Released| Some(serial) != in_hand && numbers.contains(&released.record);
        let lost: Vec<u64> =
            self.released.iter().filter(|(serial, r)| is_lost(**serial, r)).map(|(serial, _)| *serial).collect();
        for serial in lost {
            if let Some(Released { fate, unanswered, .. }) = self.released.remove(&serial) {
                self.give_up(&fate, or_unanswered(cause, unanswered));
            }
        }
    }
}
