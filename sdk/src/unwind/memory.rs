//! Reads stack memory of this process without ever faulting.
//!
//! In: addresses that unwinding rules ask for, right or wrong. Out: the word there, or nothing. Between the stack pointer
//! and the end of the mapping that is known to hold this thread's stack, and on a stack of ours, the word is read directly, after the kernel
//! was asked about its page, once a walk: the program may have made it unreadable since the stack became known. Anything else goes
//! through `process_vm_readv(2)` on ourselves, which answers with an error where a load would fault; it fetches the whole
//! page, and two are kept, so that a walk over a foreign stack that looks at code in between costs one system call a page. Runs
//! in the signal handler.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::arch;

/// No page is smaller, and each is a multiple of it (aarch64 has pages of 4, 16 or 64 KiB).
const PAGE: u64 = 4096;
const WORD: u64 = 8;

/// More than a signal's frame and our own take: with all registers of AMX, the kernel's is 11 KiB.
const NEAR: u64 = 32 << 10;
/// How far below a stack pointer a signal's frame has surely begun: on x86_64, it leaves 128 bytes (System V ABI, "red zone"), and what follows
/// is larger than that.
const WRITTEN: u64 = 256;

/// Reading through the kernel would end the process; set before there is a handler.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on nothing is read through the kernel: a filter of system calls would end the process for it.
pub(crate) fn forbid_reads() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Copies memory of the process of thread `tid`, ourselves, into `buffer`; the number of bytes copied, 0 where nothing can be read.
/// Callable from a signal handler.
pub(crate) fn read_own_memory(tid: u32, address: u64, buffer: &mut [u64]) -> u64 {
    if FORBIDDEN.load(Ordering::Relaxed) {
        return 0;
    }
    let length = size_of_val(buffer);
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    let (to, from) = ((&raw const local) as u64, (&raw const remote) as u64);
    // SAFETY: process_vm_readv(2) with one place on each side, and no flags: it writes only to `local`, which is `buffer`, a slice of plain words that we
    //         hold exclusively; the kernel checks the other one.
    let copied = unsafe { arch::system_call(libc::SYS_process_vm_readv, [u64::from(tid), to, 1, from, 1, 0]) };
    u64::try_from(copied).unwrap_or(0)
}

/// Whether the word at `address` can be read, by a call that every program makes, and that is allowed where
/// `process_vm_readv` is not. Says nothing of later. Callable from a signal handler: it takes no lock.
pub(crate) fn is_readable(address: u64) -> bool {
    // No `how` that there is.
    const WRONG: u64 = u64::MAX;
    // SAFETY: rt_sigprocmask(2) with a `how` that there is not: it reads 8 bytes at `address`, which gives EFAULT where it
    //         cannot, and then refuses with EINVAL and changes nothing (Linux, kernel/signal.c).
    let outcome = unsafe { arch::system_call(libc::SYS_rt_sigprocmask, [WRONG, address, 0, WORD, 0, 0]) };
    outcome == -i64::from(libc::EINVAL)
}

/// Copies of two pages: one of a stack, one of code or of what it refers to.
#[derive(Debug)]
pub(crate) struct Window {
    pages: [Page; 2],
    /// Which one was read last: the other one makes room.
    last: usize,
}

#[derive(Debug)]
struct Page {
    words: [u64; (PAGE / WORD) as usize],
    /// [`NOWHERE`]: nothing is in it.
    start: u64,
}

/// Where no page begins.
const NOWHERE: u64 = 1;

impl Window {
    pub(crate) fn new() -> Self {
        let page = || Page { words: [0; (PAGE / WORD) as usize], start: NOWHERE };
        Self { pages: [page(), page()], last: 0 }
    }
}

/// The memory that one walk may read.
#[derive(Debug)]
pub(crate) struct StackMemory<'a> {
    direct: [Range<u64>; 2],
    /// Pages of `direct` that the kernel was asked about and that follow each other.
    seen: Range<u64>,
    window: &'a mut Window,
    tid: u32,
}

impl<'a> StackMemory<'a> {
    /// Memory of our process, which any of its threads that lives stands for: `tid`.
    ///
    /// # Safety
    /// What is readable of `direct` must stay so until this value is dropped: it lies between the stack pointer of the calling thread
    /// and the end of that stack, or is empty.
    pub(crate) unsafe fn new(direct: Range<u64>, window: &'a mut Window, tid: u32) -> Self {
        // What an earlier walk fetched is stale.
        window.pages.iter_mut().for_each(|page| page.start = NOWHERE);
        Self { direct: [direct, 0..0], seen: 0..0, window, tid }
    }

