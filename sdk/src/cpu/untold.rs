//! The CPU time that a thread's alarm had not told of when it was taken away, for its next alarm to tell.
//!
//! In: threads whose alarms go, at a pause or where another rate asks for another engine, and what is known of those that had
//! ended. Out: what each begins with. An alarm
//! tells of a period once it is over, and of timers the kernel looks at them in its tick only: without this each change
//! would cost several milliseconds of each thread. Used by the `profiler` thread.

use std::collections::HashMap;
use std::time::Duration;

use super::clocks::nanos;
use super::departed::Departed;

/// What threads left untold.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    by_thread: HashMap<u32, Left>,
    /// What those left that had ended, and how much nobody had told of: nanoseconds.
    departed: Option<(Departed, i64)>,
    /// Sampling went on meanwhile, as far as anybody was told: what threads use until they have their next alarm counts.
    goes_on: bool,
}

/// What one thread left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Its clock.
    pub(super) cpu: Duration,
    /// Nanoseconds that its next sample stands for already: what nobody told of, and at first a part of a period at random. Less than
    /// none where its samples stand for more than it used, by chance.
    pub(super) nanos: i64,
    /// The part of a period of these, which it did not use.
    pub(super) phase: i64,
    /// Nanoseconds that it used and that its samples do not stand for.
    pub(super) unaccounted: i64,
}

impl Untold {
    /// What these threads left, and those that had `departed`: so many nanoseconds that nobody told of.
    pub(super) fn of(threads: impl Iterator<Item = (u32, Left)>, departed: Departed, untold: i64) -> Self {
        Self { by_thread: threads.collect(), departed: Some((departed, untold)), goes_on: false }
    }

    /// The same, where sampling goes on at once.
    pub(super) fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// What threads left that had ended, and the nanoseconds that nobody had told of, once.
    pub(super) fn departed(&mut self) -> Option<(Departed, i64)> {
        self.departed.take()
    }

    /// Whether sampling goes on.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// What thread `tid`, whose clock stands at `cpu`, begins with: nanoseconds, and how many of them are a part of a period at random.
    /// A clock that stands lower is another thread's, which has got the id.
    pub(super) fn of_thread(&self, tid: u32, cpu: Duration) -> Option<(i64, i64)> {
        let left = self.by_thread.get(&tid).filter(|left| left.cpu <= cpu)?;
        let meanwhile = if self.goes_on { nanos(cpu - left.cpu) } else { 0 };
        Some((left.nanos.saturating_add(meanwhile), left.phase))
    }

    /// The thread has an alarm again, which tells of it: of so many nanoseconds too that it used meanwhile.
    pub(super) fn take_over(&mut self, tid: u32, cpu: Duration) -> i64 {
        match self.by_thread.get(&tid).copied().filter(|left| left.cpu <= cpu) {
            Some(left) => {
                self.by_thread.remove(&tid);
                if self.goes_on { nanos(cpu - left.cpu) } else { 0 }
            }
            None => 0,
        }
    }

    /// What each of the threads that are gone used and its samples do not stand for, in nanoseconds.
    pub(super) fn abandoned(&mut self) -> impl Iterator<Item = i64> {
        self.by_thread.drain().map(|(_, left)| left.unaccounted)
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
        let left = |tid, cpu: u32, nanos| (tid, Left { cpu: cpu * MS, nanos, phase: 1, unaccounted: nanos / 3 });
        let threads = [left(7, 100, 3_000_000), left(8, 50, 9_000_000), left(9, 10, 12_000_000)];
        Untold::of(threads.into_iter(), Departed::begin(Duration::ZERO, 0, 4 * MS), 0)
    }

    /// Check that a thread begins with what it left, once, and that what it used meanwhile counts only where sampling went on.
    #[test]
    fn a_thread_begins_with_what_it_left() {
        let (mut paused, mut going_on) = (left(), left().going_on());
        let of = |untold: &Untold| untold.of_thread(7, 150 * MS);
        assert_eq!((of(&paused), of(&going_on)), (Some((3_000_000, 1)), Some((53_000_000, 1))));
        let take_over = |untold: &mut Untold| untold.take_over(7, 150 * MS);
        assert_eq!((take_over(&mut paused), take_over(&mut going_on)), (0, 50_000_000));
        assert_eq!((of(&paused), of(&going_on)), (None, None));
    }

    /// Check that nothing is given to another thread of the same id, and that what threads left which are gone is told.
    #[test]
    fn what_nobody_comes_back_for_is_abandoned() {
        let mut untold = left();
        assert_eq!((untold.of_thread(8, 49 * MS), untold.of_thread(1, 100 * MS)), (None, None));
        assert_eq!((untold.take_over(8, 49 * MS), untold.take_over(7, 100 * MS)), (0, 0));
        assert_eq!((untold.blocked(10 * MS, 0), untold.blocked(10 * MS, 1)), (1, 0));
        assert_eq!((untold.abandoned().sum::<i64>(), untold.abandoned().count()), (7_000_000, 0));
    }
}
