//! The task of one destination: takes the oldest parcel, sends it, settles it or tries again.
//!
//! In: its queue. Out: attempts and verdicts to the queue, a log line when the destination begins to fail, when it is well again, and when
//! it warns. Each destination has a task of its own on the runtime of the exporting thread, so that one that hangs holds up no
//! other. Runs until it is aborted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_proto::loss::Cause;
use tokio::sync::Notify;

use super::answer::Answer;
use super::otlp_grpc::OtlpGrpc;
use super::otlp_http::OtlpHttp;
use super::parcel::Parcel;
use super::pusher::Pusher;
use super::queue::{Attempt, Queue};
use super::retry::{Backoff, Retry};

/// What sends a parcel to one kind of peer.
#[derive(Debug)]
pub(super) enum Sender {
    Grpc(OtlpGrpc),
    Http(OtlpHttp),
    Pyroscope(Pusher),
}

impl Sender {
    async fn send(&mut self, parcel: &Parcel) -> Answer {
        match self {
            Self::Grpc(grpc) => grpc.send(&parcel.body).await,
            Self::Http(http) => http.send(&parcel.body).await,
            Self::Pyroscope(pusher) => pusher.send(&parcel.body).await,
        }
    }

    /// Bytes of bodies that were handed to a connection until now.
    fn sent_bytes(&self) -> u64 {
        match self {
            Self::Grpc(grpc) => grpc.sent_bytes(),
            Self::Http(http) => http.sent_bytes(),
            Self::Pyroscope(pusher) => pusher.sent_bytes(),
        }
    }
}

/// Delivers what comes into `queue`. `hurry` cuts the wait for a retry short.
pub(super) async fn deliver(queue: Arc<Queue>, mut sender: Sender, retry: Retry, hurry: Arc<Notify>) {
    let mut backoff = Backoff::new(retry);
    let mut log = Log::new(queue.stats().name);
    loop {
        let (number, parcel) = queue.next().await;
        let start = Instant::now();
        let answer = sender.send(&parcel).await;
        let now = Instant::now();
        queue.attempted(Attempt { number, latency: now - start, sent_bytes: sender.sent_bytes() });
        match answer {
            Answer::Accepted { warning } => {
                log.accepted(&parcel, warning.as_deref(), now);
                backoff.reset();
                queue.accepted(number, warning);
            }
            Answer::Partial { rejected, why } => {
                log.failed(&why, now);
                backoff.reset();
                // No more than there are: it is the peer who says it.
                queue.count_rejected(rejected.min(parcel.fate.contents().profiles()));
                queue.given_up(number, Cause::Rejected, why);
            }
            Answer::Refused { why } => {
                log.failed(&why, now);
                backoff.reset();
                queue.given_up(number, Cause::Rejected, why);
            }
            Answer::Later { why, after } => {
                log.failed(&why, now);
                match backoff.delay(number, after, now) {
                    None => queue.given_up(number, Cause::Unreachable, why),
                    Some(delay) => {
                        queue.put_back(why);
                        drop(parcel);
                        pause(delay, after.is_some(), &hurry).await;
                    }
                }
            }
        }
    }
}

/// Waits for `delay`; a wait that the peer asked for is not cut short.
async fn pause(delay: Duration, asked: bool, hurry: &Notify) {
    if asked {
        tokio::time::sleep(delay).await;
    } else {
        let _ = tokio::time::timeout(delay, hurry.notified()).await;
    }
}

/// Logs changes, not every failure: a destination that is down for a day, or that warns of every request, must not fill the host's log.
struct Log {
    name: String,
    failures: Seldom,
    /// It was said that the destination fails, and not yet that it is well again.
    failing: bool,
    warnings: Seldom,
}

impl Log {
    fn new(name: String) -> Self {
        Self { name, failures: Seldom::default(), failing: false, warnings: Seldom::default() }
    }

    fn failed(&mut self, why: &str, now: Instant) {
        if !self.failing && self.failures.is_due(now) {
            tracing::warn!(destination = %self.name, why, "profiles are not being accepted");
            self.failing = true;
        }
    }

    fn accepted(&mut self, parcel: &Parcel, warning: Option<&str>, now: Instant) {
        let (bytes, uncompressed, samples) = (parcel.body.len(), parcel.body.uncompressed, parcel.body.samples);
        tracing::debug!(destination = %self.name, samples, bytes, uncompressed, "profiles were accepted");
        if std::mem::take(&mut self.failing) {
            tracing::info!(destination = %self.name, "profiles are being accepted again");
        }
        if let Some(warning) = warning.filter(|_| self.warnings.is_due(now)) {
            tracing::warn!(destination = %self.name, warning, "profiles were accepted with a warning");
        }
    }
}

/// Lines of one sort in the log: one in ten minutes at most.
#[derive(Debug, Default)]
struct Seldom {
    last: Option<Instant>,
}

impl Seldom {
    /// Whether one may be written at `now`, which it then is.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= Duration::from_secs(600));
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what a peer does all the time is said at once, then once in ten minutes.
    #[test]
    fn lines_are_written_seldom() {
        let (start, mut lines) = (Instant::now(), Seldom::default());
        let written = (0..3601).filter(|second| lines.is_due(start + Duration::from_secs(*second)));
        assert_eq!(written.collect::<Vec<_>>(), [0, 600, 1200, 1800, 2400, 3000, 3600]);
    }
}
