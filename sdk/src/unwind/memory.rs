//! Reads stack memory of this process without ever faulting.
//!
//! In: addresses that unwinding rules ask for, right or wrong. Out: the word there, or nothing. Between the stack pointer
//! and the end of the mapping that is known to hold this thread's stack, and on a stack of ours, the word is read directly. Anything else goes
//! through `process_vm_readv(2)` on ourselves, which answers with an error where a load would fault; it fetches the whole
//! page, and two are kept, so that a walk over a foreign stack that looks at code in between costs one system call a page. Runs
//! in the signal handler.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::arch;

/// No page is smaller, and each is a multiple of it (aarch64 has pages of 4, 16 or 64 KiB).
const PAGE: u64 = 4096;
const WORD: u64 = 8;

/// Reading through the kernel would end the process; set before there is a handler.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on nothing is read through the kernel: a filter of system calls would end the process for it.
pub(crate) fn forbid_reads() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Copies memory of the process of thread `tid`, ourselves, into `buffer`; the number of bytes copied, 0 where nothing can be read.
/// Callable from a signal handler.
pub(crate) fn read_own_memory(tid: u32, address: u64, buffer: &mut [u64]) -> u64 {
    if FORBIDDEN.load(Ordering::Relaxed) { 0 } else { arch::read_own_memory(tid, address, buffer) }
}

/// Whether the word at `address` can be read, by a call that every program makes, and that is allowed where
/// `process_vm_readv` is not. Says nothing of later; changes `errno`, so that a signal handler must not call it.
pub(crate) fn is_readable(address: u64) -> bool {
    let (what, none) = (-1_i64, std::ptr::null_mut::<u64>());
    // SAFETY: rt_sigprocmask(2) with a `how` that there is not: it reads 8 bytes at `address`, which gives EFAULT where it
    //         cannot, and then refuses with EINVAL and changes nothing (Linux, kernel/signal.c).
    let outcome = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, what, address, none, WORD) };
    outcome != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
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
    window: &'a mut Window,
    tid: u32,
}

impl<'a> StackMemory<'a> {
    /// Memory of our process, which any of its threads that lives stands for: `tid`.
    ///
    /// # Safety
    /// `direct` must stay readable until this value is dropped: it lies between the stack pointer of the calling thread
    /// and the end of that stack, or is empty.
    pub(crate) unsafe fn new(direct: Range<u64>, window: &'a mut Window, tid: u32) -> Self {
        // What an earlier walk fetched is stale.
        window.pages.iter_mut().for_each(|page| page.start = NOWHERE);
        Self { direct: [direct, 0..0], window, tid }
    }

    /// With a second part that is read directly: where the calling thread changed stacks, of the one that it came from.
    ///
    /// # Safety
    /// As [`new`](Self::new): it must stay readable.
    pub(crate) unsafe fn with(mut self, other: Range<u64>) -> Self {
        self.direct[1] = other;
        self
    }

    /// The word at `address`.
    pub(crate) fn read(&mut self, address: u64) -> Result<u64, ()> {
        let end = address.checked_add(WORD).ok_or(())?;
        if self.direct.iter().any(|part| address >= part.start && end <= part.end) {
            // SAFETY: the word lies within a part of `direct`, which is readable (contracts of `new` and `with`); no alignment is assumed.
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
