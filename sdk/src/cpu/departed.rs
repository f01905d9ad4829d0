//! The CPU time of threads that have ended, and how much of it their signals told of.
//!
//! In: the process's CPU clock, those of the living threads, what each thread's signals stood for when it ended. Out:
//! periods that nobody told of, for samples of brief threads to stand for; and those that found no sample. The kernel looks
//! at a thread's timer in its tick, so what falls due after the last tick of its life is never seen: on a busy machine a
//! tenth of what brief threads use. A thread that blocks the signal tells of nothing at all. Used by the `profiler` thread.

use std::time::Duration;

use super::clocks::nanos;
use super::handler::BLOCKED_NANOS;

/// How many looks in a row periods wait for a sample that could stand for them.
const PATIENCE: u8 = 10;

/// Sums over the threads that are gone, since sampling began.
#[derive(Debug, Clone)]
pub(super) struct Departed {
    /// The process's clock when sampling began, less what its process-wide alarm had told before: nanoseconds.
    from: i64,
    /// What signals and samples stood for: nanoseconds.
    told: i64,
    /// Threads that had an alarm of their own.
    ended: u64,
    /// Of these, those of the last look.
    looked_at: u64,
    /// Nanoseconds for samples to stand for.
    missing: u64,
    /// Looks since samples last stood for any.
    waited: u8,
    tick: Duration,
    chance: Chance,
}

/// How much may be missing by chance, of what was told at whichever rate: nanoseconds. What one thread tells differs from what it used by
/// up to a period, for its first signal comes at random; the sum over many, by the root of their number. The process-wide alarm
/// tells of a tick at once, whichever thread that hits.
#[derive(Debug, Clone, Default)]
struct Chance {
    /// Two periods, or ticks, of the longest there were.
    longest: u64,
    /// The sum of their squares over the threads that ended, and over the signals of the process-wide alarm.
    squares: u128,
    /// What the process-wide alarm had told at the last look.
    process_told: u64,
}

impl Chance {
    /// So many threads have ended since the last look.
    fn note(&mut self, ended: u64, process_told: u64, of_period: u64, tick: u64) {
        let at_once = (tick / of_period).max(1);
        self.longest = self.longest.max(2 * at_once * of_period);
        let told = process_told.saturating_sub(std::mem::replace(&mut self.process_told, process_told));
        let periods = u128::from(ended) * u128::from(of_period) + u128::from(told) * u128::from(at_once);
        self.squares = self.squares.saturating_add(periods * u128::from(of_period));
    }

    fn nanos(&self) -> u64 {
        self.longest.saturating_add(u64::try_from(self.squares.isqrt() / 4).unwrap_or(u64::MAX))
    }
}

/// CPU time of the process, and what is known of it without those that have ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    /// By the process's clock.
    pub(super) process: Duration,
    /// Of threads that live, since each got its own alarm: what they owe, their own clocks say.
    pub(super) living: Duration,
    /// What the process-wide alarm told, of threads without one of their own: nanoseconds.
    pub(super) process_told: u64,
}

impl Departed {
    /// Nobody has ended yet.
    pub(super) fn begin(process: Duration, process_told: u64, tick: Duration) -> Self {
        let from = nanos(process).saturating_sub_unsigned(process_told);
        let chance = Chance { process_told, ..Chance::default() };
        Self { from, told: 0, ended: 0, looked_at: 0, missing: 0, waited: 0, tick, chance }
    }

    /// A thread has ended, or lost its alarm, whose samples and losses stood for `told` nanoseconds.
    pub(super) fn leave(&mut self, told: i64) {
        self.told = self.told.saturating_add(told);
        self.ended += 1;
    }

    /// A living thread has used so many nanoseconds that it has told of or will.
    pub(super) fn leave_to_living(&mut self, nanos: i64) {
        self.told = self.told.saturating_add(nanos);
    }

    /// Goes on after a time in which no sample was to be taken, or begins: so much, and no more, is untold now. All clocks are looked
    /// at again for this: what is used while alarms are set is in some of them, and told by nobody.
    pub(super) fn go_on(&mut self, used: Use, untold: i64) {
        self.from = self.from.saturating_add(self.untold(used).saturating_sub(untold));
    }

    /// Nanoseconds of the process's that neither living threads owe nor anything stands for.
    pub(super) fn untold(&self, used: Use) -> i64 {
        nanos(used.process)
            .saturating_sub(self.from)
            .saturating_sub(nanos(used.living))
            .saturating_sub_unsigned(used.process_told)
            .saturating_sub(self.told)
    }

    /// Compares the clock with what was told. `left` is how many periods a thread that does not block the signal may leave
    /// untold. Out: the periods to give up: what threads that block the signal used, and what no sample could stand for; none
    /// before they come to as much as a thread may be behind by.
    pub(super) fn look(&mut self, used: Use, period: Duration, left: u32) -> u64 {
        let of_period = whole(period).max(1);
        let untold = self.untold(used);
        let ended = self.ended - std::mem::replace(&mut self.looked_at, self.ended);
        self.chance.note(ended, used.process_told, of_period, whole(self.tick));
        let untold = u64::try_from(untold).unwrap_or(0).saturating_sub(self.chance.nanos());
        let may_be_left = ended.saturating_mul(left.into()).saturating_mul(of_period);
        self.missing = untold.min(self.missing.saturating_add(may_be_left));
        self.waited = if self.missing < of_period { 0 } else { self.waited + 1 };
        if self.waited >= PATIENCE {
            (self.missing, self.waited) = (0, 0);
        }
        let beyond = untold - self.missing;
        let given_up = if beyond < BLOCKED_NANOS { 0 } else { beyond / of_period };
        self.tell(given_up, period);
        given_up
    }

