//! How soon after a turn the next one may begin, however often the kernel side calls.
//!
//! In: ends of turns. Out: how long to rest. Pure.

use std::time::{Duration, Instant};

/// The shortest time from one turn to the next: a machine that starts thousands of programs a second does not cost a turn for each.
const REST: Duration = Duration::from_millis(5);
/// Turns in a second that need no rest: who begins now and then is looked at at once, for until then its samples lack their labels.
const AT_ONCE: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// When the last turn ended, and how many had no rest.
#[derive(Debug)]
pub(super) struct Pace {
    ended: Instant,
    since: Instant,
    at_once: u32,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { ended: now, since: now, at_once: 0 }
    }

    /// A turn has ended.
    pub(super) fn ended(&mut self, now: Instant) {
        self.ended = now;
    }

    /// How long to rest before the turn that is called for.
    pub(super) fn rest(&mut self, now: Instant) -> Duration {
        let left = REST.saturating_sub(now.saturating_duration_since(self.ended));
        if left.is_zero() {
            return left;
        }
        if now.saturating_duration_since(self.since) >= SECOND {
            (self.since, self.at_once) = (now, 0);
        }
        if self.at_once >= AT_ONCE {
            return left;
        }
        self.at_once += 1;
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that so many turns of a second need no rest, that those which come late do not count, and that all others have theirs.
    #[test]
    fn some_turns_of_each_second_need_no_rest() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        let mut rests = |at: Duration| {
            let now = begun + at;
            pace.ended(now);
            [Duration::from_millis(1), REST].map(|later| pace.rest(now + later))
        };
        for second in 0..3 {
            let rested: Vec<_> =
                (0..30).map(|turn| rests(second * SECOND + turn * Duration::from_millis(20))).collect();
            assert!(rested.iter().all(|[_, late]| late.is_zero()));
            let without = rested.iter().filter(|[soon, _]| soon.is_zero()).count();
            assert_eq!(without, AT_ONCE as usize, "in second {second}");
            assert_eq!(rested[29][0], Duration::from_millis(4));
        }
    }
}
