//! An allocator that counts, of a test binary that is nothing else: bytes that were given out and not given back, in all, at most, and by the calling
//! thread.
//!
//! In: every allocation of the process. Out: numbers. Any thread; nothing here allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Without a destructor, and made without the allocator.
    static HERE: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call goes to `System` unchanged; counting touches no memory that it gives out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        HERE.set(HERE.get().wrapping_add_unsigned(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is also `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        HERE.set(HERE.get().wrapping_sub_unsigned(layout.size()));
        // SAFETY: `place` comes from `alloc` above, hence from `System`, with the same layout.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are given out and not given back.
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// What `work` takes at most beyond what is given out before it, and what comes of it. For one at a time.
pub(crate) fn most_during<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = live();
    MOST.store(before, Ordering::Relaxed);
    let outcome = work();
    (MOST.load(Ordering::Relaxed) - before, outcome)
}

/// Bytes that the calling thread was given, less those that it gave back, whoever was given them.
pub(crate) fn held_here() -> isize {
    HERE.get()
}
