//! The record of each thread on systems without a sampler: scopes nest and are seen by their thread, and nobody samples.
//!
//! In: the thread itself, which changes its record. Out: the same record, for the thread. The twin of `thread`.

use std::cell::Cell;

use super::Record;

/// What a thread has of ours.
pub(super) struct Thread {
    record: Cell<Record>,
}

thread_local! {
    static THREAD: Thread = const { Thread { record: Cell::new(Record::EMPTY) } };
}

impl Thread {
    /// The calling thread's own.
    pub(super) fn with_here<R>(work: impl FnOnce(&Self) -> R) -> R {
        THREAD.with(work)
    }

    /// The record in force.
    pub(super) fn record(&self) -> Record {
        self.record.get()
    }

    /// Puts `record` in force.
    pub(super) fn publish(&self, record: Record) {
        self.record.set(record);
    }
}
