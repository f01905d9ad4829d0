//! Runs code on a stack that is not the thread's own, as coroutines do.
//!
//! In: a function. Out: its stack's bounds while it runs; it returns to the thread's own stack.

use std::cell::Cell;
use std::io;
use std::ops::Range;

use profiler_tests::Result;

/// Bytes of the stack.
const SIZE: usize = 256 << 10;

/// What runs on the stack; it gets its bounds.
type Work = fn(Range<usize>);

thread_local! {
    static WORK: Cell<Option<Work>> = const { Cell::new(None) };
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Runs `work` on a stack of its own, of which it gets the bounds. The stack stays mapped, for `work` may never return.
pub(crate) fn on_other_stack(work: Work) -> Result<()> {
    extern "C" fn enter() {
        let (start, end) = STACK.get();
        if let Some(work) = WORK.take() {
            work(start..end);
        }
    }
    // SAFETY: a fresh anonymous mapping (mmap(2)); the contexts are filled by getcontext(3) and swapcontext(3) and live on
    //         this frame, to which `enter` returns by `uc_link`.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let stack = libc::mmap(std::ptr::null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if stack == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        WORK.set(Some(work));
        STACK.set((stack as usize, stack as usize + SIZE));
        let (mut there, mut back): (libc::ucontext_t, libc::ucontext_t) = (std::mem::zeroed(), std::mem::zeroed());
        if libc::getcontext(&raw mut there) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = SIZE;
        there.uc_link = &raw mut back;
        libc::makecontext(&raw mut there, enter, 0);
        match libc::swapcontext(&raw mut back, &raw const there) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }
}
