//! Where the C library keeps a thread's id, so that the signal handler can read it without a system call.
//!
//! In: two threads that each know their id by `gettid(2)`. Out: the one offset from the thread pointer at which both find
//! their own id. Neither glibc nor musl documents it; it is looked for, verified twice, and done without if not found.

use super::handler::Shared;
use crate::unwind::arch::{THREAD_DESCRIPTOR, thread_pointer};
use crate::unwind::memory::is_readable;

use std::sync::atomic::Ordering;

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

    /// Stores the offset on which another thread's candidates and the calling thread's agree. The main thread's
    /// descriptor may hold the process id, which equals its thread id, elsewhere too; the other thread tells them apart.
    pub(crate) fn settle(&self, shared: &Shared) {
        let here = Self::here();
        let common = self.0.iter().find(|offset| here.0.contains(offset));
        shared.tid_offset.store(common.copied().unwrap_or(0), Ordering::Relaxed);
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

    /// Check that two threads agree on one offset and that a third finds its id there.
    #[test]
    fn threads_agree_on_the_offset() {
        let shared = Shared::new(2).unwrap();
        let first = Candidates::here();
        std::thread::scope(|scope| scope.spawn(|| first.settle(&shared)).join().unwrap());
        let offset = shared.tid_offset.load(Ordering::Relaxed);
        assert_ne!(offset, 0);
        assert!(std::thread::spawn(move || Candidates::here().0.contains(&offset)).join().unwrap());
    }
}
