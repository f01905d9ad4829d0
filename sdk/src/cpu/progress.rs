//! How far a clock has come beyond what signals told of.
//!
//! In: what a clock says, the pace of the alarm on it, what its signals stand for. Out: how many periods are missing, and the
//! pace of an alarm that is to tell of the rest. Pure; used by the `profiler` thread.

use std::time::Duration;

use super::clocks::nanos;
use super::engine::Pace;

/// How far a thread (or the process) has come since its alarm was set, by its clock and by its signals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The clock when the alarm was set, less the part of a period that was over then, less what signals had told, plus
    /// what was made good since: nanoseconds.
    from: i64,
    /// `from` as it was when the alarm was set.
    began: i64,
    /// The part of a period, at random, that was over when the first alarm was set, or the period last changed: nobody used it.
    phase: i64,
    /// What is to be made good with the next samples: nanoseconds, for the period may change before there are any.
    due: i64,
}

impl Progress {
    /// From now on, of a thread whose clock stands at `cpu` and whose signals told of `told` nanoseconds before.
    pub(super) fn begin(cpu: Duration, told: u64, pace: Pace) -> Self {
        let over = pace.period.saturating_sub(pace.first);
        let phase = nanos(over);
        let from = nanos(cpu) - phase - i64::try_from(told).unwrap_or(i64::MAX);
        Self { from, began: from, phase, due: 0 }
    }

    /// From now on, of a thread whose clock stands at `cpu` and whose last alarm left so many nanoseconds `untold`, of which `phase`
    /// were a part of a period at random, or told of so many too soon: the new one is to be set to what comes back, and what that
    /// does not tell of is due. `random`: of any size.
    pub(super) fn go_on(cpu: Duration, untold: i64, phase: i64, period: Duration, random: u64) -> (Self, Pace) {
        let (due, pace) = split(untold, period, random);
        let from = nanos(cpu) - (untold - due);
        (Self { from, began: from, phase, due }, pace)
    }

    /// Goes on with another period. The alarm is to be set to what comes back: it goes off when a whole new period is
    /// untold. What is untold beyond that, because a signal was under way and goes with the old setting, is due; where signals
    /// told of more than was used, the first period is longer by that. Of a new alarm `fresh` would be the pace: its part of a period
    /// takes the place of the one at first, for that of a second would be told at 250 Hz as if it had been used. `random`: of any size.
    pub(super) fn change_period(&mut self, cpu: Duration, told: u64, fresh: Pace, random: u64) -> Pace {
        let phase = nanos(fresh.period.saturating_sub(fresh.first));
        let more = phase - std::mem::replace(&mut self.phase, phase);
        (self.from, self.began) = (self.from.saturating_sub(more), self.began.saturating_sub(more));
        let (due, pace) = split(self.untold(cpu, told), fresh.period, random);
        self.from = self.from.saturating_add(due);
        self.due = self.due.saturating_add(due);
        pace
    }

    /// The same for the alarm of the process, whose signals find some thread in any tick: it stays in step, and whole periods are due.
    pub(super) fn keep_step(&mut self, cpu: Duration, told: u64, period: Duration) -> Pace {
        let whole = self.behind(cpu, told, period);
        self.make_good(whole, period);
        self.due = self.due.saturating_add(nanos_of(whole, period));
        let first = nanos(period).saturating_sub(self.untold(cpu, told)).max(1);
        Pace { first: Duration::from_nanos(first.unsigned_abs()), period }
    }

    /// Goes on with another alarm, whose first period begins now: how many periods what is untold comes to, which are due.
    /// A part of one is rounded up or down by chance (`random`, of any size), so that on average nothing is lost.
    pub(super) fn change_alarm(&mut self, cpu: Duration, told: u64, period: Duration, random: u64) -> u32 {
        let nanos = u64::try_from(nanos(period)).unwrap_or(0).max(1);
        let untold = u64::try_from(self.untold(cpu, told)).unwrap_or(0);
        let periods = u32::try_from(untold.saturating_add(random % nanos) / nanos).unwrap_or(u32::MAX);
        self.make_good(periods, period);
        self.due += nanos_of(periods, period);
        periods
    }

