//! The record of each thread, in thread-local memory that a signal handler can reach.
//!
//! In: the thread itself, which changes what is in force ([`Thread::with_here`]). Out: the same record for the handler on that
//! thread ([`Thread::of_signal`]), which never touches thread-local memory first: in a library that is loaded with
//! `dlopen` the first touch may allocate and lock. So the variable is defined and reached here by assembly, in the
//! dialect (TLS descriptors) by which the loader says where it put it: at one distance from every thread's pointer, as
//! in every executable and in most libraries, or anywhere. In the second case a thread leaves the address under a
//! `pthread` key when it first changes its record, and a handler that finds none knows that there is nothing to read.

use std::arch::global_asm;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering, compiler_fence};

use super::records::Record;
use super::scopes::Scopes;
#[cfg(target_arch = "aarch64")]
use super::tls_aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use super::tls_x86_64 as arch;
use crate::error::Error;

/// What a thread has of ours where a handler finds it. All zero at birth.
///
/// Invariants: `in_force` is null or points to a record of `scopes`, which is not written meanwhile; `scopes` is null or from a
/// `Box`. Only the thread itself and signal handlers on it come here; handlers never to `scopes`.
#[repr(C)]
pub(super) struct Thread {
    /// First, and a pointer: the shape that OTEP 4947 asks of a published thread context.
    in_force: Cell<*const Record>,
    /// Made when the thread first changes what is in force, freed when it ends.
    scopes: Cell<*mut Guarded>,
    /// Where on the stack a handler of somebody else was called from ours; 0: nowhere.
    handed_on_at: Cell<usize>,
    /// The generation of the sampler in which this thread's own timer fired on it.
    covered: Cell<u32>,
    /// Its address is under the key.
    introduced: Cell<bool>,
    /// `scopes` is being made, which allocates, and the allocator may come here.
    beginning: Cell<bool>,
}

const _: () = {
    assert!(size_of::<Thread>() == 32);
    assert!(align_of::<Thread>() == 8);
    assert!(std::mem::offset_of!(Thread, in_force) == 0);
};

/// The scopes, while they are changed nobody else's: an allocator that a change calls may come here.
struct Guarded {
    is_changing: Cell<bool>,
    scopes: UnsafeCell<Scopes>,
}

/// Frees what the thread has when it ends.
struct End;

thread_local! {
    static END: End = const { End };
}

impl Drop for End {
    fn drop(&mut self) {
        let thread = Thread::here();
        thread.in_force.set(ptr::null());
        // A handler on this thread must not find what is freed next: this keeps the compiler to the order.
        compiler_fence(Ordering::SeqCst);
        let scopes = thread.scopes.replace(ptr::null_mut());
        if !scopes.is_null() {
            // SAFETY: from the `Box` that `begin` made, taken out of its place, so that this happens once; nothing borrowed from it
            //         outlives a call of `with_here`, and no record of it is in force.
            drop(unsafe { Box::from_raw(scopes) });
        }
    }
}

/// The variable's name: of this version, for another one in the same program has its own.
macro_rules! symbol {
    () => {
        concat!(
            "profiler_sdk_thread_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH")
        )
    };
}
pub(super) use symbol;

// The second name, for its first word, is the one that OTEP 4947 gives: readers look it up. It is weak, so that programs link
// in which others define it too: another version of this crate, another library for thread contexts. Whose definition the
// name then stands for does not matter here, for this crate reaches its own by the first name, which is hidden.
global_asm!(
    ".pushsection .tbss,\"awT\",%nobits",
    ".balign 8",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ", %object"),
    concat!(".size ", symbol!(), ", 32"),
    ".weak otel_thread_ctx_v1",
    ".type otel_thread_ctx_v1, %object",
    ".size otel_thread_ctx_v1, 8",
    "otel_thread_ctx_v1:",
    concat!(symbol!(), ":"),
    ".zero 32",
    ".popsection",
);

/// Distance of the variable from the thread pointer, the same in every thread; 0 while it is not known or there is none.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// The key under which threads leave the address where there is no such distance; [`NO_KEY`]: none.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Values of keys below this one stand in the thread's descriptor itself, where reading them is a load. Beyond, they stand
/// in a block that is freed when the thread ends.
///
/// Source: glibc, nptl/descr.h, `PTHREAD_KEY_2NDLEVEL_SIZE`; musl keeps all of its 128 in the descriptor's own mapping.
const PLAIN_KEYS: u32 = 32;

