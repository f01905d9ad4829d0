//! The bounds of a thread's own stack, written by the `profiler` thread and read by the thread's handler at any time.
//!
//! In: a range. Out: what of it is above a stack pointer; never the start of one range with the end of another.

use std::ops::Range;

use super::atomic::{AtomicU64, Ordering, fence};

/// A range that may change while it is read.
#[derive(Debug)]
pub(crate) struct Bounds {
    start: AtomicU64,
    /// 0 while there is none.
    end: AtomicU64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { start: AtomicU64::new(0), end: AtomicU64::new(0) }
    }
}

impl Bounds {
    /// From `sp` on to the end, if `sp` is in the range. Callable from a signal handler.
    pub(crate) fn above(&self, sp: u64) -> Option<Range<u64>> {
        self.whole().filter(|range| range.contains(&sp)).map(|range| sp..range.end)
    }

    /// The range, if there is one. Callable from a signal handler.
    pub(crate) fn whole(&self) -> Option<Range<u64>> {
        // Acquire: pairs with the Release store in `set`; who sees the end sees the start that belongs to it, or a later one.
        let end = self.end.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        // Acquire: pairs with the Release fence in `set`; who saw a later start sees that there is another end.
        fence(Ordering::Acquire);
        let is_whole = self.end.load(Ordering::Relaxed) == end;
        (is_whole && end > 0).then_some(start..end)
    }

    /// Another range. Only one thread calls this.
    pub(crate) fn set(&self, range: &Range<u64>) {
        self.end.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `whole`.
        fence(Ordering::Release);
        self.start.store(range.start, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `whole`.
        self.end.store(range.end, Ordering::Release);
    }
}
