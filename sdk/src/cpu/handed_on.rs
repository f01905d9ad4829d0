//! Which signals are being handed on, by which thread, and how many got each before.
//!
//! In: our handler, about to hand on a signal. Out: whose turn it is: a handler that was installed after ours, and that ours was put in front of,
//! may hand the signal back, which is then for the next older one. Callable from a signal handler: nothing here
//! allocates, locks or makes a system call; threads are told apart by their pointers, for a thread may never have had
//! memory of ours.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::unwind::arch::{stack_pointer, thread_pointer};

/// Most signals that a thread may be handing on within each other: one comes within another only where a handler lets it, but a handler
/// that hands a copy of each back would have no end.
const MOST_WITHIN: usize = 8;

/// The threads that are in such a handler, each at a place of its own. More than `PLACES` at once get no signal handed on.
pub(super) struct HandedOn<const PLACES: usize>([Place; PLACES]);

/// A thread's, or nobody's. Only its thread changes a place that is taken; a signal within puts back what it found.
struct Place {
    /// The thread's pointer; 0: the place is free.
    thread: AtomicU64,
    signal: AtomicUsize,
    at: AtomicUsize,
    number: AtomicUsize,
    within: AtomicUsize,
}

/// One handler's turn.
#[derive(Clone, Copy, Default)]
struct Turn {
    /// The address of the registers that the kernel saved for this signal.
    signal: usize,
    /// Where on the thread's stack the handler is called; 0: no turn.
    at: usize,
    /// How many got this signal before.
    number: usize,
    /// How many other signals are being handed on around it.
    within: usize,
}

impl Turn {
    fn next(self, signal: usize, at: usize) -> Self {
        match self {
            Self { at: 0, .. } => Self { signal, at, ..Self::default() },
            Self { signal: same, number, within, .. } if same == signal => {
                Self { signal, at, number: number + 1, within }
            }
            Self { within, .. } => Self { signal, at, number: 0, within: within + 1 },
        }
    }
}

impl<const PLACES: usize> HandedOn<PLACES> {
    pub(super) const fn new() -> Self {
        Self([const { Place::free() }; PLACES])
    }

    /// Does `work` with the number of those that got this signal before; `false` where all places are taken by other threads, or too many signals
    /// are within each other. Never inlined: a call within has a frame of its own, below.
    #[inline(never)]
    pub(super) fn in_turn(&self, signal: usize, work: impl FnOnce(usize)) -> bool {
        let here = stack_pointer();
        let Some((place, is_taken)) = self.place_of(thread_pointer()) else { return false };
        let found = place.turn();
        // Stacks grow downwards: a turn that is not above this one was left by a jump, and is over.
        let outer = Some(found).filter(|outer| outer.at > here).unwrap_or_default();
        let turn = outer.next(signal, here);
        let is_bounded = turn.within <= MOST_WITHIN;
        if is_bounded {
            place.set(turn);
            work(turn.number);
            place.set(outer);
        }
        // Not that of a call around this one, which may have taken it and not said more yet.
        if is_taken || (found.at != 0 && outer.at == 0) {
            // Release: pairs with the Acquire in `place_of`; the next thread finds the place empty.
            place.thread.store(0, Ordering::Release);
        }
        is_bounded
    }

    /// The thread's place, or one that is taken for it, and which of both. One that a thread left by a jump, and then ended, is not free again before a
    /// thread has the same pointer.
    fn place_of(&self, thread: u64) -> Option<(&Place, bool)> {
        let is_own = |place: &&Place| place.thread.load(Ordering::Relaxed) == thread;
        let take =
            |place: &&Place| place.thread.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let own = self.0.iter().find(is_own).map(|place| (place, false));
        own.or_else(|| self.0.iter().find(take).map(|place| (place, true)))
    }
}

impl Place {
    const fn free() -> Self {
        let [signal, at, number, within] = [const { AtomicUsize::new(0) }; 4];
        Self { thread: AtomicU64::new(0), signal, at, number, within }
    }