/// Finds out how handlers get to the records. Called by `start`, before there is a handler.
///
/// # Errors
/// When the loader put the variable anywhere, and no key can be had.
pub(crate) fn prepare() -> Result<(), Error> {
    locate();
    if DISTANCE.load(Ordering::Relaxed) != 0 || KEY.load(Ordering::Relaxed) != NO_KEY {
        return Ok(());
    }
    let mut key = 0;
    // SAFETY: pthread_key_create(3) writes the key; without a destructor nothing is ever run for it.
    let outcome = unsafe { libc::pthread_key_create(&raw mut key, None) };
    let remedy = "let the program that loads this library create fewer keys before it";
    if outcome != 0 {
        return Err(Error::environment("pthread_key_create", io::Error::from_raw_os_error(outcome), remedy));
    }
    if key >= PLAIN_KEYS {
        // SAFETY: the key was made above and nobody else knows it (pthread_key_delete(3)).
        unsafe { libc::pthread_key_delete(key) };
        return Err(Error::environment("pthread_key_create", io::Error::other("no key below 32 is left"), remedy));
    }
    KEY.store(key, Ordering::Relaxed);
    Ok(())
}

/// Distance in bytes of the pointer to the record in force from the thread pointer, the same in every thread: below it on
/// x86_64, above it on aarch64. `None` where there is no such distance, and before [`prepare`].
#[inline]
pub(crate) fn distance() -> Option<isize> {
    Some(DISTANCE.load(Ordering::Relaxed)).filter(|distance| *distance != 0)
}

/// The calling thread's variable by its descriptor, which may allocate: not callable from a signal handler.
#[cold]
fn locate() -> *const Thread {
    let place = arch::tls_place();
    // The linker of an executable replaces the descriptor by the distance. Otherwise its second word is the distance
    // where the loader found room for the variable in the memory that every thread has from its birth; where it did
    // not, it is a pointer, which no distance equals.
    let is_fixed = place.descriptor == place.distance || {
        // SAFETY: not replaced, so it is the address of a descriptor: two words in the library's own table, written by
        //         the loader before the call above returned (Oliva, "Thread-Local Storage Descriptors").
        let argument = unsafe { (place.descriptor as *const isize).add(1).read_volatile() };
        argument == place.distance
    };
    if is_fixed {
        DISTANCE.store(place.distance, Ordering::Relaxed);
    }
    arch::thread_pointer().wrapping_byte_offset(place.distance).cast()
}

impl Thread {
    /// The calling thread's own. Not callable from a signal handler.
    #[inline]
    fn here<'a>() -> &'a Self {
        let fixed = fixed();
        let place = fixed.unwrap_or_else(locate);
        // SAFETY: thread-local memory of the calling thread, of the size and alignment given to the assembler, zero at
        //         birth, which is a valid `Thread`; it lives as long as its thread, which the reference does not leave: it is
        //         neither stored nor handed on by the functions below.
        let thread = unsafe { &*place };
        if fixed.is_none() && !thread.introduced.get() {
            thread.introduce();
        }
        thread
    }

