//! A stack of its own for the walk: evaluating unwind rules takes a few KiB, which the thread may not have.
//!
//! In: a piece of work of the signal handler, or of a hook of the allocator. Out: the same work done, with the stack pointer in a scratch's memory
//! meanwhile. The thread's own stack then holds the kernel's signal frame and a few hundred bytes of ours. Mapped by
//! `start`, with a guard page below; never unmapped, as the scratch that holds it is not.

use std::{io, ptr};

use crate::error::Error;
use crate::unwind::arch::call_on_stack;

/// Bytes of a stack; only pages that are used take memory. Builds without optimization need the most.
const SIZE: usize = 128 << 10;
/// A page at least, and whole pages: aarch64 has pages of 4, 16 or 64 KiB.
const GUARD: usize = 64 << 10;

/// A stack in memory of its own.
///
/// Invariant: the `SIZE` bytes below `top` are mapped, readable and writable; the `GUARD` bytes below them are not.
#[derive(Debug)]
pub(crate) struct Stack {
    top: *mut libc::c_void,
}

// SAFETY: the memory belongs to this value and to no thread; whoever holds it exclusively may use it.
unsafe impl Send for Stack {}

impl Stack {
    /// Maps a stack.
    ///
    /// # Errors
    /// When the kernel has no memory to map.
    pub(crate) fn map() -> Result<Self, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice (mmap(2)); its lowest page, which
        //         nothing uses yet, is then protected (mprotect(2)).
        let base = unsafe {
            let base = libc::mmap(ptr::null_mut(), GUARD + SIZE, protection, flags, -1, 0);
            if base == libc::MAP_FAILED || libc::mprotect(base, GUARD, libc::PROT_NONE) != 0 {
                let why = io::Error::last_os_error();
                return Err(Error::environment("mmap a stack for walks", why, "raise the memory limit"));
            }
            base
        };
        // SAFETY: the end of the mapping made above.
        Ok(Self { top: unsafe { base.byte_add(GUARD + SIZE) } })
    }

    /// Runs `work` on this stack. `work` must not panic: it would abort the process. Callable from a signal handler.
    pub(crate) fn run<F: FnMut()>(&mut self, mut work: F) {
        // SAFETY: `top` is the upper end of a mapped stack that nobody else uses, for `self` is borrowed exclusively;
        //         it is a page's end, so it is aligned to 16 bytes.
        unsafe { call_on_stack(self.top, &mut work) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "heap")]
    use crate::unwind::{
        arch::Registers,
        frames::{Frames, StackEnd},
        memory::{StackMemory, Window},
        modules::Modules,
        rules::Cache,
        walk::Snapshot,
    };

    /// Check that work runs on the stack's memory and that its outcome arrives.
    #[test]
    fn work_runs_on_the_stack() {
        let mut stack = Stack::map().unwrap();
        let top = stack.top as usize;
        let (mut place, mut sum) = (0, 0);
        stack.run(|| {
            let local = [1_u64; 64];
            place = std::hint::black_box(&local).as_ptr() as usize;
            sum = local.iter().sum();
        });
        assert!((top - SIZE..top).contains(&place) && sum == 64);
    }

    /// Check that a walk that begins amid the work finds the way back to who has it run, and on to the root: signals come there, too.
    #[cfg(feature = "heap")]
    #[test]
    fn the_way_back_is_found() {
        let snapshot = Snapshot::take(&Modules::default());
        let (mut stack, mut cache, mut window, mut frames) =
            (Stack::map().unwrap(), Cache::new(), Window::new(), Frames::new());
        let mut end = StackEnd::Unknown;
        stack.run(|| {
            // SAFETY: the direct range is empty.
            let mut memory = unsafe { StackMemory::new(0..0, &mut window, std::process::id()) };
            end = snapshot.walk(&Registers::here(), &mut cache, &mut memory, &mut frames);
        });
        let ours = snapshot.function_at(the_way_back_is_found as *const () as u64);
        let found = frames.parts().concat().iter().any(|address| snapshot.function_at(*address) == ours);
        assert_eq!((end, ours.is_some(), found), (StackEnd::Root, true, true));
    }
}
