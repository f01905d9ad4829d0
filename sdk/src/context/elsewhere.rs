//! What each thread has of ours on systems without a sampler: scopes nest and are seen by their thread, and nobody samples.
//!
//! In: the thread itself, which changes what is in force. Out: the same, for the thread. The twin of `thread`.

use std::cell::Cell;
use std::ptr;

use super::own::Own;
use super::records::Record;

/// What a thread has of ours.
pub(super) struct Thread {
    in_force: Cell<*const Record>,
    own: Own,
}

thread_local! {
    /// [`THREAD`] is being made, which allocates, and the allocator may come here.
    static BEGINNING: Cell<bool> = const { Cell::new(false) };
    static THREAD: Thread = Thread::begin();
}

impl Thread {
    /// For which nothing is in force.
    fn begin() -> Self {
        BEGINNING.set(true);
        let this = Self { in_force: Cell::new(ptr::null()), own: Own::new() };
        BEGINNING.set(false);
        this
    }

    /// Does `work` with what the calling thread has and the pointer to what is in force; `None` when the thread is ending, or
    /// making just that.
    pub(super) fn with_here<R>(work: impl FnOnce(&Own, &Cell<*const Record>) -> R) -> Option<R> {
        if BEGINNING.get() {
            return None;
        }
        THREAD.try_with(|thread| work(&thread.own, &thread.in_force)).ok()
    }
}