    /// Does `work` with the scopes of the calling thread and the pointer to what is in force; `None` when the thread is ending, and
    /// for an allocator that is called while they are made or changed. Not callable from a signal handler.
    pub(super) fn with_here<R>(work: impl FnOnce(&mut Scopes, &Cell<*const Record>) -> R) -> Option<R> {
        let thread = Self::here();
        if thread.scopes.get().is_null() {
            thread.begin()?;
        }
        // SAFETY: not null, from a `Box` that is freed only when the thread ends (`End`).
        let guarded = unsafe { &*thread.scopes.get() };
        if guarded.is_changing.replace(true) {
            return None;
        }
        /// Also when `work` panics.
        struct Done<'a>(&'a Cell<bool>);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let _done = Done(&guarded.is_changing);
        // SAFETY: nobody else has them until `_done` goes: whoever comes here meanwhile, on this thread, turns back above and in
        //         `at_once`; handlers never come here.
        Some(work(unsafe { &mut *guarded.scopes.get() }, &thread.in_force))
    }

    /// Enters a scope of the calling thread where that needs no allocator and nobody is at it; else `None`, and nothing is done.
    #[inline]
    pub(super) fn enter_at_once(tags: &[u8], replaces: bool) -> Option<u32> {
        // SAFETY: the scopes call nothing but their own.
        unsafe { Self::at_once(|scopes, in_force| scopes.enter_at_once(in_force, tags, replaces)) }
    }

    /// Leaves it likewise.
    #[inline]
    pub(super) fn leave_at_once(scope: u32) -> Option<()> {
        // SAFETY: as above.
        unsafe { Self::at_once(|scopes, in_force| scopes.leave_at_once(in_force, scope)) }
    }

    /// What [`with_here`](Self::with_here) does, for work that takes less time than to keep others away.
    ///
    /// # Safety
    /// `work` calls nothing of anybody else's, the allocator above all: it could come here again.
    #[inline]
    unsafe fn at_once<R>(work: impl FnOnce(&mut Scopes, &Cell<*const Record>) -> Option<R>) -> Option<R> {
        // SAFETY: as in `here`.
        let thread = unsafe { &*fixed()? };
        // SAFETY: null, or as in `with_here`.
        let guarded = unsafe { thread.scopes.get().as_ref() }?;
        if guarded.is_changing.get() {
            return None;
        }
        // SAFETY: nobody has them, for nobody is changing them, and nobody comes here before `work` is done, as the caller has it;
        //         handlers never do.
        work(unsafe { &mut *guarded.scopes.get() }, &thread.in_force)
    }

    /// The first change: `None` when the thread has ended as far as thread-local values are concerned, and for an allocator that is
    /// called by it.
    #[cold]
    fn begin(&self) -> Option<()> {
        if self.beginning.replace(true) {
            return None;
        }
        let lives = END.try_with(|_| ()).is_ok();
        if lives {
            let guarded = Guarded { is_changing: Cell::new(false), scopes: UnsafeCell::new(Scopes::new()) };
            self.scopes.set(Box::into_raw(Box::new(guarded)));
        }
        self.beginning.set(false);
        lives.then_some(())
    }

    /// The calling thread's, for its signal handler; `None` where the thread never changed its record, so that there is
    /// nothing to know.
    pub(super) fn of_signal<R>(work: impl FnOnce(&Self) -> R) -> Option<R> {
        let place = fixed().or_else(|| {
            let key = Some(KEY.load(Ordering::Relaxed)).filter(|key| *key != NO_KEY)?;
            // SAFETY: the key was made by `prepare` and is never deleted. Reading it is a load (see `PLAIN_KEYS`).
            Some(unsafe { libc::pthread_getspecific(key) }.cast_const().cast::<Self>())
        })?;
        // SAFETY: null, or as in `here`: what is under the key was put there by this thread.
        unsafe { place.as_ref() }.map(work)
    }

    /// Leaves the address under the key, if there is one.
    #[cold]
    fn introduce(&self) {
        let key = KEY.load(Ordering::Relaxed);
        if key != NO_KEY {
            // SAFETY: the key exists; the value is only a pointer to it (pthread_setspecific(3)).
            let outcome = unsafe { libc::pthread_setspecific(key, ptr::from_ref(self).cast()) };
            self.introduced.set(outcome == 0);
        }
    }

    /// Has `look` look at the record in force, if there is one. Callable from a signal handler of this thread.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Record) -> R) -> Option<R> {
        // SAFETY: null, or a record that is not written while it is in force, and that the thread does not free before it has
        //         set this to null: the thread stands still while its handler runs.
        unsafe { self.in_force.get().as_ref() }.map(look)
    }

    /// See [`super::once_at_a_time`].
    pub(super) fn once_at_a_time(&self, work: impl FnOnce()) {
        let here = ptr::from_ref(&work).addr();
        // Stacks grow downwards: an entry that is not above this one was left by a jump, and is over.
        if self.handed_on_at.get() > here {
            return;
        }
        self.handed_on_at.set(here);
        work();
        self.handed_on_at.set(0);
    }

    /// See [`super::covered`].
    pub(super) fn covered(&self) -> &Cell<u32> {
        &self.covered
    }
}

/// The calling thread's variable where it is at a fixed distance.
#[inline]
fn fixed() -> Option<*const Thread> {
    distance().map(|distance| arch::thread_pointer().wrapping_byte_offset(distance).cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an executable's threads all have their record at one distance, each its own, and that handlers find it.
    #[test]
    fn an_executable_has_its_records_at_a_fixed_distance() {
        prepare().unwrap();
        assert_ne!(DISTANCE.load(Ordering::Relaxed), 0);
        let here = || ptr::from_ref(Thread::here()).addr();
        let of_signal = || Thread::of_signal(|thread| ptr::from_ref(thread).addr());
        let (mine, other) = (here(), std::thread::spawn(move || (here(), of_signal())).join().unwrap());
        assert_eq!((of_signal(), other.1), (Some(mine), Some(other.0)));
        assert_ne!(mine, other.0);
    }
}
