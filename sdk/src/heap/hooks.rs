//! What jemalloc calls: for each sampled block, for each of these when it is freed, and for the stack of its own profile.
//!
//! In: address and size, on the thread that allocates or frees, none of jemalloc's locks held (but for a free by `arena.<i>.destroy`, which holds the lock of mallctl:
//! no hook of frees may make a call that takes it). Out: sites and live blocks. A hook may allocate and lock, and does both as little as it can; it neither panics
//! nor changes `errno`. Hooks that were there before are called, too; one that comes later and calls ours may be there before a later start.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::jemalloc::{self, BACKTRACE_HOOK, BacktraceHook, FREE_HOOK, FreeHook, SAMPLE_HOOK, SampleHook};
use super::others;
use super::state::State;
use crate::others::Others;
use crate::unwind::arch::Registers;

/// What the hooks work on; null before the first start. Never freed, for a late hook may come at any time.
static IN_FORCE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// The hooks that were there before, at this start or one before it.
static SAMPLE_BEFORE: Others = Others::none();
static FREE_BEFORE: Others = Others::none();
/// The one for stacks, as an address; 0: none.
static BACKTRACE_BEFORE: AtomicUsize = AtomicUsize::new(0);
/// The one that was there before the first start.
static BACKTRACE_FIRST: AtomicUsize = AtomicUsize::new(0);

/// Whether stacks for jemalloc itself have one frame while samples are recorded, for nobody wants them: what `install` was told last. The hook that says so stays for good.
static HAVE_ONE_FRAME: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The calling thread asks another one's hook for its stack, which may ask ours.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Whether others' hook was found in the place of ours for frees, of which ours may have missed some.
static MISSED_FREES: AtomicBool = AtomicBool::new(false);

/// The state in force, of this process or of the one that it was forked from.
pub(super) fn in_force() -> Option<&'static State> {
    // SAFETY: null, or from a `Box` that is never freed. Acquire: pairs with the Release store in `install`.
    unsafe { IN_FORCE.load(Ordering::Acquire).as_ref() }
}

/// Has jemalloc call the hooks, which work on `state`. `takes_stacks`: also the one that takes stacks for jemalloc itself, unless
/// somebody had a hook that gets them. Whether frees may have been missed since the hooks were installed before, if they were.
///
/// # Errors
/// What jemalloc says: `ENOENT` where it knows no hooks.
pub(super) fn install(state: &'static State, takes_stacks: bool) -> io::Result<bool> {
    let was_installed = in_force().is_some();
    // Release: pairs with the Acquire load in `in_force`.
    IN_FORCE.store(ptr::from_ref(state).cast_mut(), Ordering::Release);
    // First the one that takes blocks out, so that none stays in; and each once it knows what was there, so that nobody misses a call.
    let free: Option<FreeHook> = jemalloc::read(FREE_HOOK)?;
    if was_installed && !is_ours(free) {
        MISSED_FREES.store(true, Ordering::Relaxed);
    }
    if !is_ours(free) {
        FREE_BEFORE.found(free.map_or(0, |hook| hook as usize));
    }
    jemalloc::write(FREE_HOOK, Some(on_free as FreeHook))?;
    let sample: Option<SampleHook> = jemalloc::read(SAMPLE_HOOK)?;
    let sample = sample.map_or(0, |hook| hook as usize);
    if sample != on_sample as SampleHook as usize {
        SAMPLE_BEFORE.found(sample);
    }
    jemalloc::write(SAMPLE_HOOK, Some(on_sample as SampleHook))?;
    let takes_stacks = takes_stacks && !SAMPLE_BEFORE.are_there();
    HAVE_ONE_FRAME.store(takes_stacks, Ordering::Relaxed);
    if takes_stacks {
        let before = jemalloc::read::<Option<BacktraceHook>>(BACKTRACE_HOOK)?.map_or(0, |hook| hook as usize);
        if before != on_backtrace as BacktraceHook as usize {
            // Whoever is first found cannot know ours.
            _ = BACKTRACE_FIRST.compare_exchange(0, before, Ordering::AcqRel, Ordering::Acquire);
            BACKTRACE_BEFORE.store(before, Ordering::Release);
        }
        jemalloc::write(BACKTRACE_HOOK, Some(on_backtrace as BacktraceHook))?;
    }
    Ok(MISSED_FREES.swap(false, Ordering::Relaxed))
}

