//! Where the C library keeps a thread's id, so that the signal handler can read it without a system call.
//!
//! In: two threads that each know their id by `gettid(2)`. Out: the one offset from the thread pointer at which both find
//! their own id, and by it any thread's ([`IdPlace`]). Neither glibc nor musl documents it; it is looked for, verified twice, and
//! done without if not found.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::unwind::arch::{THREAD_DESCRIPTOR, thread_pointer};
use crate::unwind::memory::is_readable;

/// Bytes that are read where their first word can be: from a multiple on, so that they lie in one page.
const BLOCK: u64 = 64;

/// Offsets from the calling thread's pointer at which its own id stands, modulo 2^64. (glibc 2.36: 720 on x86_64, -1568 on
/// aarch64; musl 1.2: 48 and -168.)
#[derive(Debug, Clone)]
pub(crate) struct Candidates(Vec<usize>);

impl Candidates {
    /// The offsets on the calling thread.
    pub(crate) fn here() -> Self {
        let tid = own_id();
        let pointer = thread_pointer();
        let start = pointer.wrapping_add_signed(THREAD_DESCRIPTOR.start) & !(BLOCK - 1);
        let end = pointer.wrapping_add_signed(THREAD_DESCRIPTOR.end);
        let blocks = (start..end).step_by(BLOCK as usize).filter(|block| is_readable(*block));
        let places = blocks.flat_map(|block| (block..block + BLOCK).step_by(4));
        // SAFETY: in a page that can be read, and that stays: around its thread pointer lies what the C library keeps of a
        //         thread that runs. Volatile, for others may write there.
        let is_id = |place: &u64| unsafe { (*place as *const u32).read_volatile() } == tid;
        Self(places.filter(is_id).map(|place| place.wrapping_sub(pointer) as usize).collect())
    }

    /// The first offset of these and of another thread's. The main thread's descriptor may hold the process id, which equals
    /// its thread id, elsewhere too; the other thread tells them apart.
    fn common(&self, other: &Self) -> Option<usize> {
        self.0.iter().find(|offset| other.0.contains(offset)).copied()
    }
}

/// Where a thread's id stands, as an offset from its thread pointer, which may be negative (modulo 2^64); 0: not known.
#[derive(Debug, Default)]
pub(crate) struct IdPlace(AtomicUsize);

impl IdPlace {
    /// Learns the place from what another thread found and the calling one finds.
    pub(crate) fn learn(&self, other: &Candidates) {
        self.0.store(other.common(&Candidates::here()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether the place is known.
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The calling thread's id without a system call, where the place is known. Callable from a signal handler.
    pub(crate) fn own_id(&self) -> Option<u32> {
        let offset = self.0.load(Ordering::Relaxed);
        if offset == 0 {
            return None;
        }
        // SAFETY: the offset was verified on two threads to be the place of the thread id in the thread descriptor, whose
        //         distance to the thread pointer is fixed and which lives as long as its thread.
        Some(unsafe { ((thread_pointer() as usize).wrapping_add(offset) as *const u32).read_volatile() })
    }
}

/// The calling thread's id, by a system call.
pub(super) fn own_id() -> u32 {
    // SAFETY: gettid(2) has no argument and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two threads agree on one place, and that a third finds its id there.
    #[test]
    fn threads_agree_on_the_place() {
        let (place, first) = (IdPlace::default(), Candidates::here());
        assert_eq!((place.is_known(), place.own_id()), (false, None));
        std::thread::scope(|scope| scope.spawn(|| place.learn(&first)).join().unwrap());
        assert!(place.is_known());
        let found = std::thread::scope(|scope| scope.spawn(|| (place.own_id(), own_id())).join().unwrap());
        assert_eq!(found.0, Some(found.1));
    }
}
