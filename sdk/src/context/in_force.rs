//! The pointer to the record that is in force on a thread: one word, which the thread moves and its signal handler follows.
//!
//! In: a record that is whole, from the thread itself. Out: the same, for the thread's handler, at whichever instruction it comes, and for a
//! reader outside while the thread stands still. Handler and thread are one to the processor, which shows each its own doings in order; the
//! compiler alone would bring them out of order, and the fences here forbid it. Nothing here allocates, locks or makes a system call.

use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

use super::records::Record;

/// Null: nothing is in force.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct InForce(AtomicPtr<Record>);

impl InForce {
    /// Nothing. (Where there is a sampler, a thread's own is zero at its birth, which is the same.)
    #[cfg(any(test, not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))))]
    pub(super) const fn nothing() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Puts a record in force, or null for nothing.
    ///
    /// # Safety
    /// The record is not written and not freed before the next call of this.
    #[inline]
    pub(super) unsafe fn put(&self, record: *const Record) {
        // Pairs with the fence in `get`: who sees the pointer sees what was written into the record before.
        compiler_fence(Ordering::Release);
        self.0.store(record.cast_mut(), Ordering::Relaxed);
        // Pairs with the load in `get`: what is written into the old record from here on stays behind the store, so who still finds that
        // record in force finds it as it was.
        compiler_fence(Ordering::Release);
    }

    /// The record in force, or null.
    #[inline]
    pub(super) fn get(&self) -> *const Record {
        let record = self.0.load(Ordering::Relaxed);
        // Pairs with the first fence in `put`.
        compiler_fence(Ordering::Acquire);
        record
    }

    /// Has `look` look at the record in force, if there is one. For the thread itself and for its signal handler: `look` puts nothing in force.
    #[inline]
    pub(super) fn look<R>(&self, look: impl FnOnce(&Record) -> R) -> Option<R> {
        // SAFETY: null, or as `put` asks for: not written nor freed before another one is in force, and the thread stands still while its
        //         handler runs.
        unsafe { self.get().as_ref() }.map(look)
    }
}