    /// With a second part that is read directly: where the calling thread changed stacks, of the one that it came from.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub(crate) unsafe fn with(mut self, other: Range<u64>) -> Self {
        self.direct[1] = other;
        self
    }

    /// The page of `sp`, the lowest word that is read, need not be asked about if `here`, the stack pointer of the caller, shows that it is on the
    /// same stack: a signal's frame, or that of a call, was just written below `sp`.
    pub(crate) fn standing_on(mut self, sp: u64, here: u64) -> Self {
        let page = |address: u64| address & !(PAGE - 1);
        let is_same_stack = sp.wrapping_sub(here) < NEAR;
        if is_same_stack && page(sp.wrapping_sub(WRITTEN)) == page(sp) {
            self.seen = page(sp)..page(sp) + PAGE;
        }
        self
    }

    /// The word at `address`.
    pub(crate) fn read(&mut self, address: u64) -> Result<u64, ()> {
        let end = address.checked_add(WORD).ok_or(())?;
        if self.direct.iter().any(|part| address >= part.start && end <= part.end) {
            if !(self.seen.contains(&address) && end <= self.seen.end) {
                self.look(address)?;
                self.look(end - 1)?;
            }
            // SAFETY: the word lies within a part of `direct`, its pages can be read, and stay so (contracts of `new` and `with`); no
            //         alignment is assumed.
            return Ok(unsafe { arch::load(address) });
        }
        if !address.is_multiple_of(WORD) {
            return Err(());
        }
        let start = address & !(PAGE - 1);
        let Window { pages, last } = &mut *self.window;
        if pages[*last].start != start {
            *last = 1 - *last;
            if pages[*last].start != start {
                pages[*last].fetch(self.tid, start)?;
            }
        }
        pages[*last].words.get(((address - start) / WORD) as usize).copied().ok_or(())
    }

    /// Asks the kernel about the page of this address. A walk goes up, page by page, so that each is asked about once.
    fn look(&mut self, address: u64) -> Result<(), ()> {
        if self.seen.contains(&address) {
            return Ok(());
        }
        let start = address & !(PAGE - 1);
        if !is_readable(start) {
            return Err(());
        }
        self.seen = if start == self.seen.end { self.seen.start } else { start }..start + PAGE;
        Ok(())
    }
}

