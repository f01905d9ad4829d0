//! The allocator of this program: the system's, with a count for each thread.
//!
//! In: every allocation. Out: how many the calling thread made so far. Callable from anywhere, also before and after a
//! thread's own code; the count is constant-initialized thread-local memory of an executable, which is always there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and releases of the calling thread.
pub(crate) fn count() -> u64 {
    COUNT.with(Cell::get)
}

fn one_more() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: every method hands its arguments to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        one_more();
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        one_more();
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(block, layout, size) }
    }
}
