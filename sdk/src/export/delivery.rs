//! The task of one destination: takes the oldest parcel, sends it, settles it or tries again.
//!
//! In: its queue. Out: attempts and verdicts to the queue, a log line when the destination begins to fail and when it is well again. Each destination has a task of its own on the runtime of the exporting thread, so that one that hangs holds up no
//! other. Runs until it is aborted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_proto::loss::Cause;
use tokio::sync::Notify;

use super::answer::Answer;
use super::otlp_grpc::OtlpGrpc;
use super::otlp_http::OtlpHttp;
use super::parcel::Parcel;
use super::queue::{Attempt, Queue};
use super::retry::{Backoff, Retry};

/// What sends a parcel to one kind of peer.
#[derive(Debug)]
pub(super) enum Sender {
    Grpc(OtlpGrpc),
    Http(OtlpHttp),
}

impl Sender {
    async fn send(&mut self, parcel: &Parcel) -> Answer {
        match self {
            Self::Grpc(grpc) => grpc.send(&parcel.body).await,
            Self::Http(http) => http.send(&parcel.body).await,
        }
    }

    /// Bytes of bodies that were handed to a connection until now.
    fn sent_bytes(&self) -> u64 {
        match self {
            Self::Grpc(grpc) => grpc.sent_bytes(),
            Self::Http(http) => http.sent_bytes(),
        }
    }
}

/// Delivers what comes into `queue`. `hurry` cuts the wait for a retry short.
pub(super) async fn deliver(queue: Arc<Queue>, mut sender: Sender, retry: Retry, hurry: Arc<Notify>) {
    let mut backoff = Backoff::new(retry);
    let mut health = Health { name: queue.stats().name, failing: false };
    loop {
        let (number, parcel) = queue.next().await;
        let start = Instant::now();
        let answer = sender.send(&parcel).await;
        let now = Instant::now();
        queue.attempted(Attempt { number, latency: now - start, sent_bytes: sender.sent_bytes() });
        match answer {
            Answer::Accepted { warning } => {
                health.well(&parcel);
                backoff.reset();
                queue.accepted(number, warning);
            }
            Answer::Partial { rejected, why } => {
                health.ill(&why);
                backoff.reset();
                // No more than there are: it is the peer who says it.
                queue.count_rejected(rejected.min(parcel.fate.contents().profiles()));
                queue.given_up(number, Cause::Rejected, why);
            }
            Answer::Refused { why } => {
                health.ill(&why);
                backoff.reset();
                queue.given_up(number, Cause::Rejected, why);
            }
            Answer::Later { why, after } => {
                health.ill(&why);
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

/// Logs changes, not every failure: a destination that is down for a day must not fill the host's log.
struct Health {
    name: String,
    failing: bool,
}

impl Health {
    fn ill(&mut self, why: &str) {
        if !self.failing {
            tracing::warn!(destination = %self.name, why, "profiles are not being accepted");
        }
        self.failing = true;
    }

    fn well(&mut self, parcel: &Parcel) {
        let (bytes, uncompressed, samples) = (parcel.body.len(), parcel.body.uncompressed, parcel.body.samples);
        tracing::debug!(destination = %self.name, samples, bytes, uncompressed, "profiles were accepted");
        if self.failing {
            tracing::info!(destination = %self.name, "profiles are being accepted again");
        }
        self.failing = false;
    }
}
