//! Which names of gRPC's calls may be tags. Clients can make names up, and only the answer tells whether a service has them.
//!
//! In: the paths of calls, and how each was answered, if it was. Out: whether a call's names are told. On the thread that serves the call; no lock, and nothing is
//! written but once for each method that there is, and for the first answers that say that there is none.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// So many calls may be answered badly, or not at all, whose names were never answered well: from then on, names are told only if they were.
const MOST_DOUBTED: u32 = 64;
/// Methods that are remembered.
const PLACES: usize = 1024;
/// Places that are looked at for one of them.
const PROBES: usize = 16;

/// A call that was not answered yet. Where it ends without an answer, nobody knows whether there is such a method.
#[derive(Debug)]
pub(super) struct Call(Number);

/// The names of a call, as one number that clients cannot choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number(NonZeroU64);

/// What is known of calls.
struct Calls {
    doubted: AtomicU32,
    /// One that was answered well found no place.
    is_full: AtomicBool,
    /// Numbers of those that were answered well; 0: none.
    known: [AtomicU64; PLACES],
}

static CALLS: Calls = Calls::new();

/// What makes a number of a path. Clients do not know it.
static SEED: OnceLock<RandomState> = OnceLock::new();

/// Makes ready what the first call would have to wait for if another thread made it: in a forked child nobody may be there to end that.
pub(super) fn prepare() {
    SEED.get_or_init(RandomState::new);
}

/// Whether the names of the call with this path are told.
pub(super) fn is_told(path: &str) -> bool {
    !CALLS.is_strict() || CALLS.is_known(Number::of(path))
}

impl Call {
    /// The call with this path.
    pub(super) fn of(path: &str) -> Self {
        Self(Number::of(path))
    }

    /// It was answered: well, or by an error, as it is where no service has its names.
    pub(super) fn ends(self, well: bool) {
        if well {
            CALLS.answered(self.0, true);
            std::mem::forget(self);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.answered(self.0, false);
    }
}

impl Number {
    fn of(path: &str) -> Self {
        let hash = SEED.get_or_init(RandomState::new).hash_one(path);
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }
}

impl Calls {
    const fn new() -> Self {
        let known = [const { AtomicU64::new(0) }; PLACES];
        Self { doubted: AtomicU32::new(0), is_full: AtomicBool::new(false), known }
    }

    // Relaxed, here and below: each number stands for itself.
    fn is_strict(&self) -> bool {
        self.doubted.load(Ordering::Relaxed) >= MOST_DOUBTED || self.is_full.load(Ordering::Relaxed)
    }

    fn answered(&self, call: Number, well: bool) {
        if self.is_known(call) {
            return;
        }
        if well {
            self.know(call);
        } else if !self.is_strict() {
            self.doubted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_known(&self, call: Number) -> bool {
        self.places(call).any(|place| place.load(Ordering::Relaxed) == call.0.get())
    }

    /// Remembers it, if there is a place. Where there is none, there are more names than are told, whoever made them up: a service may answer any name well.
    #[cold]
    fn know(&self, call: Number) {
        let number = call.0.get();
        let take = |place: &AtomicU64| place.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        // Another thread may remember the same one at the same time.
        if !self.places(call).any(|place| take(place).map_or_else(|there| there == number, |_| true)) {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    fn places(&self, call: Number) -> impl Iterator<Item = &AtomicU64> {
        let first = call.0.get() as usize;
        (0..PROBES).filter_map(move |probe| self.known.get(first.wrapping_add(probe) % PLACES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are told until too many were answered badly, and from then on those that were answered well, before or since.
    #[test]
    fn names_are_told_if_they_were_answered_well() {
        let calls = Calls::new();
        let [early, late, never] = ["/shop.Orders/Place", "/shop.Orders/Cancel", "/shop.Orders/Made"].map(Number::of);
        let is_told = |call| !calls.is_strict() || calls.is_known(call);
        calls.answered(early, true);
        // A method that there is may fail as often as it likes.
        (0..1000).for_each(|_| calls.answered(early, false));
        for made_up in 0..MOST_DOUBTED {
            assert!(is_told(never));
            calls.answered(Number::of(&format!("/made.Up/Name{made_up}")), false);
        }
        assert_eq!([early, late, never].map(is_told), [true, false, false]);
        calls.answered(late, true);
        calls.answered(never, false);
        assert_eq!([early, late, never].map(is_told), [true, true, false]);
    }

    /// Check that a method that several threads remember at once takes one place.
    #[test]
    fn what_threads_remember_at_once_takes_one_place() {
        const METHODS: usize = 200;
        let calls = Calls::new();
        let methods: Vec<_> = (0..METHODS).map(|method| Number::of(&format!("/shop.Orders/Once{method}"))).collect();
        let turns: Vec<_> = methods.iter().map(|_| std::sync::Barrier::new(4)).collect();
        let remember = || {
            for (method, turn) in methods.iter().zip(&turns) {
                turn.wait();
                // Past the look that as a rule finds it.
                calls.know(*method);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(remember))));
        let taken = calls.known.iter().filter(|place| place.load(Ordering::Relaxed) != 0).count();
        assert_eq!(taken, METHODS);
    }

    /// Check that methods beyond those that are remembered do no harm to them, and that no number is there twice.
    #[test]
    fn what_is_remembered_is_bounded() {
        let calls = Calls::new();
        let methods: Vec<_> = (0..10_000).map(|method| Number::of(&format!("/shop.Orders/Method{method}"))).collect();
        let first: Vec<_> = methods.iter().take(PLACES / 2).collect();
        for _ in 0..2 {
            methods.iter().for_each(|method| calls.answered(*method, true));
        }
        let known = methods.iter().filter(|method| calls.is_known(**method)).count();
        let taken = calls.known.iter().filter(|place| place.load(Ordering::Relaxed) != 0).count();
        assert_eq!((known, taken, calls.is_strict()), (PLACES, PLACES, true));
        let lost = first.iter().filter(|method| !calls.is_known(***method)).count();
        assert!(lost * 10 < first.len(), "{lost} of the first {}", first.len());
    }
}
