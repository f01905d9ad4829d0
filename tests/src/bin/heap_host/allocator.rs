//! An allocator of the host's around jemalloc, which has a lock while it works, and can wait.
//!
//! In: calls of Rust's allocations. Out: jemalloc's memory, and how many calls came within another one of the same thread: of hooks, which must make none.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tikv_jemallocator::Jemalloc;

use profiler_tests::mallctl::is_active;

thread_local! {
    /// Calls of this thread that are under way.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether one call at a time is let in. Not in a program that forks: the child would have the lock as it was.
pub(crate) static IS_LOCKED: AtomicBool = AtomicBool::new(false);
/// How many calls came within another one, for which there is no lock any more.
pub(crate) static WITHIN: AtomicU64 = AtomicU64::new(0);

static LOCK: Mutex<()> = Mutex::new(());

/// Whether the next large block, once samples are taken, waits until another thread has allocated so often.
pub(crate) static WAITS: AtomicBool = AtomicBool::new(false);
/// How often it has.
pub(crate) static OTHERS: AtomicU64 = AtomicU64::new(0);

const LARGE: usize = 1 << 16;
const OFTEN: u64 = 100;

/// The allocator.
#[derive(Debug)]
pub(crate) struct Around;

/// Makes a call.
fn within<T>(call: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(DEPTH.get() + 1);
    if depth > 0 {
        WITHIN.fetch_add(1, Ordering::Relaxed);
    }
    let is_locked = depth == 0 && IS_LOCKED.load(Ordering::Relaxed);
    let lock = is_locked.then(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner));
    let outcome = call();
    drop(lock);
    DEPTH.set(depth);
    outcome
}

// SAFETY: hands on to an allocator what it got.
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
        // SAFETY: as the caller promises.
        within(|| unsafe { Jemalloc.dealloc(block, layout) });
    }
}
