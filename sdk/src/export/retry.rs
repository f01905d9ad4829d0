//! When a request that failed is tried again: exponential backoff with full jitter, within a budget of time.
//!
//! In: the moments at which attempts failed and in what way. Out: how long to wait, and whether the request is
//! given up. Pure but for the source of jitter; the clock is an argument.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use profiler_proto::loss::Cause;

/// How a destination that does not accept is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The longest first wait; each further one may be twice as long as the one before. Default: 1 s.
    pub initial: Duration,
    /// No wait of our own is longer. Default: 30 s.
    pub max: Duration,
    /// A request is given up when it has failed for this long at a peer that was reached. Time in which there is no connection
    /// does not count. Default: 5 min.
    pub budget: Duration,
    /// What has waited for longer is given up, reached or not. Default: 55 min, for Pyroscope takes nothing that began an hour
    /// ago.
    pub max_age: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(30),
            budget: Duration::from_secs(300),
            max_age: Duration::from_secs(55 * 60),
        }
    }
}

/// What a peer asks for is obeyed up to here, so that one wrong answer cannot silence us for a day.
const LONGEST_OBEYED: Duration = Duration::from_secs(600);

/// So often is a request of memory sent again that a peer throttles without saying until when: what is above its burst never passes, and
/// of each attempt some peers keep a part.
const THROTTLED_REPEATS: u32 = 2;

/// In what way an attempt failed that may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setback {
    /// There was no connection: nothing was sent.
    Unreached,
    /// It was sent, and no answer came.
    Unanswered,
    /// The peer wants it later, after this time if it says so.
    Later(Option<Duration>),
    /// It is too much for the peer now, which does not say until when.
    Throttled,
}

/// What follows from a failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Consequence {
    /// How long to wait before the next attempt, be it with another request.
    pub(super) wait: Duration,
    /// Why the request is not sent again.
    pub(super) given_up: Option<Cause>,
}

/// The backoff of one destination. It lasts over several requests: a peer that is down is not asked faster because the
/// next request's turn has come.
#[derive(Debug)]
pub(super) struct Backoff {
    retry: Retry,
    ceiling: Duration,
    /// The request of memory that failed last.
    live: Option<Failing>,
    /// The request on disk that failed last. What fails beside it does not make its budget whole again: it may be the one that the peer falls over with.
    kept: Option<Failing>,
}

/// A request that has failed.
#[derive(Debug)]
struct Failing {
    request: u64,
    /// How much of the budget is used.
    used: Duration,
    /// When the last attempt failed, if it reached the peer, or when the peer wanted to be asked again.
    reached: Option<Instant>,
    throttled: u32,
    /// Whether an attempt went without an answer: it may have arrived.
    unanswered: bool,
    /// Whether another one failed since its last attempt: not all of the time since then is its fault.
    held_up: bool,
}

impl Backoff {
    pub(super) fn new(retry: Retry) -> Self {
        Self { retry, ceiling: retry.initial, live: None, kept: None }
    }

    /// The peer took or refused `request` for good: the next wait is short again. What another one has used of its budget stays used: it may be
    /// one that the peer cannot take.
    pub(super) fn reset(&mut self, request: u64) {
        self.ceiling = self.retry.initial;
        for slot in [&mut self.live, &mut self.kept] {
            *slot = slot.take().filter(|failing| failing.request != request);
        }
    }

    /// The request on disk that failed has all of its budget again: the failures were not its fault.
    pub(super) fn forgive(&mut self) {
        self.kept = None;
    }

    /// What follows from the setback that `request` met with at `now`.
    pub(super) fn fail(&mut self, request: u64, setback: Setback, now: Instant) -> Consequence {
        if let Some(kept) = &mut self.kept {
            kept.held_up = true;
        }
        let given_up = enter(&mut self.live, &self.retry, request, setback, now);
        Consequence { wait: self.wait(setback), given_up }
    }

    /// The same of a request that is on disk, where it can wait: it is not given up for being throttled before its budget is used.
    pub(super) fn fail_kept(&mut self, request: u64, setback: Setback, now: Instant) -> Consequence {
        let is_throttled = setback == Setback::Throttled;
        let setback = if is_throttled { Setback::Later(None) } else { setback };
        let given_up = enter(&mut self.kept, &self.retry, request, setback, now);
        let given_up = given_up.map(|cause| if is_throttled { Cause::Rejected } else { cause });
        Consequence { wait: self.wait(setback), given_up }
    }

    /// The next wait: at least as long as the peer asked for, and no shorter than it would be without: a peer that says "now" each time is
    /// not asked without end.
    fn wait(&mut self, setback: Setback) -> Duration {
        let own = jitter(self.ceiling);
        self.ceiling = self.ceiling.saturating_mul(2).min(self.retry.max);
        match setback {
            Setback::Later(Some(asked)) => {
                own.max(asked.min(LONGEST_OBEYED).saturating_add(jitter(self.retry.initial)))
            }
            _ => own,
        }
    }
}

/// Enters the setback of `request` in its `slot`; why the request is given up.
fn enter(slot: &mut Option<Failing>, retry: &Retry, request: u64, setback: Setback, now: Instant) -> Option<Cause> {
    let failing = slot.take().filter(|failing| failing.request == request);
    let failing = slot.insert(failing.unwrap_or_else(|| Failing::new(request)));
    failing.enter(setback, now, retry.max);
    failing.given_up(retry.budget).filter(|_| setback != Setback::Unreached)
}

impl Failing {
    fn new(request: u64) -> Self {
        Self { request, used: Duration::ZERO, reached: None, throttled: 0, unanswered: false, held_up: false }
    }

    fn enter(&mut self, setback: Setback, now: Instant, longest_wait: Duration) {
        let since = self.reached.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        // The peer may have been away for long; it costs no more than if this one had been tried all the time.
        self.used += if std::mem::take(&mut self.held_up) { since.min(longest_wait) } else { since };
        // A wait that the peer asked for is none of ours.
        let asked = if let Setback::Later(Some(asked)) = setback { asked.min(LONGEST_OBEYED) } else { Duration::ZERO };
        self.reached = (setback != Setback::Unreached).then_some(now + asked);
        self.throttled += u32::from(setback == Setback::Throttled);
        self.unanswered |= setback == Setback::Unanswered;
    }

    fn given_up(&self, budget: Duration) -> Option<Cause> {
        if self.throttled > THROTTLED_REPEATS {
            return Some(Cause::Rejected);
        }
        let cause = if self.unanswered { Cause::Unanswered } else { Cause::Unreachable };
        (self.used >= budget).then_some(cause)
    }
}

/// A random part of `ceiling`. The standard library's hash keys are random, which is enough to keep peers from
/// retrying in step; it is no source of secrets.
fn jitter(ceiling: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) >> 32;
    ceiling.mul_f64(random as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