/// From now on stacks for jemalloc itself are whole: somebody else has samples taken.
pub(super) fn give_whole_stacks() {
    HAVE_ONE_FRAME.store(false, Ordering::Relaxed);
}

fn is_ours(hook: Option<FreeHook>) -> bool {
    hook.is_some_and(|hook| hook as usize == on_free as FreeHook as usize)
}

/// Whether others had hooks before.
pub(super) fn are_chained() -> bool {
    SAMPLE_BEFORE.are_there() || FREE_BEFORE.are_there()
}

/// Whether others have put hooks in the place of ours since: what is found is remembered for [`notice_return`].
pub(super) fn notice_displacement() -> bool {
    let sample = jemalloc::read::<Option<SampleHook>>(SAMPLE_HOOK).ok().flatten();
    let misses_frees = !is_ours(jemalloc::read(FREE_HOOK).ok().flatten());
    if misses_frees {
        MISSED_FREES.store(true, Ordering::Relaxed);
    }
    misses_frees || sample.is_none_or(|hook| hook as usize != on_sample as SampleHook as usize)
}

/// Whether ours for frees is called again, and may have missed some. Once for each time.
pub(super) fn notice_return() -> bool {
    MISSED_FREES.load(Ordering::Relaxed)
        && is_ours(jemalloc::read(FREE_HOOK).ok().flatten())
        && MISSED_FREES.swap(false, Ordering::Relaxed)
}

/// The state in force, in the process that made it.
fn own_state() -> Option<&'static State> {
    in_force().filter(|state| state.mark.is_ours())
}

unsafe extern "C" fn on_sample(
    block: *const c_void,
    size: usize,
    stack: *mut *mut c_void,
    length: c_uint,
    usable: usize,
) {
    // Where others call, what is here is known.
    if let Some(state) = own_state().filter(|_| !others::are_being_told(block as usize)) {
        let errno = Errno::kept();
        state.sampled(&Registers::here(), block as u64, usable as u64);
        drop(errno);
    }
    others::tell(&SAMPLE_BEFORE, block as usize, |before| {
        // SAFETY: jemalloc had this address as a hook of this type; it gets the arguments that jemalloc gave.
        unsafe { std::mem::transmute::<usize, SampleHook>(before)(block, size, stack, length, usable) };
    });
}

unsafe extern "C" fn on_free(block: *const c_void, usable: usize) {
    if let Some(state) = own_state().filter(|_| !others::are_being_told(block as usize)) {
        let errno = Errno::kept();
        state.freed(block as u64, usable as u64);
        drop(errno);
    }
    others::tell(&FREE_BEFORE, block as usize, |before| {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<usize, FreeHook>(before)(block, usable) };
    });
}

/// One frame, the same for all: jemalloc's own profile is not used while ours is made, nor in a child of such a process, where jemalloc goes on
/// to take samples, and only a word is looked at. Otherwise what was there before: one that came between two starts may call ours, which then has the first one answer.
unsafe extern "C" fn on_backtrace(stack: *mut *mut c_void, length: *mut c_uint, most: c_uint) {
    let is_asked_again = IS_ASKING.get();
    let before = if is_asked_again { &BACKTRACE_FIRST } else { &BACKTRACE_BEFORE }.load(Ordering::Acquire);
    let has_one_frame = HAVE_ONE_FRAME.load(Ordering::Relaxed) && in_force().is_some_and(State::is_recording);
    if before != 0 && !has_one_frame {
        IS_ASKING.set(true);
        // SAFETY: jemalloc had this address as a hook of this type; it gets the arguments that jemalloc gave.
        unsafe { std::mem::transmute::<usize, BacktraceHook>(before)(stack, length, most) };
        IS_ASKING.set(is_asked_again);
        return;
    }
    if most > 0 {
        // SAFETY: jemalloc gives room for `most` addresses and for their number.
        unsafe {
            *stack = on_backtrace as BacktraceHook as *mut c_void;
            *length = 1;
        }
    }
}

/// The calling thread's `errno`, which is put back when this is dropped.
struct Errno(i32);

impl Errno {
    fn kept() -> Self {
        // SAFETY: the calling thread's own `errno`.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
