//! How many tags were left out, and how many were altered.
//!
//! In: from wherever a tag finds no room, or is made to fit. Out: their numbers, for [`TagStats`](crate::TagStats).

use std::sync::atomic::{AtomicU64, Ordering};

/// What all threads count, in cache lines of its own: what each scope reads is not to lie beside it. Processors fetch two lines at once.
#[repr(align(128))]
struct Counts {
    /// Tags that were left out, in this process.
    left_out: AtomicU64,
    /// Tags that were altered.
    altered: AtomicU64,
}

static COUNTS: Counts = Counts { left_out: AtomicU64::new(0), altered: AtomicU64::new(0) };

/// Tags that were left out since the process began.
pub(crate) fn left_out() -> u64 {
    COUNTS.left_out.load(Ordering::Relaxed)
}

/// Tags whose key or value was cut, or had control characters replaced, since the process began.
pub(crate) fn altered() -> u64 {
    COUNTS.altered.load(Ordering::Relaxed)
}

/// Counts tags that are left out.
#[inline]
pub(super) fn leave_out(tags: u64) {
    if tags > 0 {
        COUNTS.left_out.fetch_add(tags, Ordering::Relaxed);
        #[cfg(test)]
        HERE.set(HERE.get() + tags);
    }
}

/// Counts a tag that is altered.
#[cold]
pub(super) fn alter() {
    COUNTS.altered.fetch_add(1, Ordering::Relaxed);
    #[cfg(test)]
    ALTERED_HERE.set(ALTERED_HERE.get() + 1);
}

#[cfg(test)]
thread_local! {
    /// Those of the calling thread.
    static HERE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    static ALTERED_HERE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Tags that were left out on the calling thread: those of a test, which runs beside others.
#[cfg(test)]
pub(super) fn left_out_here() -> u64 {
    HERE.get()
}

/// Tags that were altered there.
#[cfg(test)]
pub(super) fn altered_here() -> u64 {
    ALTERED_HERE.get()
}
