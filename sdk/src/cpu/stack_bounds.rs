//! Where the stacks of threads end, so that handlers can read them directly.
//!
//! In: the memory map, and the stack pointers that handlers could not place. Out: bounds, into the slots. Runs on the
//! `profiler` thread.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use super::slots::{Slot, UnknownStack};
use crate::own_file::OwnFile;
use crate::unwind::memory::is_readable;

/// The memory map is read at most this often.
const EVERY: Duration = Duration::from_millis(500);
/// A thread on a stack that is not its own asks with each sample: it is answered twice as late each time, up to this.
const LATEST: Duration = Duration::from_secs(60);

/// The smallest page that there is.
const PAGE: u64 = 4096;

/// Answers the handlers that asked where the stacks of their threads end.
#[derive(Debug, Default)]
pub(super) struct StackBounds {
    read: Option<Instant>,
    /// Threads whose last question found no stack of theirs.
    refused: HashMap<u32, Refused>,
}

/// When a thread's questions are heard again.
#[derive(Debug)]
struct Refused {
    until: Instant,
    wait: Duration,
}

impl StackBounds {
    /// Answers those of `slots` that asked, if the last answer is long enough ago.
    pub(super) fn learn(&mut self, slots: impl Iterator<Item = &'static Slot>, now: Instant) {
        if self.read.is_some_and(|read| now - read < EVERY) {
            return;
        }
        let is_heard = |slot: &&Slot| self.refused.get(&slot.tid()).is_none_or(|refused| now >= refused.until);
        let unknown = slots.filter(is_heard).filter_map(|slot| Some((slot, slot.unknown_stack()?)));
        let mut unknown: Vec<(&Slot, UnknownStack)> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        self.read = Some(now);
        // Where it cannot be read, nobody is answered.
        drop(answer(&mut unknown));
        for (slot, _) in unknown {
            self.refuse(slot.tid(), now);
        }
        self.refused.retain(|_, refused| now < refused.until + LATEST);
    }

    /// A thread has ended: another one may have its id by now.
    pub(super) fn forget(&mut self, tid: u32) {
        self.refused.remove(&tid);
    }

    fn refuse(&mut self, tid: u32, now: Instant) {
        let wait = self.refused.get(&tid).map_or(2 * EVERY, |refused| (2 * refused.wait).min(LATEST));
        self.refused.insert(tid, Refused { until: now + wait, wait });
    }
}

/// Answers the questions, line by line of the memory map; those that stay are about stacks that are not the threads' own.
fn answer(unknown: &mut Vec<(&Slot, UnknownStack)>) -> io::Result<()> {
    let mut maps = BufReader::new(OwnFile::open(Path::new("/proc/thread-self/maps"))?);
    let mut line = Vec::new();
    while !unknown.is_empty() && maps.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        unknown.retain(|(slot, asked)| {
            let is_first = slot.tid() == std::process::id();
            let stack = stack_in(text.trim_end_matches('\n'), *asked, is_first);
            let stack = stack.and_then(|stack| present(&stack, asked.sp));
            stack.as_ref().inspect(|stack| slot.set_stack(stack)).is_none()
        });
        line.clear();
    }
    Ok(())
}

/// The thread's own stack, if this line of the memory map holds it.
///
/// A mapping is taken for a stack that stays as long as its thread only if it is the one the kernel made for the first
/// thread, or if the thread's control block is in it too, which the C library puts at the upper end of the stack that
/// it makes for a thread. A coroutine's stack, which may go away under its thread, is neither. The first thread's control block
/// says nothing: it lies in memory like any other, and the kernel takes neighbours, such as a coroutine's stack, for one mapping.
fn stack_in(line: &str, asked: UnknownStack, is_first: bool) -> Option<Range<u64>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mapping = start..end;
    if !mapping.contains(&asked.sp) || !rest.starts_with("rw") {
        return None;
    }
    let own = !is_first && asked.sp < asked.thread_pointer && mapping.contains(&asked.thread_pointer);
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
    use crate::cpu::slots::Slots;

    const WORD: u64 = size_of::<u64>() as u64;

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
        let asked = UnknownStack { sp: 0x7000, thread_pointer: 0x8f00 };
        let find = |line: &str| stack_in(line, asked, false);
        assert_eq!(find("6000-9000 rw-p 00000000 00:00 0 "), Some(0x6000..0x8f00));
        assert_eq!(find("6000-8000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(find("6000-8000 rw-p 00000000 00:00 0    [stack]"), Some(0x6000..0x8000));
        assert_eq!(find("6000-9000 r--p 00000000 00:00 0 "), None);
        assert_eq!(find("1000-2000 rw-p 00000000 00:00 0 "), None);
        assert_eq!((find("nonsense"), find("")), (None, None));
        let of_first = |line: &str| stack_in(line, asked, true);
        assert_eq!(of_first("6000-9000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(of_first("6000-8000 rw-p 00000000 00:00 0    [stack]"), Some(0x6000..0x8000));
    }

    /// Check that a thread on a stack that is not its own is answered later each time, and others at once.
    #[test]
    fn a_stack_that_is_not_the_threads_is_looked_for_less_and_less() {
        let slots: &'static Slots = Box::leak(Box::new(Slots::new().unwrap()));
        let (foreign, own) = (slots.insert(1 << 22).unwrap(), slots.insert((1 << 22) + 1).unwrap());
        let (word, start) = (Box::new(0_u64), Instant::now());
        let mut bounds = StackBounds::default();
        // Each asks with each sample, and may have been answered.
        let answers = |bounds: &mut StackBounds, millis: u64| {
            let sp = ptr::from_ref(&*word) as u64;
            foreign.stack(sp, 0);
            own.stack(sp, sp + WORD);
            bounds.learn([foreign, own].into_iter(), start + Duration::from_millis(millis));
            (foreign.unknown_stack().is_none(), !own.stack(sp, sp + WORD).is_empty())
        };
        let mut told = |first, second| (answers(&mut bounds, first), answers(&mut bounds, second));
        assert_eq!(told(0, 500), ((true, true), (false, true)));
        assert_eq!(told(1000, 2500), ((true, true), (false, true)));
        assert_eq!(told(3000, 3500), ((true, true), (false, true)));
        // A thread that gets the id of one that has ended is heard at once.
        bounds.forget(foreign.tid());
        assert_eq!(answers(&mut bounds, 4000), (true, true));
    }
}
