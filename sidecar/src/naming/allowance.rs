//! How much of large symbol tables is read: programs that come again and again, each with another one, would have the agent do nothing else, and all others that lie on
//! their file system be without names meanwhile.
//!
//! In: entries of a table that a reading is to look at, and a time. Out: whether it may begin. Shared by the threads that read.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Entries that may be looked at one after the other: a second or two of a processor, thirty browsers, two of the largest tables that are read at all.
const MOST: u64 = 100_000_000;
/// How many of them are forgotten each second: a twentieth of a processor.
const EACH_SECOND: u64 = 4_000_000;
/// What may be looked at whatever there was before: tables of less than half a million functions.
const SMALL: u64 = 1_000_000;

/// What was looked at, and since when none of that was forgotten.
#[derive(Debug, Default)]
pub(super) struct Allowance(Mutex<Spent>);

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    entries: u64,
    since: Option<Instant>,
    /// Whether it was said that something has to wait.
    is_told: bool,
}

impl Allowance {
    /// Whether so many may be looked at now: then they count as if they were.
    pub(super) fn takes(&self, entries: u64, now: Instant) -> bool {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = spent.since.replace(now).unwrap_or(now);
        let forgotten =
            now.saturating_duration_since(since).as_micros().saturating_mul(u128::from(EACH_SECOND)) / 1_000_000;
        spent.entries = spent.entries.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX));
        let takes = entries <= SMALL || spent.entries < MOST;
        if takes {
            spent.entries = spent.entries.saturating_add(entries);
        } else if !std::mem::replace(&mut spent.is_told, true) {
            tracing::warn!(
                "too many large symbol tables in a short time: those files are shown by address until they are read"
            );
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Check that the largest tables are read twice, and then one in some ten seconds; and that small ones never wait.
    #[test]
    fn large_tables_wait_and_small_ones_do_not() {
        const LARGEST: u64 = 12 << 22;
        let (allowance, begin) = (Allowance::default(), Instant::now());
        let read = |seconds: u64, entries| allowance.takes(entries, begin + Duration::from_secs(seconds));
        assert_eq!([0, 0, 0].map(|at| read(at, LARGEST)), [true, true, false]);
        assert!((0..1000).all(|_| read(1, 1000)));
        let later: u64 = (2..1002).map(|at| u64::from(read(at, LARGEST))).sum();
        assert!((70..=90).contains(&later), "{later} in a thousand seconds");
        assert!(read(1002, SMALL));
    }
}
