//! Where the C library keeps a thread's id, so that the signal handler can read it without a system call.
//!
//! In: two threads that each know their id by `gettid(2)`. Out: the one offset from the thread pointer at which both find
//! their own id. Neither glibc nor musl documents it; it is looked for, verified twice, and done without if not found.

use super::handler::Shared;
use crate::unwind::arch::{THREAD_DESCRIPTOR, thread_pointer};
use crate::unwind::memory::read_own_memory;

use std::sync::atomic::Ordering;

/// Bytes read at once, from a multiple of it on, so that no read reaches over the end of what is mapped.
const BLOCK: u64 = 64;

/// Offsets from the calling thread's pointer at which its own id stands, modulo 2^64. (glibc 2.36: 720 on x86_64, -1568 on
/// aarch64; musl 1.2: 48 and -168.)
#[derive(Debug, Clone)]
pub(crate) struct Candidates(Vec<usize>);

impl Candidates {
    /// The offsets on the calling thread.
    pub(crate) fn here() -> Self {
        // SAFETY: gettid(2) has no argument and cannot fail.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let (pointer, pid) = (thread_pointer(), std::process::id());
        let start = pointer.wrapping_add_signed(THREAD_DESCRIPTOR.start) & !(BLOCK - 1);
        let end = pointer.wrapping_add_signed(THREAD_DESCRIPTOR.end);
        let ids = (start..end).step_by(BLOCK as usize).flat_map(|block| {
            let mut words = [0_u64; BLOCK as usize / 8];
            let read = read_own_memory(pid, block, &mut words) as usize / 8;
            let halves = words.into_iter().take(read).flat_map(|word| [word as u32, (word >> 32) as u32]);
            (block..).step_by(4).zip(halves)
        });
        Self(ids.filter(|(_, id)| *id == tid).map(|(place, _)| place.wrapping_sub(pointer) as usize).collect())
    }

    /// Stores the offset on which another thread's candidates and the calling thread's agree. The main thread's
    /// descriptor may hold the process id, which equals its thread id, elsewhere too; the other thread tells them apart.
    pub(crate) fn settle(&self, shared: &Shared) {
        let here = Self::here();
        let common = self.0.iter().find(|offset| here.0.contains(offset));
        shared.tid_offset.store(common.copied().unwrap_or(0), Ordering::Relaxed);
    }
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
