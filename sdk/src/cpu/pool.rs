//! The scratches of the signal handlers, and the epochs in which they count.
//!
//! In: handlers, each taking one scratch for the time of one sample. Out: counts of whole epochs, closed by the
//! `profiler` thread. A handler counts in the scratch that it holds, so counting needs no shared cache line. Closing an
//! epoch waits for the handlers that began in it, without stopping any: what they counted and what they wrote to the ring
//! then agree to the sample, and what was taken out of use before (an old unwinder) is used by nobody any more. The tests
//! try it in every order in which threads can meet (`tests/src/bin/models`).

use std::cell::UnsafeCell;

use profiler_proto::loss::{Cause, Loss};

use super::atomic::{AtomicU32, AtomicU64, Ordering};

/// Nobody holds the scratch.
const IDLE: u32 = 0;
/// Somebody holds it and has not said yet in which epoch.
const ENTERING: u32 = 1;
/// Somebody holds it in epoch 0 (`HELD`) or 1 (`HELD + 1`).
const HELD: u32 = 2;

/// One scratch, with the working memory `W`. Invariant: `work` and `counts` are touched by the holder alone, or by the closer for an epoch in which
/// no holder is left.
#[derive(Debug)]
struct Scratch<W> {
    state: AtomicU32,
    counts: [Counts; 2],
    work: UnsafeCell<W>,
}

/// What the holders of one scratch counted in one epoch.
#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    ring_full: AtomicU64,
    blocked: AtomicU64,
}

/// All scratches, and the epoch in force.
#[derive(Debug)]
pub(crate) struct Pool<W> {
    scratches: Box<[Scratch<W>]>,
    /// The first so many are held by hint; those behind them only where these are all held.
    by_hint: usize,
    epoch: AtomicU32,
    /// Samples that found no idle scratch: taken and lost in one count.
    no_scratch: AtomicU64,
}

// SAFETY: `work` is reached only through `Held`, of which there is at most one per scratch (the state is changed from
//         IDLE by compare-and-exchange), whichever thread that is on; everything else is atomic.
unsafe impl<W: Send> Sync for Pool<W> {}

/// What the handlers counted in one epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) taken: u64,
    pub(crate) lost: Loss,
}

impl<W> Pool<W> {
    /// A pool with a scratch for each of these, of which the first `by_hint` (at least one) are preferred.
    pub(crate) fn new(works: impl IntoIterator<Item = W>, by_hint: usize) -> Self {
        let scratch =
            |work| Scratch { state: AtomicU32::new(IDLE), counts: Default::default(), work: UnsafeCell::new(work) };
        let scratches: Box<[_]> = works.into_iter().map(scratch).collect();
        Self {
            by_hint: by_hint.clamp(1, scratches.len()),
            scratches,
            epoch: AtomicU32::new(0),
            no_scratch: AtomicU64::new(0),
        }
    }

    /// A scratch for one sample, the one at `hint` if it is idle; `None`, and counted, if none is. Callable from a signal
    /// handler.
    pub(crate) fn hold(&self, hint: u64) -> Option<Held<'_, W>> {
        let (by_hint, rest) = self.scratches.split_at(self.by_hint);
        let (after, before) = by_hint.split_at(hint as usize % self.by_hint);
        let Some(scratch) = before.iter().chain(after).chain(rest).find(|scratch| scratch.enter()) else {
            self.no_scratch.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // SeqCst: pairs with `begin_close`. Either this load sees the new epoch, or the state stored by `enter` before it
        // is seen by `is_over`, which then waits.
        let epoch = self.epoch.load(Ordering::SeqCst) & 1;
        scratch.state.store(HELD + epoch, Ordering::SeqCst);
        Some(Held { scratch, epoch })
    }

    /// Opens the next epoch; the one before is over once [`Pool::is_over`] says so. Returns the one before.
    pub(crate) fn begin_close(&self) -> u8 {
        // SeqCst: pairs with the load in `hold`.
        (self.epoch.fetch_add(1, Ordering::SeqCst) & 1) as u8
    }

    /// Whether every handler that began in `epoch` has ended. Never waits.
    pub(crate) fn is_over(&self, epoch: u8) -> bool {
        self.scratches.iter().all(|scratch| {
            // SeqCst: pairs with the stores in `enter`, `hold` and `Held::drop`.
            let state = scratch.state.load(Ordering::SeqCst);
            state != ENTERING && state != HELD + u32::from(epoch)
        })
    }

