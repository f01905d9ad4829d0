//! The system's allocator, counting: how much memory a piece of work takes at its peak.
//!
//! In: every allocation of this process. Out: bytes. What other threads allocate meanwhile counts, too: there should be none that do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are given out and not given back. Partner: nobody, each figure is one by itself.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The most that it was since the last question.
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The allocator.
pub(crate) struct Counting;

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to `System` unchanged; counting touches no memory that it gives out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is also `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `place` comes from `System`, with the same layout: the caller keeps `GlobalAlloc::dealloc`'s contract.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above, by `GlobalAlloc::realloc`'s contract.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// What comes of `work`, and how many bytes more were given out at its peak than before it.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = work();
    (outcome, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}
