//! A stack of its own for the walk: evaluating unwind rules takes a few KiB, which the thread may not have.
//!
//! In: a piece of work of the signal handler, or of a hook of the allocator. Out: the same work done, with the stack pointer in a scratch's memory
//! meanwhile. The thread's own stack then holds the kernel's signal frame and a few hundred bytes of ours. Mapped by
//! `start`, each with a guard page below; never unmapped, as the scratch that holds it is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, ptr};

use crate::error::Error;
use crate::unwind::arch::call_on_stack;

/// Bytes of a stack; only pages that are used take memory. Builds without optimization need the most.
const SIZE: usize = 128 << 10;
/// A page at least, and whole pages: aarch64 has pages of 4, 16 or 64 KiB.
const GUARD: usize = 64 << 10;

/// From where to where the stacks of the allocator's hooks are; none: 0 to 0.
static OF_HOOKS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether this stack pointer is on one of those: the thread is amid a hook then. Callable from a signal handler.
pub(crate) fn is_of_hook(sp: u64) -> bool {
    let [start, end] = OF_HOOKS.each_ref().map(|place| place.load(Ordering::Relaxed));
    (start..end).contains(&sp)
}

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
    /// Maps so many stacks, one above the other.
    ///
    /// # Errors
    /// When the kernel has no memory to map; nothing is left mapped then.
    pub(crate) fn map(count: usize) -> Result<Vec<Self>, Error> {
        let base = Self::map_all(count).map_err(|why| {
            let remedy = "raise the memory limit, or vm.max_map_count, of which each takes two";
            Error::environment("mmap stacks for walks", why, remedy)
        })?;
        // SAFETY: ends of the parts of the mapping made above.
        Ok((1..=count).map(|number| Self { top: unsafe { base.byte_add(number * (GUARD + SIZE)) } }).collect())
    }

    /// The same for hooks of the allocator, of which signal handlers know.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    #[cfg(feature = "heap")]
    pub(crate) fn map_for_hooks(count: usize) -> Result<Vec<Self>, Error> {
        let stacks = Self::map(count)?;
        if let Some(last) = stacks.last() {
            let end = last.top.addr() as u64;
            OF_HOOKS[0].store(end - (count * (GUARD + SIZE)) as u64, Ordering::Relaxed);
            OF_HOOKS[1].store(end, Ordering::Relaxed);
        }
        Ok(stacks)
    }

    fn map_all(count: usize) -> io::Result<*mut libc::c_void> {
        let length = count * (GUARD + SIZE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice (mmap(2)).
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for number in 0..count {
            // SAFETY: the lowest pages of a part of that mapping, which nothing uses yet, are protected (mprotect(2)).
            if unsafe { libc::mprotect(base.byte_add(number * (GUARD + SIZE)), GUARD, libc::PROT_NONE) } != 0 {
                let why = io::Error::last_os_error();
                // SAFETY: the whole mapping, which nobody knows of yet (munmap(2)).
                unsafe { libc::munmap(base, length) };
                return Err(why);
            }
        }
        Ok(base)
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
        let mut stack = Stack::map(1).unwrap().remove(0);
        let top = stack.top as usize;
        let (mut place, mut sum) = (0, 0);
        stack.run(|| {
            let local = [1_u64; 64];
            place = std::hint::black_box(&local).as_ptr() as usize;
            sum = local.iter().sum();
        });
        assert!((top - SIZE..top).contains(&place) && sum == 64);
    }

    /// Check that stacks mapped together lie apart, each with its guard, and that those of hooks are known, and no others.
    #[cfg(feature = "heap")]
    #[test]
    fn stacks_lie_apart() {
        let mut stacks = Stack::map_for_hooks(3).unwrap();
        let mut others = Stack::map(1).unwrap();
        let mut places = Vec::with_capacity(4);
        for stack in stacks.iter_mut().chain(&mut others) {
            let top = stack.top.addr();
            stack.run(|| {
                let local = 0_u8;
                places.push((top, std::hint::black_box(&raw const local).addr()));
            });
        }
        assert!(places.iter().all(|(top, place)| (top - SIZE..*top).contains(place)), "{places:x?}");
        assert!(places[..3].windows(2).all(|pair| pair[1].0 - pair[0].0 == GUARD + SIZE), "{places:x?}");
        let known: Vec<_> = places.iter().map(|(_, place)| is_of_hook(*place as u64)).collect();
        assert_eq!(known, [true, true, true, false]);
    }

    /// Check that a walk that begins amid the work finds the way back to who has it run, and on to the root: signals come there, too.
    #[cfg(feature = "heap")]
    #[test]
    fn the_way_back_is_found() {
        let snapshot = Snapshot::take(&Modules::default());
        let (mut stack, mut cache, mut window, mut frames) =
            (Stack::map(1).unwrap().remove(0), Cache::new(), Window::new(), Frames::new());
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
