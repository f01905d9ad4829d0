//! Whether anybody waits for what is captured: whoever had no answer in time leaves a thread behind, which is to do no more of what nobody will see.
//!
//! In: who asks keeps an [`Awaiting`] as long as it waits. Out: memory that is not read any more, and names that are not looked up. Any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::target::{self, Fault, Piece};

use super::memory::Memory;

/// Whether it is waited for; always, where nobody said otherwise.
#[derive(Debug, Clone, Default)]
pub struct Awaited(Arc<AtomicBool>);

/// Whoever waits; when it is dropped nobody does.
#[derive(Debug)]
pub struct Awaiting(Awaited);

impl Awaited {
    /// As long as what is returned with it lives.
    #[must_use]
    pub fn begin() -> (Awaiting, Self) {
        let awaited = Self::default();
        (Awaiting(awaited.clone()), awaited)
    }

    /// Whether nobody waits any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// The memory of a process as long as it is waited for.
pub(super) struct Remote<'a> {
    pub(super) memory: target::Memory,
    pub(super) pid: u32,
    pub(super) awaited: &'a Awaited,
}

impl Memory for Remote<'_> {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        // To whoever reads it is as good as gone; nobody is told.
        if self.awaited.is_over() { Err(Fault::Gone { pid: self.pid }) } else { self.memory.read_many(pieces) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::Work;
    use super::*;
    use crate::target::Process;

    /// Check that memory is read, and names are looked up, as long as somebody waits for them, and no longer.
    #[test]
    fn nothing_is_read_that_nobody_waits_for() {
        let own = Process::find(std::process::id()).unwrap();
        let (awaiting, awaited) = Awaited::begin();
        let word = 0x0123_4567_89ab_cdef_u64;
        let read = || {
            let remote = Remote { memory: own.memory(), pid: own.pid(), awaited: &awaited };
            remote.word(std::ptr::from_ref(&word).addr() as u64)
        };
        let names = Work::for_names().awaited(&awaited);
        assert_eq!((read().unwrap(), names.is_spent()), (Some(word), false));
        drop(awaiting);
        assert!(read().unwrap_err().is_gone() && names.is_spent());
        assert!(!Awaited::default().is_over());
    }
}
