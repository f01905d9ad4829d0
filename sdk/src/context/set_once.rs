//! What is set once and is there for the life of the process, without a lock: a child that was forked at any moment can use what its parent had.
//!
//! In: a value, from any thread. Out: the one that was first. Setting allocates: not from a signal handler.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for a value; null until there is one.
#[derive(Debug)]
pub(super) struct SetOnce<T>(AtomicPtr<T>);

impl<T: Send + Sync> SetOnce<T> {
    /// Without a value.
    pub(super) const fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, if there is one.
    #[inline]
    pub(super) fn get(&'static self) -> Option<&'static T> {
        // Acquire: pairs with the Release in `set`; who sees the pointer sees the value.
        // SAFETY: null, or from a `Box` that `set` made and nobody frees.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts `value` there, unless another thread was first; the one that is there afterwards.
    #[cold]
    pub(super) fn set(&'static self, value: T) -> &'static T {
        let new = Box::into_raw(Box::new(value));
        // Release: pairs with the Acquire load in `get`; Acquire: what another thread put there is read below.
        let there = match self.0.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(there) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                there
            }
        };
        // SAFETY: what is there is never freed.
        unsafe { &*there }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that of several threads one is first, that all have its value, and that the others' are dropped.
    #[test]
    fn the_first_value_stays() {
        struct Counted(u32, &'static std::sync::atomic::AtomicU32);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        static DROPPED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        static PLACE: SetOnce<Counted> = SetOnce::empty();
        assert!(PLACE.get().is_none());
        let turn = std::sync::Barrier::new(4);
        let set = |number| {
            turn.wait();
            PLACE.set(Counted(number, &DROPPED)).0
        };
        let all: Vec<u32> = std::thread::scope(|scope| {
            let set = &set;
            let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || set(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all, [PLACE.get().unwrap().0; 4]);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 3);
    }
}
