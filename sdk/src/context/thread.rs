//! The record of each thread, in thread-local memory that a signal handler can reach.
//!
//! In: the thread itself, which changes what is in force ([`Thread::with_here`]). Out: the same record for the handler on that
//! thread ([`Thread::of_signal`]), which never touches thread-local memory first: where the variable is, and who may ask, is `address`.

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use super::address::{self, fixed};
use super::in_force::InForce;
#[cfg(feature = "opentelemetry")]
use super::records::Linked;
use super::records::Record;
use super::scopes::Scopes;
use super::tls;

/// What a thread has of ours where a handler finds it. All zero at birth.
///
/// Invariants: `in_force` is null or points to a record of `scopes`, which is not written meanwhile; `scopes` is null or from a
/// `Box`. Only the thread itself and signal handlers on it come here; handlers never to `scopes`.
#[repr(C)]
pub(super) struct Thread {
    /// First, and a pointer: the shape that OTEP 4947 asks of a published thread context.
    in_force: InForce,
    /// Made when the thread first changes what is in force, freed when it ends.
    scopes: Cell<*mut Guarded>,
    /// The generation of the sampler in which this thread's own timer fired on it.
    covered: Cell<u32>,
    /// Its address is under the key.
    introduced: Cell<bool>,
    /// `scopes` is being made, which allocates, and the allocator may come here.
    beginning: Cell<bool>,
}

const _: () = {
    assert!(size_of::<Thread>() == tls::SIZE);
    assert!(align_of::<Thread>() == 8);
    assert!(std::mem::offset_of!(Thread, in_force) == 0);
};

/// The scopes, while they are changed nobody else's: an allocator that a change calls may come here. In cache lines of its own, wherever an
/// allocator puts it: no other thread waits for what this one writes.
#[repr(align(64))]
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
        Thread::here().end();
    }
}

impl Thread {
    /// The calling thread's own. Not callable from a signal handler.
    #[inline]
    pub(super) fn here<'a>() -> &'a Self {
        let fixed = fixed();
        let place = fixed.unwrap_or_else(address::locate);
        // SAFETY: thread-local memory of the calling thread, of the size and alignment given to the assembler, zero at
        //         birth, which is a valid `Thread`; it lives as long as its thread, which the reference does not leave: it is
        //         neither stored nor handed on by the functions below.
        let thread = unsafe { &*place.cast::<Self>() };
        if fixed.is_none() && !thread.introduced.get() {
            thread.introduced.set(address::leave_word(place));
        }
        thread
    }

    /// Does `work` with the scopes of the calling thread and the pointer to what is in force; `None` when the thread is ending, and
    /// for an allocator that is called while they are made or changed. Not callable from a signal handler.
    pub(super) fn with_here<R>(work: impl FnOnce(&mut Scopes, &InForce) -> R) -> Option<R> {
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

    /// Shows the span of OpenTelemetry likewise, if there is one.
    #[cfg(feature = "opentelemetry")]
    #[inline]
    pub(super) fn show_at_once(span: Linked) -> Option<()> {
        // SAFETY: as above.
        unsafe { Self::at_once(|scopes, in_force| scopes.show_at_once(in_force, span)) }
    }

    /// What [`with_here`](Self::with_here) does, for work that takes less time than to keep others away.
    ///
    /// # Safety
    /// `work` calls nothing of anybody else's, the allocator above all: it could come here again.
    #[inline]
    unsafe fn at_once<R>(work: impl FnOnce(&mut Scopes, &InForce) -> Option<R>) -> Option<R> {
        // SAFETY: as in `here`.
        let thread = unsafe { &*fixed()?.cast::<Self>() };
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

    /// Frees what the thread has.
    pub(super) fn end(&self) {
        // SAFETY: nothing; so a handler on this thread does not find what is freed next.
        unsafe { self.in_force.put(ptr::null()) };
        let scopes = self.scopes.replace(ptr::null_mut());
        if !scopes.is_null() {
            // SAFETY: from the `Box` that `begin` made, taken out of its place, so that this happens once; nothing borrowed from it
            //         outlives a call of `with_here`, and no record of it is in force.
            drop(unsafe { Box::from_raw(scopes) });
        }
    }

    /// The calling thread's, for its signal handler; `None` where the thread never changed its record, so that there is
    /// nothing to know.
    pub(super) fn of_signal<R>(work: impl FnOnce(&Self) -> R) -> Option<R> {
        // SAFETY: null, or as in `here`: what was left under a key was left by this thread.
        unsafe { address::of_signal()?.cast::<Self>().as_ref() }.map(work)
    }

    /// Has `look` look at the record in force, if there is one. Callable from a signal handler of this thread.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Record) -> R) -> Option<R> {
        self.in_force.look(look)
    }

    /// See [`super::covered`].
    pub(super) fn covered(&self) -> &Cell<u32> {
        &self.covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an executable's threads all have their record at one distance, each its own, and that handlers find it.
    #[test]
    fn an_executable_has_its_records_at_a_fixed_distance() {
        address::prepare().unwrap();
        assert!(address::distance().is_some());
        let here = || ptr::from_ref(Thread::here()).addr();
        let of_signal = || Thread::of_signal(|thread| ptr::from_ref(thread).addr());
        let (mine, other) = (here(), std::thread::spawn(move || (here(), of_signal())).join().unwrap());
        assert_eq!((of_signal(), other.1), (Some(mine), Some(other.0)));
        assert_ne!(mine, other.0);
    }
}
