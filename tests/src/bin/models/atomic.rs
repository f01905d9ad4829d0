//! The model checker's atomics, under the names that the SDK's sources use.
//!
//! The checker takes `SeqCst` for no more than acquire and release, which the pool needs more than. Where all accesses of a
//! place are `SeqCst`, as those of the pool's states and epoch are, each sees the last one before it in one order of all;
//! a read-modify-write does just that in the checker. So `SeqCst` loads and stores are made of one.

pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use loom::thread::yield_now;

/// An atomic whose `SeqCst` accesses are in one order of all.
#[derive(Debug, Default)]
pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> Self {
        Self(loom::sync::atomic::AtomicU32::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        match order {
            Ordering::SeqCst => self.0.fetch_add(0, order),
            weaker => self.0.load(weaker),
        }
    }

    pub(crate) fn store(&self, value: u32, order: Ordering) {
        match order {
            Ordering::SeqCst => drop(self.0.swap(value, order)),
            weaker => self.0.store(value, weaker),
        }
    }

    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }

    pub(crate) fn compare_exchange(&self, old: u32, new: u32, ok: Ordering, failed: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange(old, new, ok, failed)
    }
}
