//! The CPU time that a thread's alarm had not told of when it was taken away, for its next alarm to tell.
//!
//! In: threads whose alarms go, at a pause or where another rate asks for another engine. Out: what each begins with. An alarm
//! tells of a period once it is over, and of timers the kernel looks at them in its tick only: without this each change
//! would cost several milliseconds of each thread. Used by the `profiler` thread.

use std::collections::HashMap;
use std::time::Duration;

use super::clocks::nanos;

/// What threads left untold.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    by_thread: HashMap<u32, Left>,
    /// Sampling went on meanwhile, as far as anybody was told: what threads use until they have their next alarm counts.
    goes_on: bool,
}

/// What one thread left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Its clock.
    pub(super) cpu: Duration,
    /// Nanoseconds; less than none where its samples stand for more than it used, by chance.
    pub(super) nanos: i64,
}

impl Untold {
    /// What these threads left.
    pub(super) fn of(threads: impl Iterator<Item = (u32, Left)>) -> Self {
        Self { by_thread: threads.collect(), goes_on: false }
    }

    /// The same, where sampling goes on at once.
    pub(super) fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// Whether sampling goes on.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Nanoseconds that thread `tid`, whose clock stands at `cpu`, begins with. A clock that stands lower is another thread's,
    /// which has got the id.
    pub(super) fn of_thread(&self, tid: u32, cpu: Duration) -> Option<i64> {
        let left = self.by_thread.get(&tid).filter(|left| left.cpu <= cpu)?;
        let meanwhile = if self.goes_on { nanos(cpu - left.cpu) } else { 0 };
        Some(left.nanos.saturating_add(meanwhile))
    }

    /// The thread has an alarm again, which tells of it.
    pub(super) fn is_taken_over(&mut self, tid: u32, cpu: Duration) {
        if self.of_thread(tid, cpu).is_some() {
            self.by_thread.remove(&tid);
        }
    }

    /// Whole periods that were left by threads which are gone. A part of one is no loss: a thread's first alarm comes at random, so that
    /// parts are made up for on average.
    pub(super) fn abandoned(&mut self, period: Duration) -> u64 {
        let periods = self.by_thread.drain().map(|(_, left)| left.nanos / nanos(period).max(1));
        periods.filter_map(|periods| u64::try_from(periods).ok()).sum()
    }

    /// Whole periods that were left by threads which block the signal: more than `by_chance`. For the last time.
    pub(super) fn blocked(&self, period: Duration, by_chance: u32) -> u64 {
        let periods = self.by_thread.values().map(|left| left.nanos / nanos(period).max(1));
        periods.filter(|periods| *periods > by_chance.into()).map(i64::unsigned_abs).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn left() -> Untold {
        let left = |tid, cpu: u32, nanos| (tid, Left { cpu: cpu * MS, nanos });
        Untold::of([left(7, 100, 3_000_000), left(8, 50, 9_000_000), left(9, 10, 12_000_000)].into_iter())
    }

    /// Check that a thread begins with what it left, once, and that what it used meanwhile counts only where sampling went on.
    #[test]
    fn a_thread_begins_with_what_it_left() {
        let (mut paused, going_on) = (left(), left().going_on());
        assert_eq!(paused.of_thread(7, 150 * MS), Some(3_000_000));
        paused.is_taken_over(7, 150 * MS);
        assert_eq!((paused.of_thread(7, 150 * MS), going_on.of_thread(7, 150 * MS)), (None, Some(53_000_000)));
    }

    /// Check that nothing is given to another thread of the same id, and that what threads left which are gone is told.
    #[test]
    fn what_nobody_comes_back_for_is_abandoned() {
        let mut untold = left();
        assert_eq!((untold.of_thread(8, 49 * MS), untold.of_thread(1, 100 * MS)), (None, None));
        untold.is_taken_over(8, 49 * MS);
        untold.is_taken_over(7, 100 * MS);
        assert_eq!((untold.blocked(10 * MS, 0), untold.blocked(10 * MS, 1)), (1, 0));
        // Of 9 ms and 12 ms one whole period.
        assert_eq!((untold.abandoned(10 * MS), untold.abandoned(10 * MS)), (1, 0));
    }
}