    /// Nanoseconds that signals told of and that were made good, since the alarm was set.
    pub(super) fn accounted(&self, told: u64) -> i64 {
        self.from.saturating_sub(self.began).saturating_add_unsigned(told).saturating_sub(self.due)
    }

    /// Nanoseconds of what is left that nobody used: the part of a period at random.
    pub(super) fn phase(&self) -> i64 {
        self.phase
    }

    /// How many periods were left over when the period or the alarm was changed, and wait for a sample.
    pub(super) fn due(&self, period: Duration) -> u32 {
        u32::try_from(self.due / nanos(period).max(1)).unwrap_or(0)
    }

    /// The periods that were left over when the period or the alarm was changed, once.
    pub(super) fn take_due(&mut self, period: Duration) -> u32 {
        let due = self.due(period);
        self.due -= nanos_of(due, period);
        due
    }

    /// Whole periods that have passed by the clock without a signal.
    pub(super) fn behind(&self, cpu: Duration, told: u64, period: Duration) -> u32 {
        u32::try_from(self.untold(cpu, told) / nanos(period).max(1)).unwrap_or(0)
    }

    /// Nanoseconds that neither a signal nor a sample stands for.
    pub(super) fn left(&self, cpu: Duration, told: u64) -> i64 {
        self.untold(cpu, told).saturating_add(self.due)
    }

    /// Nanoseconds that have passed by the clock without a signal.
    fn untold(&self, cpu: Duration, told: u64) -> i64 {
        let told = i64::try_from(told).unwrap_or(i64::MAX);
        nanos(cpu).saturating_sub(self.from).saturating_sub(told)
    }

    /// Notes that `periods` were made good: by weights of samples, or as a loss.
    pub(super) fn make_good(&mut self, periods: u32, period: Duration) {
        self.from = self.from.saturating_add(nanos_of(periods, period));
    }
}

/// What of so many nanoseconds is due, and the pace of an alarm that tells of the rest. Less than none were told of too soon.
///
/// Where a period is over already the alarm goes off at once, for what is due waits for a sample: of a thread whose alarm is changed
/// before another period is over, there would be none. Its phase is then another one, so a part of a period is rounded up or down by
/// chance, as by [`Progress::change_alarm`].
fn split(untold: i64, period: Duration, random: u64) -> (i64, Pace) {
    let of_period = nanos(period).max(1);
    let (due, first) = if untold < of_period {
        (0, of_period.saturating_sub(untold))
    } else {
        let part = i64::try_from(random % of_period.unsigned_abs()).unwrap_or(0);
        ((untold.saturating_add(part) / of_period - 1) * of_period, 1)
    };
    (due, Pace { first: Duration::from_nanos(first.unsigned_abs()), period })
}

