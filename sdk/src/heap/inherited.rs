//! Whether this process is the one that a table was made in, or a forked child of it.
//!
//! In: nothing. Out: a word that hooks look at before anything else, for a lock may be held in the child by a thread that
//! it does not have. The kernel wipes it in the child (`MADV_WIPEONFORK`, Linux 4.14).

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;

/// Enough of any page: the kernel rounds it up.
const LENGTH: usize = 4096;

/// A word in memory of its own. Never unmapped.
#[derive(Debug)]
pub(super) struct Mark(&'static AtomicU32);

impl Mark {
    /// A mark of this process.
    ///
    /// # Errors
    /// Where the kernel does not know how to wipe memory in a child, or has none.
    pub(super) fn make() -> Result<Self, Error> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice (mmap(2)), which is ours alone when its
        //         behaviour is set (madvise(2)).
        let page = unsafe {
            let page = libc::mmap(ptr::null_mut(), LENGTH, protection, flags, -1, 0);
            if page == libc::MAP_FAILED || libc::madvise(page, LENGTH, libc::MADV_WIPEONFORK) != 0 {
                let why = io::Error::last_os_error();
                let remedy = "heap profiles need Linux 4.14 or later; turn them off with PROFILER_HEAP=0";
                return Err(Error::environment("madvise(MADV_WIPEONFORK)", why, remedy));
            }
            page
        };
        // SAFETY: a page of zeros, aligned, mapped for ever.
        let mark = unsafe { &*page.cast::<AtomicU32>() };
        mark.store(1, Ordering::Relaxed);
        Ok(Self(mark))
    }

    /// Whether this is the process that made it.
    pub(super) fn is_ours(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a child does not find the mark, and that the parent still does.
    #[test]
    fn a_child_finds_no_mark() {
        let mark = Mark::make().unwrap();
        // SAFETY: fork(2); the child reads a word and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: _exit(2) ends the child at once.
            unsafe { libc::_exit(i32::from(mark.is_ours())) };
        }
        let mut status = -1;
        // SAFETY: waitpid(2) writes the status of our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, mark.is_ours()), (0, true));
    }
}
