//! An allocator of the host's around jemalloc, which can refuse what is asked for inside jemalloc's hooks, and wait.
//!
//! In: calls of Rust's allocations. Out: jemalloc's memory; none, where it is told to, for a call within another one: only hooks make these.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tikv_jemallocator::Jemalloc;

use profiler_tests::mallctl::is_active;

thread_local! {
    /// Calls of this thread that are under way.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether hooks get no memory.
pub(crate) static REFUSES: AtomicBool = AtomicBool::new(false);
/// How often one got none.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Whether the next large block, once samples are taken, waits until another thread has allocated so often.
pub(crate) static WAITS: AtomicBool = AtomicBool::new(false);
/// How often it has.
pub(crate) static OTHERS: AtomicU64 = AtomicU64::new(0);

const LARGE: usize = 1 << 16;
const OFTEN: u64 = 100;

/// The allocator.
#[derive(Debug)]
pub(crate) struct Around;

/// Makes a call, unless it is a hook's and these get nothing.
fn within(call: impl FnOnce() -> *mut u8) -> *mut u8 {
    let depth = DEPTH.get();
    if depth > 0 && REFUSES.load(Ordering::Relaxed) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return ptr::null_mut();
    }
    DEPTH.set(depth + 1);
    let block = call();
    DEPTH.set(depth);
    block
}

// SAFETY: hands on to an allocator what it got, or gives null, as an allocator may.
unsafe impl GlobalAlloc for Around {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && WAITS.load(Ordering::Relaxed) && is_active().unwrap_or(false) {
            WAITS.store(false, Ordering::Relaxed);
            let begun = OTHERS.load(Ordering::Relaxed);
            while OTHERS.load(Ordering::Relaxed) < begun + OFTEN {
                thread::yield_now();
            }
        }
        // SAFETY: as the caller promises.
        within(|| unsafe { Jemalloc.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        within(|| unsafe { Jemalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        within(|| unsafe { Jemalloc.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let depth = DEPTH.replace(DEPTH.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { Jemalloc.dealloc(block, layout) };
        DEPTH.set(depth);
    }
}
