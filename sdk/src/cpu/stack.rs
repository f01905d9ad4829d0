//! A stack of its own for the walk: evaluating unwind rules takes a few KiB, which the thread may not have.
//!
//! In: a piece of work of the signal handler, or of a hook of the allocator. Out: the same work done, with the stack pointer in a scratch's memory
//! meanwhile. The thread's own stack then holds the kernel's signal frame and a few hundred bytes of ours. Mapped by
//! `start`, each with a guard page below; never unmapped, as the scratch that holds it is not.

use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, ptr};

use crate::error::Error;
use crate::unwind::arch::call_on_stack;

/// Bytes of a stack; only pages that are used take memory. Builds without optimization need the most.
const SIZE: usize = 128 << 10;
/// A page at least, and whole pages: aarch64 has pages of 4, 16 or 64 KiB.
const GUARD: usize = 64 << 10;

/// Where stacks of the allocator's hooks are: one above the other, each with its guard.
struct OfHooks {
    all: Range<u64>,
    /// Those that were mapped before, as by the process that this one was forked from.
    next: *const OfHooks,
}

/// The ones that were mapped last; null: there are none. Never unmapped, and never freed.
static OF_HOOKS: AtomicPtr<OfHooks> = AtomicPtr::new(ptr::null_mut());

/// What is above this stack pointer of the stack of a hook, if it is on one: the thread is amid a hook then. It stays readable. Callable from a signal handler.
pub(crate) fn above_in_hook(sp: u64) -> Option<Range<u64>> {
    const EACH: u64 = (GUARD + SIZE) as u64;
    // Acquire: pairs with the Release store in `map_for_hooks`.
    let mut next: *const OfHooks = OF_HOOKS.load(Ordering::Acquire);
    // SAFETY: null, or from a `Box` that nobody frees.
    while let Some(OfHooks { all, next: before }) = unsafe { next.as_ref() } {
        if all.contains(&sp) {
            let within = (sp - all.start) % EACH;
            return (within >= GUARD as u64).then_some(sp..sp - within + EACH);
        }
        next = *before;
    }
    None
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
            let all = end - (count * (GUARD + SIZE)) as u64..end;
            let these = Box::into_raw(Box::new(OfHooks { all, next: ptr::null() }));
            let put = |before: *mut OfHooks| {
                // SAFETY: made above; nobody else knows of it until it is put there.
                unsafe { (*these).next = before };
                Some(these)
            };
            // Release: pairs with the Acquire load in `above_in_hook`.
            _ = OF_HOOKS.fetch_update(Ordering::Release, Ordering::Acquire, put);
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
    use crate::cpu::slots::Slots;
    #[cfg(feature = "heap")]
    use crate::unwind::{
        arch::{Registers, thread_pointer},
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
        let known = places.iter().map(|(_, place)| above_in_hook(*place as u64));
        let whole = |(top, place): &(usize, usize)| Some(*place as u64..*top as u64);
        assert_eq!(known.collect::<Vec<_>>(), [whole(&places[0]), whole(&places[1]), whole(&places[2]), None]);
        let guard = (places[1].0 - SIZE - 8) as u64;
        assert_eq!((above_in_hook(guard), above_in_hook(guard + 8)), (None, Some(guard + 8..places[1].0 as u64)));
    }

    /// Check that a walk that begins amid the work of a hook finds the way back to who has it run, and on to the root, for signals come there, too; and that both
    /// stacks are read directly, as where the kernel may not be asked: there is no thread 0.
    #[cfg(feature = "heap")]
    #[test]
    fn the_way_back_is_found() {
        let snapshot = Snapshot::take(&Modules::default());
        let (mut stack, mut cache, mut window, mut frames) =
            (Stack::map_for_hooks(1).unwrap().remove(0), Cache::new(), Window::new(), Frames::new());
        let slots: &'static Slots = Box::leak(Box::new(Slots::new().unwrap()));
        let slot = slots.insert(1).unwrap();
        let local = 0_u64;
        // With room for what stands here beside it, and for the frames of who has it run.
        slot.set_stack(&(ptr::from_ref(&local) as u64 - (256 << 10)..thread_pointer()));
        let (mut end, mut of_another) = (StackEnd::Unknown, [0..0, 0..0]);
        stack.run(|| {
            let registers = Registers::here();
            of_another = slot.stacks(registers.sp, thread_pointer() + 8, false);
            let [here, own] = slot.stacks(registers.sp, thread_pointer(), false);
            // SAFETY: the one is the stack that this runs on; the other is that of the thread, which has more room than that below what it uses.
            let mut memory = unsafe { StackMemory::new(here, &mut window, 0).with(own) };
            end = snapshot.walk(&registers, &mut cache, &mut memory, &mut frames);
        });
        let ours = snapshot.function_at(the_way_back_is_found as *const () as u64);
        let found = frames.parts().concat().iter().any(|address| snapshot.function_at(*address) == ours);
        assert_eq!((end, ours.is_some(), found), (StackEnd::Root, true, true));
        assert!(!of_another[0].is_empty() && of_another[1].is_empty(), "{of_another:?}");
    }
}
