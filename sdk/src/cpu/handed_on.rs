//! Which threads are in a handler of somebody else that ours called.
//!
//! In: our handler, about to hand on a signal. Out: whether it may: a handler that was installed after ours, and that ours was put in front
//! of, may hand the signal back, and the two would call each other until the stack is full. Callable from a signal handler: nothing here
//! allocates, locks or makes a system call; threads are told apart by their pointers, for a thread may never have had
//! memory of ours.

use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::unwind::arch::thread_pointer;

/// The threads that are in such a handler, each at a place of its own. More than `PLACES` at once get no signal handed on.
pub(super) struct HandedOn<const PLACES: usize>([Place; PLACES]);

/// A thread's, or nobody's. Only its thread changes a place that is taken.
struct Place {
    /// The thread's pointer; 0: the place is free.
    thread: AtomicU64,
    /// Where on the thread's stack the handler was called; 0: it was not yet.
    at: AtomicUsize,
}

/// What became of a signal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It is the one that was handed on.
    CameBack,
    /// All places are taken by other threads.
    NoPlace,
}

impl<const PLACES: usize> HandedOn<PLACES> {
    pub(super) const fn new() -> Self {
        Self([const { Place { thread: AtomicU64::new(0), at: AtomicUsize::new(0) } }; PLACES])
    }

    /// Does `work`, unless it is what called this on this thread. Never inlined: a call within has a frame of its own, below.
    #[inline(never)]
    pub(super) fn once_at_a_time(&self, work: impl FnOnce()) -> Outcome {
        let here = 0_u8;
        // Seen by somebody, so that it stands in this call's frame.
        let here = ptr::from_ref(black_box(&here)).addr();
        let Some(place) = self.place_of(thread_pointer()) else { return Outcome::NoPlace };
        // Stacks grow downwards: an entry that is not above this one was left by a jump, and is over.
        if place.at.load(Ordering::Relaxed) > here {
            return Outcome::CameBack;
        }
        place.at.store(here, Ordering::Relaxed);
        work();
        place.at.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `place_of`; the next thread finds the place empty.
        place.thread.store(0, Ordering::Release);
        Outcome::Done
    }

    /// The thread's place, or one that is taken for it. One that a thread left by a jump, and then ended, is not free again before a
    /// thread has the same pointer.
    fn place_of(&self, thread: u64) -> Option<&Place> {
        let is_own = |place: &&Place| place.thread.load(Ordering::Relaxed) == thread;
        let take =
            |place: &&Place| place.thread.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
        self.0.iter().find(is_own).or_else(|| self.0.iter().find(take))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what comes back ends there, at any depth, and that the next signal is handed on again.
    #[test]
    fn what_comes_back_ends_there() {
        let (handed_on, mut outcomes) = (HandedOn::<2>::new(), Vec::new());
        for _ in 0..3 {
            let outcome = handed_on.once_at_a_time(|| {
                outcomes.push(handed_on.once_at_a_time(|| panic!("it came back")));
                outcomes.push(handed_on.once_at_a_time(|| panic!("it came back twice")));
            });
            outcomes.push(outcome);
        }
        let each = [Outcome::CameBack, Outcome::CameBack, Outcome::Done];
        assert!(outcomes.chunks(3).all(|outcomes| *outcomes == each), "{outcomes:?}");
    }

    /// Check that threads do not keep each other, but for more of them than there are places, and that places are free again.
    #[test]
    fn each_thread_has_a_place_of_its_own() {
        let handed_on = HandedOn::<2>::new();
        let other = |work: &(dyn Fn() -> Outcome + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        let third = || other(&|| handed_on.once_at_a_time(|| panic!("there was room")));
        let second = || {
            other(&|| {
                handed_on.once_at_a_time(|| {
                    assert_eq!(third(), Outcome::NoPlace);
                    assert_eq!(handed_on.once_at_a_time(|| ()), Outcome::CameBack);
                })
            })
        };
        for _ in 0..3 {
            assert_eq!(handed_on.once_at_a_time(|| assert_eq!(second(), Outcome::Done)), Outcome::Done);
        }
    }

    /// Check that a handler that was left by a jump is over, for whoever comes at its height or above.
    #[test]
    fn what_was_left_by_a_jump_is_over() {
        let handed_on = HandedOn::<2>::new();
        let place = handed_on.place_of(thread_pointer()).unwrap();
        place.at.store(1, Ordering::Relaxed);
        assert_eq!(handed_on.once_at_a_time(|| ()), Outcome::Done);
        assert_eq!(handed_on.0.each_ref().map(|place| place.thread.load(Ordering::Relaxed)), [0; 2]);
    }
}