    /// Takes up to so many of the missing periods, for samples to stand for.
    pub(super) fn take(&mut self, at_most: u64, period: Duration) -> u64 {
        let taken = (self.missing / whole(period).max(1)).min(at_most);
        if taken > 0 {
            self.missing -= taken.saturating_mul(whole(period)).min(self.missing);
            self.waited = 0;
            self.tell(taken, period);
        }
        taken
    }

    /// Something stands for so many periods from now on.
    pub(super) fn tell(&mut self, periods: u64, period: Duration) {
        self.told = self.told.saturating_add(nanos(period).saturating_mul(i64::try_from(periods).unwrap_or(i64::MAX)));
    }
}

fn whole(duration: Duration) -> u64 {
    u64::try_from(nanos(duration)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PERIOD: Duration = Duration::from_millis(10);

    fn used(process: u32, living: u32) -> Use {
        Use { process: process * MS, living: living * MS, process_told: 0 }
    }

    /// Check that what brief threads leave untold is for samples to stand for, beyond what chance explains, and once.
    #[test]
    fn what_brief_threads_leave_untold_is_missing() {
        let mut departed = Departed::begin(1000 * MS, 0, 4 * MS);
        // A hundred threads used 20 ms each and told of 15.
        (0..100).for_each(|_| departed.leave(15_000_000));
        assert_eq!(departed.look(used(1000 + 2000 + 700, 700), PERIOD, 1), 0);
        // 500 ms less two periods and a quarter of the root of 100.
        assert_eq!((departed.take(30, PERIOD), departed.take(30, PERIOD), departed.take(30, PERIOD)), (30, 15, 0));
        assert_eq!((departed.look(used(1000 + 2000 + 900, 900), PERIOD, 1), departed.take(9, PERIOD)), (0, 0));
    }

    /// Check that what no tick explains was used by threads that block the signal, and is given up at once.
    #[test]
    fn what_no_tick_explains_is_given_up() {
        let mut departed = Departed::begin(Duration::ZERO, 0, 4 * MS);
        (0..4).for_each(|_| departed.leave(0));
        // 40 periods, two and a half of leeway; four threads may leave one each.
        assert_eq!(departed.look(used(400, 0), PERIOD, 1), 33);
        assert_eq!((departed.take(9, PERIOD), departed.look(used(400, 0), PERIOD, 1)), (4, 0));
        // Less than 250 ms waits for more.
        assert_eq!((departed.look(used(640, 0), PERIOD, 1), departed.look(used(650, 0), PERIOD, 1)), (0, 25));
    }

    /// Check that what no sample can stand for is given up in the end.
    #[test]
    fn what_no_sample_stands_for_is_given_up() {
        let mut departed = Departed::begin(Duration::ZERO, 0, 4 * MS);
        (0..100).for_each(|_| departed.leave(0));
        let given_up: Vec<u64> = (0..12).map(|_| departed.look(used(600, 0), PERIOD, 1)).collect();
        assert_eq!(given_up, [0, 0, 0, 0, 0, 0, 0, 0, 0, 55, 0, 0]);
        assert_eq!(departed.take(9, PERIOD), 0);
    }

    /// Check that samples get their part again after what waited for one was given up, however often that happened.
    #[test]
    fn giving_up_does_not_last() {
        let mut departed = Departed::begin(Duration::ZERO, 0, 4 * MS);
        for _ in 0..300 {
            departed.leave(0);
            departed.look(used(100, 0), PERIOD, 1);
        }
        (0..100).for_each(|_| departed.leave(15_000_000));
        assert_eq!(departed.look(used(2100, 0), PERIOD, 1), 0);
        assert!(departed.take(99, PERIOD) > 40);
    }

    /// Check that what waits for samples is the same time at another rate.
    #[test]
    fn another_rate_changes_no_time() {
        let mut departed = Departed::begin(Duration::ZERO, 0, 4 * MS);
        (0..100).for_each(|_| departed.leave(0));
        assert_eq!(departed.look(used(1000, 0), PERIOD, 1), 0);
        assert_eq!((departed.take(99, 10 * PERIOD), departed.take(99, PERIOD)), (9, 5));
    }

    /// Check that what the process uses while nothing is sampled, and while alarms are set again, is nobody's, and that what was
    /// untold before still is.
    #[test]
    fn what_is_used_meanwhile_is_nobodys() {
        let mut departed = Departed::begin(Duration::ZERO, 0, 4 * MS);
        (0..4).for_each(|_| departed.leave(0));
        let before = used(1000, 700);
        let untold = departed.untold(before);
        departed.leave_to_living(nanos(before.living));
        // Seven milliseconds of the threads' own count since their new alarms; three of the process-wide alarm's tell of nobody's time.
        departed.go_on(Use { process: 5000 * MS, living: 7 * MS, process_told: 3_000_000 }, untold);
        let later = Use { process: 5300 * MS, living: 307 * MS, process_told: 3_000_000 };
        assert_eq!((untold, departed.untold(later)), (300_000_000, 300_000_000));
    }

    /// Check that what chance left untold at a low rate is no loss at a high one, and that what is missing beyond it still is.
    #[test]
    fn chance_at_a_low_rate_is_no_loss_at_a_high_one() {
        let (second, mut departed) = (1000 * MS, Departed::begin(Duration::ZERO, 0, 4 * MS));
        (0..2).for_each(|_| departed.leave(1_000_000_000));
        assert_eq!(departed.look(used(3650, 0), second, 1), 0);
        (0..2).for_each(|_| departed.leave(1_000_000_000));
        assert_eq!((departed.look(used(5650, 0), PERIOD, 1), departed.take(9, PERIOD)), (0, 0));
        assert!((200..300).contains(&departed.look(used(8400, 0), PERIOD, 1)));
    }
}