    /// Takes the counts of an epoch that is over.
    pub(crate) fn close(&self, epoch: u8) -> Closed {
        let mut closed = Closed::default();
        for scratch in &self.scratches {
            let counts = &scratch.counts[usize::from(epoch)];
            closed.taken += counts.taken.swap(0, Ordering::Relaxed);
            closed.lost.add(Cause::RingFull, counts.ring_full.swap(0, Ordering::Relaxed));
            closed.lost.add(Cause::Blocked, counts.blocked.swap(0, Ordering::Relaxed));
        }
        // One event that is both: the two figures come from the same count.
        let no_scratch = self.no_scratch.swap(0, Ordering::Relaxed);
        closed.taken += no_scratch;
        closed.lost.add(Cause::NoScratch, no_scratch);
        closed
    }
}

impl<W> Scratch<W> {
    fn enter(&self) -> bool {
        self.state.compare_exchange(IDLE, ENTERING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// A scratch held for the time of one sample.
#[derive(Debug)]
pub(crate) struct Held<'a, W> {
    scratch: &'a Scratch<W>,
    epoch: u32,
}

impl<W> Held<'_, W> {
    /// The epoch in which this sample is counted.
    pub(crate) fn epoch(&self) -> u8 {
        self.epoch as u8
    }

    /// Counts `stacks` that fell due.
    pub(crate) fn count_taken(&self, stacks: u64) {
        add(&self.counts().taken, stacks);
    }

    /// Counts a stack for which the ring had no room.
    pub(crate) fn count_ring_full(&self) {
        add(&self.counts().ring_full, 1);
    }

    /// Counts stacks that fell due while the signal was blocked.
    pub(crate) fn count_blocked(&self, stacks: u64) {
        add(&self.counts().blocked, stacks);
    }

    /// The working memory.
    pub(crate) fn work(&mut self) -> &mut W {
        // SAFETY: `self` is the only `Held` of this scratch (see `Pool`), and it is borrowed exclusively.
        unsafe { &mut *self.scratch.work.get() }
    }

    fn counts(&self) -> &Counts {
        &self.scratch.counts[self.epoch as usize]
    }
}

impl<W> Drop for Held<'_, W> {
    fn drop(&mut self) {
        // SeqCst: pairs with the load in `is_over`; whoever sees IDLE sees what was counted and written before.
        self.scratch.state.store(IDLE, Ordering::SeqCst);
    }
}

/// Adds to a count that only the holder writes.
fn add(count: &AtomicU64, n: u64) {
    count.store(count.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a scratch has one holder, and that a sample that finds none is counted as taken and lost.
    #[test]
    fn a_scratch_has_one_holder() {
        let pool = Pool::new([(); 2], 1);
        let (first, second) = (pool.hold(0).unwrap(), pool.hold(0).unwrap());
        assert!(pool.hold(1).is_none());
        first.count_taken(1);
        drop((first, second));
        let epoch = pool.begin_close();
        assert!(pool.is_over(epoch));
        let closed = pool.close(epoch);
        assert_eq!((closed.taken, closed.lost.count(Cause::NoScratch)), (2, 1));
    }

    /// Check that an epoch is not over while a handler that began in it runs, whatever began later.
    #[test]
    fn an_epoch_ends_with_its_last_handler() {
        let pool = Pool::new([(); 4], 4);
        let old = pool.hold(0).unwrap();
        let epoch = pool.begin_close();
        let new = pool.hold(1).unwrap();
        assert_ne!(old.epoch(), new.epoch());
        assert!(!pool.is_over(epoch));
        old.count_taken(1);
        new.count_taken(1);
        drop(old);
        assert!(pool.is_over(epoch));
        assert_eq!(pool.close(epoch).taken, 1);
    }

    /// Check that under many threads every count is in exactly one closed epoch.
    #[test]
    fn concurrent_counts_are_closed_once() {
        const EACH: u64 = 50_000;
        let pool = Pool::new([(); 3], 2);
        let mut taken = 0;
        let mut close = |pool: &Pool<()>| {
            let epoch = pool.begin_close();
            while !pool.is_over(epoch) {
                std::hint::spin_loop();
            }
            taken += pool.close(epoch).taken;
        };
        std::thread::scope(|scope| {
            let count = || (0..EACH).for_each(|hint| pool.hold(hint).iter().for_each(|held| held.count_taken(1)));
            let threads = [scope.spawn(count), scope.spawn(count), scope.spawn(count), scope.spawn(count)];
            while threads.iter().any(|thread| !thread.is_finished()) {
                close(&pool);
            }
        });
        close(&pool);
        assert_eq!(taken, 4 * EACH);
    }
}