fn nanos_of(periods: u32, period: Duration) -> i64 {
    i64::from(periods).saturating_mul(nanos(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Check that a thread is behind by the whole periods that no signal and no correction stands for.
    #[test]
    fn a_thread_is_behind_by_whole_periods() {
        let mut progress = Progress::begin(100 * MS, 7_000_000, Pace { first: 4 * MS, period: 10 * MS });
        let behind = |progress: &Progress, cpu: u32, told: u64| progress.behind(cpu * MS, 7_000_000 + told, 10 * MS);
        assert_eq!((behind(&progress, 103, 0), behind(&progress, 104, 0)), (0, 1));
        assert_eq!(behind(&progress, 145, 20_000_000), 3);
        progress.make_good(2, 10 * MS);
        assert_eq!((behind(&progress, 145, 20_000_000), behind(&progress, 145, 90_000_000)), (1, 0));
        assert_eq!(progress.accounted(20_000_000), 40_000_000);
    }

    /// Check that a change of the period leaves nothing out: what is untold goes into the first new period, or is due.
    #[test]
    fn a_change_of_the_period_leaves_nothing_out() {
        let whole = |period: u32| Pace { first: period * MS, period: period * MS };
        let mut progress = Progress::begin(Duration::ZERO, 0, whole(10));
        assert_eq!(progress.change_period(8 * MS, 0, whole(20), 7), Pace { first: 12 * MS, period: 20 * MS });
        assert_eq!((progress.take_due(20 * MS), progress.behind(20 * MS, 0, 20 * MS)), (0, 1));
        // One signal told of 20 ms, another one is lost on its way: five periods and a part, which chance leaves out.
        let at_once = Pace { first: Duration::from_nanos(1), period: 5 * MS };
        assert_eq!(progress.change_period(47 * MS, 20_000_000, whole(5), 2_999_999), at_once);
        // What waits is the same time at another rate.
        assert_eq!((progress.take_due(10 * MS), progress.take_due(5 * MS)), (2, 0));
        let told = 25_000_000;
        assert_eq!((progress.behind(49 * MS, told, 5 * MS), progress.behind(50 * MS, told, 5 * MS)), (0, 1));
    }

    /// Check that what was told of too soon, by a signal that met the new period before the alarm did, is waited for.
    #[test]
    fn what_was_told_too_soon_is_waited_for() {
        let whole = |period: u32| Pace { first: period * MS, period: period * MS };
        let mut progress = Progress::begin(Duration::ZERO, 0, whole(4));
        // After 4 ms a signal told of a second.
        assert_eq!(progress.change_period(5 * MS, 1_000_000_000, whole(1000), 0).first, 1995 * MS);
        assert_eq!(progress.change_period(6 * MS, 1_000_000_000, whole(4), 0).first, 998 * MS);
        assert_eq!(progress.take_due(4 * MS), 0);
    }

    /// Check that the part of a long period that was over at first, by chance, is not told as used when the period becomes short, and
    /// that a long one begins with a part of its own.
    #[test]
    fn a_part_of_a_period_at_random_goes_with_it() {
        let pace = |first: u32, period: u32| Pace { first: first * MS, period: period * MS };
        let mut progress = Progress::begin(Duration::ZERO, 0, pace(300, 1000));
        assert_eq!((progress.change_period(2 * MS, 0, pace(3, 4), 0).first, progress.due(4 * MS)), (MS, 0));
        assert_eq!(progress.change_period(2 * MS, 0, pace(600, 1000), 0).first, 598 * MS);
        assert_eq!(progress.accounted(0), 0);
    }

    /// Check that what one alarm left is told by the next one: by its first signal, and by what is due.
    #[test]
    fn what_an_alarm_left_is_told_by_the_next() {
        let go_on = |untold, random| Progress::go_on(500 * MS, untold, 0, 10 * MS, random);
        let (progress, pace) = go_on(7_000_000, 9_999_999);
        assert_eq!(pace, Pace { first: 3 * MS, period: 10 * MS });
        assert_eq!((progress.behind(502 * MS, 0, 10 * MS), progress.behind(503 * MS, 0, 10 * MS)), (0, 1));
        // The first signal, which comes at once, tells of one period.
        for (random, due) in [(0, 1), (2_999_999, 1), (3_000_000, 2), (9_999_999, 2)] {
            let (mut progress, pace) = go_on(27_000_000, random);
            assert_eq!((pace.first, progress.left(502 * MS, 0)), (Duration::from_nanos(1), 29_000_000));
            assert_eq!((progress.take_due(10 * MS), progress.accounted(10_000_000)), (due, 10_000_000));
        }
        let (progress, pace) = go_on(-7_000_000, 0);
        assert_eq!((pace.first, progress.left(500 * MS, 0), progress.accounted(0)), (17 * MS, -7_000_000, 0));
    }

    /// Check that another alarm begins with what is untold told, on average.
    #[test]
    fn a_change_of_the_alarm_loses_nothing_on_average() {
        let due = |random: u64| {
            let mut progress = Progress::begin(Duration::ZERO, 0, Pace { first: 10 * MS, period: 10 * MS });
            let due = progress.change_alarm(23 * MS, 10_000_000, 10 * MS, random);
            assert_eq!(progress.take_due(10 * MS), due);
            due
        };
        assert_eq!((due(0), due(6_999_999), due(7_000_000), due(19_999_999)), (1, 1, 2, 2));
    }
}
