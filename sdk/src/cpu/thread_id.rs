//! Where the C library keeps a thread's id, so that the signal handler can read it without a system call.
//!
//! In: two threads that each know their id by `gettid(2)`. Out: the one offset from the thread pointer at which both find
//! their own id. Neither glibc nor musl documents it; it is looked for, verified twice, and done without if not found.

use super::handler::Shared;
use crate::unwind::x86_64::{read_own_memory, thread_pointer};

use std::sync::atomic::Ordering;

/// How far to look: glibc's descriptor holds the id at 720 (2.36, x86_64), musl's at 48.
const WORDS: usize = 128;

/// Offsets from the calling thread's pointer at which its own id stands.
#[derive(Debug, Clone)]
pub(crate) struct Candidates(Vec<usize>);

impl Candidates {
    /// The offsets on the calling thread.
    pub(crate) fn here() -> Self {
        // SAFETY: gettid(2) has no argument and cannot fail.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let mut words = [0_u64; WORDS];
        let read = read_own_memory(std::process::id(), thread_pointer(), &mut words) as usize / 8;
        let halves = words[..read].iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        Self(halves.enumerate().filter(|(_, half)| *half == tid).map(|(index, _)| index * 4).collect())
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
