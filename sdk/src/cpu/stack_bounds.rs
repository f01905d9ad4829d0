//! Where the stacks of threads end, so that handlers can read them directly.
//!
//! In: the memory map, and the stack pointers that handlers could not place. Out: bounds, into the slots. Runs on the
//! `profiler` thread.

use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::slots::{Slot, UnknownStack};
use crate::unwind::memory::is_readable;

/// The memory map is read at most this often.
const EVERY: Duration = Duration::from_millis(500);

/// The smallest page that there is.
const PAGE: u64 = 4096;

/// Answers the handlers that asked where the stacks of their threads end.
#[derive(Debug, Default)]
pub(super) struct StackBounds {
    read: Option<Instant>,
}

impl StackBounds {
    /// Answers those of `slots` that asked, if the last answer is long enough ago.
    pub(super) fn learn(&mut self, slots: impl Iterator<Item = &'static Slot>, now: Instant) {
        if self.read.is_some_and(|read| now - read < EVERY) {
            return;
        }
        let unknown: Vec<_> = slots.filter_map(|slot| Some((slot, slot.unknown_stack()?))).collect();
        if unknown.is_empty() {
            return;
        }
        self.read = Some(now);
        let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
        for (slot, asked) in unknown {
            let stack = maps.lines().find_map(|line| stack_in(line, asked));
            if let Some(stack) = stack.and_then(|stack| present(&stack, asked.sp)) {
                slot.set_stack(&stack);
            }
        }
    }
}

/// The thread's own stack, if this line of the memory map holds it.
///
/// A mapping is taken for a stack that stays as long as its thread only if it is the one the kernel made for the main
/// thread, or if the thread's control block is in it too, which the C library puts at the upper end of the stack that
/// it makes for a thread. A coroutine's stack, which may go away under its thread, is neither.
fn stack_in(line: &str, asked: UnknownStack) -> Option<Range<u64>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mapping = start..end;
    if !mapping.contains(&asked.sp) || !rest.starts_with("rw") {
        return None;
    }
    let own = asked.sp < asked.thread_pointer && mapping.contains(&asked.thread_pointer);
    match rest.ends_with("[stack]") {
        true => Some(mapping),
        false if own => Some(start..asked.thread_pointer),
        false => None,
    }
}

/// The stack from the page of `sp` on, if every page up to its end can be read.
///
/// Guard pages made by `madvise(2)` (glibc 2.42 and later, Linux 6.13 and later) do not split a mapping, so stacks of several
/// threads and of coroutines may lie in one, with pages between them that kill whoever reads them. What is below `sp` may be
/// such a page, or another stack: it is not taken for part of this one.
fn present(stack: &Range<u64>, sp: u64) -> Option<Range<u64>> {
    let own = (sp & !(PAGE - 1)).max(stack.start)..stack.end;
    own.clone().step_by(PAGE as usize).all(is_readable).then_some(own)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// Check that a page that cannot be read, in the middle of what seems to be one stack, keeps what is below from being
    /// read directly, and not what is above.
    #[test]
    fn a_hole_in_a_mapping_is_not_read_over() {
        const PAGES: u64 = 7;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping, of which one page is then protected (mmap(2), mprotect(2)).
        let start = unsafe {
            let base = libc::mmap(ptr::null_mut(), (PAGES * PAGE) as usize, protection, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.byte_add(3 * PAGE as usize), PAGE as usize, libc::PROT_NONE), 0);
            base as u64
        };
        let stack = start..start + PAGES * PAGE - 64;
        let at = |page: u64| present(&stack, start + page * PAGE + 8);
        assert_eq!((at(0), at(2), at(3)), (None, None, None));
        assert_eq!(at(4), Some(start + 4 * PAGE..stack.end));
        assert_eq!(at(6), Some(start + 6 * PAGE..stack.end));
        // SAFETY: unmaps what was mapped above.
        unsafe { libc::munmap(start as *mut _, (PAGES * PAGE) as usize) };
        assert_eq!(at(4), None);
    }

    /// Check that only a mapping that surely is the thread's own stack is read directly.
    #[test]
    fn only_own_stacks_are_read_directly() {
        let find = |line: &str| stack_in(line, UnknownStack { sp: 0x7000, thread_pointer: 0x8f00 });
        assert_eq!(find("6000-9000 rw-p 00000000 00:00 0 "), Some(0x6000..0x8f00));
        assert_eq!(find("6000-8000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(find("6000-8000 rw-p 00000000 00:00 0    [stack]"), Some(0x6000..0x8000));
        assert_eq!(find("6000-9000 r--p 00000000 00:00 0 "), None);
        assert_eq!(find("1000-2000 rw-p 00000000 00:00 0 "), None);
        assert_eq!((find("nonsense"), find("")), (None, None));
    }
}
