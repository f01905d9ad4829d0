//! When a request that failed is tried again: exponential backoff with full jitter, within a budget of time.
//!
//! In: the moments at which attempts failed, and what the peer asked for. Out: how long to wait, or that the budget is
//! used up. Pure but for the source of jitter; the clock is an argument.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// How a destination that does not answer is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The longest first wait; each further one may be twice as long as the one before. Default: 1 s.
    pub initial: Duration,
    /// No wait of our own is longer. Default: 30 s.
    pub max: Duration,
    /// A request is given up when it fails this long after its first attempt. Default: 5 min.
    pub budget: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(30), budget: Duration::from_secs(300) }
    }
}

/// What a peer asks for is obeyed up to here, so that one wrong answer cannot silence us for a day.
const LONGEST_OBEYED: Duration = Duration::from_secs(600);

/// The backoff of one destination. It lasts over several requests: a peer that is down is not asked faster because the
/// next request's turn has come.
#[derive(Debug)]
pub(super) struct Backoff {
    retry: Retry,
    ceiling: Duration,
    /// The request that failed last, and when its first attempt did.
    failing: Option<(u64, Instant)>,
}

impl Backoff {
    pub(super) fn new(retry: Retry) -> Self {
        Self { retry, ceiling: retry.initial, failing: None }
    }

    /// The peer answered, be it with a refusal: the next wait is short again.
    pub(super) fn reset(&mut self) {
        self.ceiling = self.retry.initial;
        self.failing = None;
    }

    /// How long to wait after `request` failed at `now`, at least `asked` if the peer asked for it; `None` when the
    /// request's budget is used up.
    pub(super) fn delay(&mut self, request: u64, asked: Option<Duration>, now: Instant) -> Option<Duration> {
        let first = match self.failing {
            Some((failing, first)) if failing == request => first,
            _ => now,
        };
        self.failing = Some((request, first));
        if now.duration_since(first) >= self.retry.budget {
            return None;
        }
        let own = jitter(self.ceiling);
        self.ceiling = self.ceiling.saturating_mul(2).min(self.retry.max);
        Some(asked.map_or(own, |asked| asked.min(LONGEST_OBEYED).saturating_add(jitter(self.retry.initial))))
    }
}

/// A random part of `ceiling`. The standard library's hash keys are random, which is enough to keep peers from
/// retrying in step; it is no source of secrets.
fn jitter(ceiling: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) >> 32;
    ceiling.mul_f64(random as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Retry =
        Retry { initial: Duration::from_secs(1), max: Duration::from_secs(8), budget: Duration::from_secs(60) };

    /// Check that the ceiling of the waits doubles up to its maximum, and that waits differ.
    #[test]
    fn waits_grow_to_the_maximum_and_are_jittered() {
        let now = Instant::now();
        let runs: Vec<Vec<Duration>> = (0..200)
            .map(|_| {
                let mut backoff = Backoff::new(RETRY);
                (0..6).map(|_| backoff.delay(1, None, now).unwrap()).collect()
            })
            .collect();
        for (attempt, ceiling) in [1, 2, 4, 8, 8, 8].into_iter().enumerate() {
            let ceiling = Duration::from_secs(ceiling);
            let longest = runs.iter().map(|run| run[attempt]).max().unwrap();
            let shortest = runs.iter().map(|run| run[attempt]).min().unwrap();
            // 200 uniform draws: none above 3/4, or none below 1/4, has probability 1e-25.
            assert!(longest <= ceiling && longest > ceiling.mul_f64(0.75), "attempt {attempt}: {longest:?}");
            assert!(shortest < ceiling.mul_f64(0.25), "attempt {attempt}: {shortest:?}");
        }
    }

    /// Check that a request is given up once its budget is over, and that the next one has a budget of its own while
    /// the backoff goes on.
    #[test]
    fn each_request_has_its_own_budget() {
        let start = Instant::now();
        let mut backoff = Backoff::new(RETRY);
        assert!(backoff.delay(1, None, start).is_some());
        assert!(backoff.delay(1, None, start + Duration::from_secs(59)).is_some());
        assert_eq!(backoff.delay(1, None, start + Duration::from_secs(60)), None);
        assert!(backoff.delay(2, None, start + Duration::from_secs(61)).is_some());
        assert_eq!(backoff.ceiling, RETRY.max);
        backoff.reset();
        assert_eq!(backoff.ceiling, RETRY.initial);
    }

    /// Check that the peer's wish is a lower bound, and that an absurd one is cut.
    #[test]
    fn the_peers_wish_is_obeyed_within_reason() {
        let mut backoff = Backoff::new(RETRY);
        let asked = Duration::from_secs(20);
        let delay = backoff.delay(1, Some(asked), Instant::now()).unwrap();
        assert!(delay >= asked && delay <= asked + RETRY.initial, "{delay:?}");
        let delay = backoff.delay(1, Some(Duration::MAX), Instant::now()).unwrap();
        assert!(delay <= LONGEST_OBEYED + RETRY.initial, "{delay:?}");
    }
}