impl Page {
    fn fetch(&mut self, tid: u32, start: u64) -> Result<(), ()> {
        self.start = NOWHERE;
        if read_own_memory(tid, start, &mut self.words) != PAGE {
            return Err(());
        }
        self.start = start;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid() -> u32 {
        std::process::id()
    }

    /// Check that words are read right, inside the direct range and outside it.
    #[test]
    fn words_are_read_directly_and_through_the_kernel() {
        let words: Vec<u64> = (0..2000).collect();
        let start = words.as_ptr() as u64;
        let mut window = Window::new();
        // SAFETY: the range is the first half of `words`, which outlives the reader.
        let mut memory = unsafe { StackMemory::new(start..start + 8000, &mut window, pid()) };
        for (index, word) in words.iter().enumerate() {
            assert_eq!(memory.read(start + 8 * index as u64), Ok(*word));
        }
    }

    /// Check that a page is fetched once while one other is looked at in between, and all of it, whichever word is asked for first.
    #[test]
    fn two_pages_are_fetched_once_each() {
        const WORDS: usize = (PAGE / WORD) as usize;
        let mut words = vec![7_u64; 4 * WORDS];
        // Three whole pages lie in it.
        let first = words.as_ptr().align_offset(PAGE as usize);
        let at = |words: &[u64], page: usize, word: usize| (&raw const words[first + page * WORDS + word]) as u64;
        let mut window = Window::new();
        // SAFETY: the direct range is empty.
        let mut memory = unsafe { StackMemory::new(0..0, &mut window, pid()) };
        assert_eq!((memory.read(at(&words, 0, 90)), memory.read(at(&words, 1, 90))), (Ok(7), Ok(7)));
        words.fill(8);
        // What was copied before.
        assert_eq!((memory.read(at(&words, 0, 0)), memory.read(at(&words, 1, WORDS - 1))), (Ok(7), Ok(7)));
        assert_eq!((memory.read(at(&words, 2, 0)), memory.read(at(&words, 1, 3))), (Ok(8), Ok(7)));
        assert_eq!(memory.read(at(&words, 0, 90)), Ok(8), "it made room");
    }

    /// Check that a page of what is read directly that was made unreadable is refused, also to a word that only ends in it, and none
    /// around it; and that each is looked at anew by the next walk.
    #[test]
    fn a_page_of_the_stack_that_was_taken_away_is_refused() {
        const PAGES: u64 = 4;
        let length = (PAGES * PAGE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping, of which nothing else knows (mmap(2)).
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, both, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let start = base as u64;
        // What stands in a page says nothing, however it looks.
        for (page, filler) in [(0_usize, 0_u8), (1, 0x7f), (2, 0x7f), (3, 0xff)] {
            // SAFETY: one page of that mapping.
            unsafe { base.cast::<u8>().add(page * PAGE as usize).write_bytes(filler, PAGE as usize) };
        }
        let mut window = Window::new();
        let mut read = |offsets: [u64; 6]| {
            // SAFETY: the mapping stays, and is not changed while this reader lives.
            let mut memory = unsafe { StackMemory::new(start + 16..start + PAGES * PAGE, &mut window, pid()) };
            offsets.map(|offset| memory.read(start + offset))
        };
        let protect = |protection| {
            // SAFETY: changes one page of that mapping.
            unsafe { libc::mprotect(base.byte_add(2 * PAGE as usize), PAGE as usize, protection) }
        };
        let (filled, ones) = (0x7f7f_7f7f_7f7f_7f7f, u64::MAX);
        assert_eq!(protect(libc::PROT_NONE), 0);
        let offsets = [16, PAGE, 2 * PAGE - 4, 2 * PAGE, 3 * PAGE - 4, 3 * PAGE];
        assert_eq!(read(offsets), [Ok(0), Ok(filled), Err(()), Err(()), Err(()), Ok(ones)]);
        assert_eq!(protect(both), 0);
        let straddling = ones << 32 | filled >> 32;
        assert_eq!(read(offsets), [Ok(0), Ok(filled), Ok(filled), Ok(filled), Ok(straddling), Ok(ones)]);
        // SAFETY: unmaps exactly what was mapped above.
        assert_eq!(unsafe { libc::munmap(base, length) }, 0);
    }

    /// Check that the page that a caller stands on is known only where something was surely written there.
    #[test]
    fn only_the_page_that_is_stood_on_is_taken_for_readable() {
        let mut window = Window::new();
        let mut seen = |sp: u64, here: u64| {
            // SAFETY: the direct range is empty.
            unsafe { StackMemory::new(0..0, &mut window, pid()) }.standing_on(sp, here).seen
        };
        let page = 0x7f12_3456_7000;
        for (sp, here) in [(page + 0x100, page - 0x900), (page + 0xff8, page + 0x10), (page + 0x800, page + 0x800)] {
            assert_eq!(seen(sp, here), page..page + PAGE, "{sp:#x} {here:#x}");
        }
        // The frame may lie in the page below; on another stack, above or far below; and nowhere.
        for (sp, here) in
            [(page + 0xf8, page - 0x900), (page + 0x800, page + 0x808), (page + 0x800, page - NEAR), (0, 0)]
        {
            assert_eq!(seen(sp, here), 0..0, "{sp:#x} {here:#x}");
        }
    }

    /// Check that null, unmapped, unaligned and overflowing addresses are refused.
    #[test]
    fn bad_addresses_are_refused() {
        let mut window = Window::new();
        // SAFETY: the direct range is empty.
        let mut memory = unsafe { StackMemory::new(0..0, &mut window, pid()) };
        for address in [0, 8, 4096, 7, u64::MAX, u64::MAX - 7, 0xffff_8000_0000_0000, 0x8000_0000_0000] {
            assert_eq!(memory.read(address), Err(()), "{address:#x}");
        }
    }

    /// Check that a page that is unmapped or protected is refused, while the one before it is still read.
    #[test]
    fn a_guard_page_is_refused() {
        // SAFETY: a fresh anonymous mapping of two pages, of which nothing else knows; the second is then protected.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(base.byte_add(4096), 4096, libc::PROT_NONE), 0);
            base as u64
        };
        let mut window = Window::new();
        // SAFETY: the direct range is empty.
        let mut memory = unsafe { StackMemory::new(0..0, &mut window, pid()) };
        assert_eq!((memory.read(base + 4088), memory.read(base + 4096)), (Ok(0), Err(())));
        assert_eq!((is_readable(base + 4088), is_readable(base + 4096)), (true, false));
        // SAFETY: unmaps exactly what was mapped above.
        assert_eq!(unsafe { libc::munmap(base as *mut _, 8192) }, 0);
        // SAFETY: the direct range is empty.
        let mut memory = unsafe { StackMemory::new(0..0, &mut window, pid()) };
        assert_eq!((memory.read(base), is_readable(base)), (Err(()), false));
    }
}