    fn turn(&self) -> Turn {
        let [signal, at, number, within] =
            [&self.signal, &self.at, &self.number, &self.within].map(|part| part.load(Ordering::Relaxed));
        Turn { signal, at, number, within }
    }

    fn set(&self, Turn { signal, at, number, within }: Turn) {
        let parts = [(&self.signal, signal), (&self.at, at), (&self.number, number), (&self.within, within)];
        parts.into_iter().for_each(|(part, value)| part.store(value, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Check that what comes back is for the next one, at any depth, and that the next signal is for the first again.
    #[test]
    fn what_comes_back_is_for_the_next_one() {
        let (handed_on, turns) = (HandedOn::<2>::new(), RefCell::new(Vec::new()));
        let took = |turn| turns.borrow_mut().push(turn);
        for signal in [16, 32, 32] {
            handed_on.in_turn(signal, |turn| {
                took(turn);
                handed_on.in_turn(signal, |turn| {
                    took(turn);
                    handed_on.in_turn(signal, took);
                });
                handed_on.in_turn(signal, took);
            });
        }
        assert_eq!(turns.into_inner(), [0, 1, 2, 1].repeat(3));
    }

    /// Check that a signal within another one begins with the first, and that the outer one goes on behind it.
    #[test]
    fn a_signal_within_another_is_its_own() {
        let (handed_on, turns) = (HandedOn::<1>::new(), RefCell::new(Vec::new()));
        let took = |signal, turn| turns.borrow_mut().push((signal, turn));
        handed_on.in_turn(16, |_| {
            handed_on.in_turn(32, |turn| {
                took(32, turn);
                handed_on.in_turn(32, |turn| took(32, turn));
            });
            handed_on.in_turn(16, |turn| took(16, turn));
        });
        assert_eq!(turns.into_inner(), [(32, 0), (32, 1), (16, 1)]);
    }

    /// Check that a handler that hands back a copy of each signal, which looks like another one, comes to an end.
    #[test]
    fn copies_come_to_an_end() {
        fn hand_back(handed_on: &HandedOn<1>, signal: usize, calls: &mut usize) {
            handed_on.in_turn(signal, |_| {
                *calls += 1;
                hand_back(handed_on, signal + 16, calls);
            });
        }
        let (handed_on, mut calls) = (HandedOn::new(), 0);
        hand_back(&handed_on, 16, &mut calls);
        assert_eq!((calls, handed_on.0[0].thread.load(Ordering::Relaxed)), (1 + MOST_WITHIN, 0));
    }

    /// Check that threads do not keep each other, but for more of them than there are places, and that places are free again.
    #[test]
    fn each_thread_has_a_place_of_its_own() {
        let handed_on = HandedOn::<2>::new();
        let other = |work: &(dyn Fn() -> bool + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        let third = || other(&|| handed_on.in_turn(16, |_| panic!("there was room")));
        let second = || {
            other(&|| {
                handed_on.in_turn(16, |turn| {
                    assert_eq!((turn, third()), (0, false));
                    assert!(handed_on.in_turn(16, |turn| assert_eq!(turn, 1)));
                })
            })
        };
        for _ in 0..3 {
            assert!(handed_on.in_turn(16, |_| assert!(second())));
        }
    }

    /// Check that a handler that was left by a jump is over: for whoever comes at its height or above, and for another signal below it, which
    /// may be that of a thread that got the pointer of the one that jumped.
    #[test]
    fn what_was_left_by_a_jump_is_over() {
        let handed_on = HandedOn::<2>::new();
        let (place, _) = handed_on.place_of(thread_pointer()).unwrap();
        let left = |at| place.set(Turn { signal: 16, at, number: 1, within: 0 });
        left(usize::MAX);
        assert!(handed_on.in_turn(32, |turn| assert_eq!(turn, 0)));
        left(1);
        assert!(handed_on.in_turn(16, |turn| assert_eq!(turn, 0)));
        assert_eq!(handed_on.0.each_ref().map(|place| place.thread.load(Ordering::Relaxed)), [0; 2]);
    }
}
