//! Reads stack memory of this process without ever faulting.
//!
//! In: addresses that unwinding rules ask for, right or wrong. Out: the word there, or nothing. Between the stack pointer
//! and the end of the mapping that is known to hold this thread's stack, the word is read directly. Anything else goes
//! through `process_vm_readv(2)` on ourselves, which answers with an error where a load would fault; it fetches up to
//! the end of the page, so that a walk over a foreign stack costs one system call a page. Runs in the signal handler.

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

/// Copies memory of process `pid`, ourselves, into `buffer`; the number of bytes copied, 0 where nothing can be read.
/// Callable from a signal handler.
pub(crate) fn read_own_memory(pid: u32, address: u64, buffer: &mut [u64]) -> u64 {
    if FORBIDDEN.load(Ordering::Relaxed) { 0 } else { arch::read_own_memory(pid, address, buffer) }
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

/// A copy of the rest of one page.
#[derive(Debug)]
pub(crate) struct Window {
    words: [u64; (PAGE / WORD) as usize],
    start: u64,
    length: u64,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self { words: [0; (PAGE / WORD) as usize], start: 0, length: 0 }
    }
}

/// The memory that one walk may read.
#[derive(Debug)]
pub(crate) struct StackMemory<'a> {
    direct: Range<u64>,
    window: &'a mut Window,
    pid: u32,
}

impl<'a> StackMemory<'a> {
    /// Memory of a thread of process `pid` (ourselves).
    ///
    /// # Safety
    /// `direct` must stay readable until this value is dropped: it lies between the stack pointer of the calling thread
    /// and the end of that thread's own stack, or is empty.
    pub(crate) unsafe fn new(direct: Range<u64>, window: &'a mut Window, pid: u32) -> Self {
        // What an earlier walk fetched is stale.
        window.length = 0;
        Self { direct, window, pid }
    }

    /// The word at `address`.
    pub(crate) fn read(&mut self, address: u64) -> Result<u64, ()> {
        if address >= self.direct.start && address.checked_add(WORD).is_some_and(|end| end <= self.direct.end) {
            // SAFETY: the word lies within `direct`, which is readable (contract of `new`); no alignment is assumed.
            return Ok(unsafe { (address as *const u64).read_unaligned() });
        }
        if !address.is_multiple_of(WORD) {
            return Err(());
        }
        if !(self.window.start..self.window.start + self.window.length).contains(&address) {
            self.fetch(address)?;
        }
        let index = (address - self.window.start) / WORD;
        self.window.words.get(index as usize).copied().ok_or(())
    }

    fn fetch(&mut self, address: u64) -> Result<(), ()> {
        let length = PAGE - address % PAGE;
        self.window.length = 0;
        let buffer = &mut self.window.words[..(length / WORD) as usize];
        if read_own_memory(self.pid, address, buffer) != length {
            return Err(());
        }
        (self.window.start, self.window.length) = (address, length);
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
        assert_eq!((memory.read(base), is_readable(base)), (Err(()), false));
    }
}
