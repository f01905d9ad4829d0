//! One level of a thread's scopes: a record, and how much of it the scope itself brought.
//!
//! In: a scope's tags, the span that is current. Out: the record, for `scopes` to put in force. A thread's own; no handler comes here but through
//! the pointer that is in force.

use super::records::{Linked, Record};

/// Number of levels that are nobody's to leave.
pub(super) const NOBODY: u32 = u32::MAX - 1;

/// The two that change places with another level's are not neighbours: moved as 16 bytes, of which 8 were written a moment before, they make a
/// processor wait. In a cache line of its own, as the record.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Level {
    /// From a `Box`, which is freed with the level.
    record: *mut Record,
    /// Bytes of the tags that the scope itself brought.
    own: usize,
    /// The turn whose span stands in the record.
    turn: u64,
    /// They stand in the place of all outer ones.
    pub(super) replaces: bool,
    /// The scope's number. One that comes round again, after 2^32 scopes of the thread, is taken for the newer scope.
    pub(super) number: u32,
}

impl Level {
    /// Nobody's, with an empty record.
    pub(super) fn new() -> Self {
        Self { record: Box::into_raw(Box::new(Record::EMPTY)), turn: 0, own: 0, replaces: false, number: NOBODY }
    }

    /// Is that of a scope with this number from now on.
    #[inline]
    pub(super) fn begin(&mut self, number: u32, own: usize, replaces: bool) {
        (self.number, self.own, self.replaces) = (number, own, replaces);
    }

    /// What may be put in force.
    #[inline]
    pub(super) fn record(&self) -> &Record {
        // SAFETY: from a `Box` that is freed with the level, and written through the level alone.
        unsafe { &*self.record }
    }

    /// What may be written.
    ///
    /// # Safety
    /// The record is not in force.
    #[inline]
    pub(super) unsafe fn record_mut(&mut self) -> &mut Record {
        // SAFETY: as above, and not in force, as the caller has it: no handler that interrupts this reads it.
        unsafe { &mut *self.record }
    }

    /// Writes the span of this turn, where another one stands: it is nearly always there already.
    ///
    /// # Safety
    /// The record is not in force.
    #[inline]
    pub(super) unsafe fn link(&mut self, linked: Linked, turn: u64) {
        if self.turn != turn {
            self.turn = turn;
            // SAFETY: the caller has it.
            unsafe { self.record_mut() }.link(linked);
        }
    }

    /// The tags that the scope itself brought.
    pub(super) fn own_tags(&self) -> &[u8] {
        self.record().tags().get(..self.own).unwrap_or(&[])
    }

    /// Changes records with another level.
    #[inline]
    pub(super) fn swap_records(&mut self, other: &mut Self) {
        let (record, turn) = (other.record, other.turn);
        let (record, turn) = (std::mem::replace(&mut self.record, record), std::mem::replace(&mut self.turn, turn));
        (other.record, other.turn) = (record, turn);
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        // SAFETY: from a `Box`, and freed nowhere else; whoever owns the level has taken its record back (`Scopes`).
        drop(unsafe { Box::from_raw(self.record) });
    }
}
