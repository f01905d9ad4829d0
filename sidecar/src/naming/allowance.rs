//! How much CPU time may go into files of targets: programs that come again and again, each with another one, would have the agent do nothing else, and all others that lie on
//! their file system be without names meanwhile.
//!
//! In: what work is to take, or has taken, and a time. Out: whether it may begin, or go on. Shared by the threads that read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::thread_cpu;

/// A twentieth of a processor.
const SHARE: u32 = 20;
/// What may be taken whatever there was before: a table of symbols of half a million functions, a thousand addresses.
const SMALL: Duration = Duration::from_micros(12_500);
/// Who had so few looked up when the time was over, and used little of it, was waited for.
const FEW: u32 = 16;

/// So much at once, and a twentieth of a processor then.
#[derive(Debug)]
pub(super) struct Allowance {
    most: Duration,
    /// What is said when something has to wait.
    told: &'static str,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    time: Duration,
    /// When a part of it was forgotten last.
    since: Option<Instant>,
    /// Whether it was said that something has to wait.
    is_told: bool,
}

impl Allowance {
    /// For tables of symbols: thirty browsers, two of the largest tables that are read at all.
    pub(super) fn of_symbols() -> Self {
        let told = "too many large symbol tables in a short time: those files are shown by address until they are read";
        Self::new(Duration::from_millis(1250), told)
    }

    /// For addresses: a hundred programs that begin at once.
    pub(super) fn of_addresses() -> Self {
        let told = "addresses take too long to look up: those of processes with many new ones are shown without names until it is their turn";
        Self::new(Duration::from_secs(10), told)
    }

    fn new(most: Duration, told: &'static str) -> Self {
        Self { most, told, spent: Mutex::default() }
    }

    /// So much was taken, whatever there was before.
    fn charge(&self, cost: Duration, now: Instant) {
        let mut spent = self.spent_by(now);
        spent.time = spent.time.saturating_add(cost);
    }

    fn spent_by(&self, now: Instant) -> MutexGuard<'_, Spent> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let since = spent.since.replace(now).unwrap_or(now);
        spent.time = spent.time.saturating_sub(now.saturating_duration_since(since) / SHARE);
        spent
    }

    /// Whether so much may be taken now: then it counts as if it were.
    pub(super) fn takes(&self, cost: Duration, now: Instant) -> bool {
        let mut spent = self.spent_by(now);
        let takes = cost <= SMALL || spent.time < self.most;
        if takes {
            spent.time = spent.time.saturating_add(cost);
        } else if !std::mem::replace(&mut spent.is_told, true) {
            tracing::warn!("{}", self.told);
        }
        takes
    }
}

/// What looking up addresses takes, in one go of the calling thread.
#[derive(Debug)]
pub(super) struct Stint<'a> {
    allowance: &'a Allowance,
    begun: Instant,
    /// How long it may take: after that nobody waits for the answer any more.
    longest: Duration,
    /// CPU time of the thread when it began.
    before: Duration,
    /// What of it is in the allowance.
    charged: Duration,
    looked_up: u32,
    end: End,
}

/// How a stint came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With the work.
    Done,
    /// All CPU time is taken; the work takes so much that nothing more is to be done for so long.
    Spent(Duration),
    /// The time was over, with much done: the rest is for the next one.
    Full,
    /// The time was over, and nearly all of it, this much, was waiting for files.
    Late(Duration),
}

impl<'a> Stint<'a> {
    pub(super) fn begin(allowance: &'a Allowance, longest: Duration) -> Self {
        let (charged, looked_up, end) = (Duration::ZERO, 0, End::Done);
        Self { allowance, begun: Instant::now(), longest, before: thread_cpu(), charged, looked_up, end }
    }

    /// Whether one more may be looked up.
    pub(super) fn goes_on(&mut self) -> bool {
        let step = self.taken().saturating_sub(self.charged);
        if self.end == End::Done && step > SMALL {
            self.charged += step;
            if !self.allowance.takes(step, Instant::now()) {
                self.end = End::Spent(self.taken().saturating_mul(SHARE));
            }
        }
        let elapsed = self.begun.elapsed();
        if self.end == End::Done && elapsed >= self.longest {
            let has_waited = self.looked_up < FEW && self.taken() < elapsed / 4;
            self.end = if has_waited { End::Late(elapsed) } else { End::Full };
        }
        self.looked_up += 1;
        self.end == End::Done
    }

    /// It is over.
    pub(super) fn over(self) -> End {
        self.allowance.charge(self.taken().saturating_sub(self.charged), Instant::now());
        self.end
    }

    fn taken(&self) -> Duration {
        thread_cpu().saturating_sub(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the largest tables are read twice, and then one in some ten seconds; and that small ones never wait.
    #[test]
    fn large_tables_wait_and_small_ones_do_not() {
        const LARGEST: Duration = Duration::from_millis(630);
        let (allowance, begin) = (Allowance::of_symbols(), Instant::now());
        let read = |seconds: u64, cost| allowance.takes(cost, begin + Duration::from_secs(seconds));
        assert_eq!([0, 0, 0].map(|at| read(at, LARGEST)), [true, true, false]);
        assert!((0..1000).all(|_| read(1, SMALL / 1000)));
        let later: u64 = (2..1002).map(|at| u64::from(read(at, LARGEST))).sum();
        assert!((70..=90).contains(&later), "{later} in a thousand seconds");
        assert!(read(1002, SMALL));
    }

    /// Check that looking up goes on for as long as there is something left, whoever takes it, that all of it counts, and that who works is told from who waits.
    #[test]
    fn a_stint_ends_when_all_is_taken() {
        const LONG: Duration = Duration::from_secs(600);
        let allowance = Allowance::new(3 * SMALL, "");
        let work = |longest, until: Duration| {
            let mut stint = Stint::begin(&allowance, longest);
            while stint.goes_on() && stint.taken() < until {}
            stint.over()
        };
        assert_eq!(work(LONG, SMALL / 2), End::Done);
        assert!(allowance.spent_by(Instant::now()).time >= SMALL / 4, "{allowance:?}");
        let rest = |end| if let End::Spent(rest) = end { rest } else { panic!("{end:?}") };
        assert!(rest(work(LONG, LONG)) > SMALL * SHARE);
        let last = rest(work(LONG, LONG));
        assert!(last > SMALL * SHARE && last < LONG, "{last:?}, and {SMALL:?} is what all have");
        let waits = |looked_up| {
            let mut stint = Stint { looked_up, ..Stint::begin(&allowance, Duration::from_millis(1)) };
            std::thread::sleep(Duration::from_millis(50));
            assert!(!stint.goes_on());
            stint.over()
        };
        assert!(matches!(waits(0), End::Late(_)));
        assert_eq!(waits(FEW), End::Full);
    }
}
