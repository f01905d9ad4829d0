//! Where a thread's stack ends, and code on a stack that is not the thread's own, as coroutines have it.
//!
//! In: a function. Out: the bounds of the stack while it runs; it returns to the thread's own stack. Below each is a page that ends whoever touches it.

use std::cell::Cell;
use std::io;
use std::ops::Range;

use crate::Result;

/// Bytes of such a stack.
const SIZE: usize = 256 << 10;
/// Bytes below it that nobody may touch: a page at least.
const GUARD: usize = 64 << 10;

/// What runs on the stack; it gets its bounds.
pub type Work = fn(Range<usize>);

thread_local! {
    static WORK: Cell<Option<Work>> = const { Cell::new(None) };
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Runs `work` on a stack of its own, of which it gets the bounds. The stack stays mapped, for `work` may never return.
///
/// # Errors
/// Where there is no memory for it, or the C library cannot change stacks.
pub fn on_other_stack(work: Work) -> Result<()> {
    extern "C" fn enter() {
        let (start, end) = STACK.get();
        if let Some(work) = WORK.take() {
            work(start..end);
        }
    }
    // SAFETY: a fresh anonymous mapping (mmap(2)), whose lowest pages are then protected (mprotect(2)); the contexts are filled by getcontext(3) and swapcontext(3) and live on
    //         this frame, to which `enter` returns by `uc_link`.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let guard = libc::mmap(std::ptr::null_mut(), GUARD + SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if guard == libc::MAP_FAILED || libc::mprotect(guard, GUARD, libc::PROT_NONE) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        let stack = guard.byte_add(GUARD);
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

/// The lowest usable address of the calling thread's stack.
///
/// # Errors
/// Where the C library does not know.
pub fn lowest_address() -> Result<usize> {
    let (mut base, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: pthread_getattr_np(3) fills the attributes, which are read and then given back.
    let outcome = unsafe {
        let mut attributes = std::mem::zeroed();
        let outcome = libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes);
        if outcome == 0 {
            libc::pthread_attr_getstack(&raw const attributes, &raw mut base, &raw mut size);
            libc::pthread_attr_destroy(&raw mut attributes);
        }
        outcome
    };
    if outcome == 0 && size > 0 { Ok(base as usize) } else { Err("where is the stack?".into()) }
}

/// Calls itself until its frame is below `top`, by some hundred bytes at most, then `work`.
#[inline(never)]
pub fn below(top: usize, work: &mut dyn FnMut()) {
    // Not so small that a stack has more frames than a profiler looks at.
    let here = std::hint::black_box([0_u8; 256]);
    if std::ptr::from_ref(&here) as usize > top {
        below(top, work);
    } else {
        work();
    }
    std::hint::black_box(&here);
}
