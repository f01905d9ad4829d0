//! The task of one destination: takes the oldest parcel, sends it, settles it or tries again; beside it, what comes back from disk.
//!
//! In: its queue. Out: attempts and verdicts to the queue, a log line when the destination begins to fail, when it is well again, and when
//! it warns. Each destination has a task of its own on the runtime of the exporting thread, so that one that hangs holds up no
//! other. Runs until it is aborted.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use profiler_proto::loss::Cause;
use tokio::sync::Notify;

use super::answer::Answer;
use super::body::Body;
use super::files::writer::Writer;
use super::grpc::Grpc;
use super::otlp_http::OtlpHttp;
use super::pace::Pace;
use super::parcel::Parcel;
use super::pusher::Pusher;
use super::queue::{Attempt, Queue};
use super::replay::{Replay, Returned};
use super::retry::{Backoff, Consequence, Retry, Setback};
use super::shelf::Shelf;
use crate::seldom::Seldom;

/// What sends bodies to one kind of peer.
#[derive(Debug)]
pub(super) enum Sender {
    Grpc(Grpc),
    Http(OtlpHttp),
    Pyroscope(Pusher),
    Files(Writer),
}

impl Sender {
    async fn send(&mut self, body: &Body) -> Answer {
        match self {
            Self::Grpc(grpc) => grpc.send(body).await,
            Self::Http(http) => http.send(body).await,
            Self::Pyroscope(pusher) => pusher.send(body).await,
            Self::Files(writer) => writer.send(body).await,
        }
    }

    /// Bytes of bodies that were handed to a connection until now.
    fn sent_bytes(&self) -> u64 {
        match self {
            Self::Grpc(grpc) => grpc.sent_bytes(),
            Self::Http(http) => http.sent_bytes(),
            Self::Pyroscope(pusher) => pusher.sent_bytes(),
            Self::Files(writer) => writer.written_bytes(),
        }
    }
}

/// Delivers what comes into `queue`. `hurry` cuts short the waits that no peer asked for.
pub(super) async fn deliver(queue: Arc<Queue>, sender: Sender, retry: Retry, hurry: Arc<Notify>) {
    let log = Log::new(queue.stats().name);
    let replay = Replay::new(Instant::now());
    let backoff = Backoff::new(retry);
    let mut delivery = Delivery { queue, sender, backoff, max_age: retry.max_age, pace: None, replay, log, hurry };
    loop {
        delivery.step().await;
    }
}

struct Delivery {
    queue: Arc<Queue>,
    sender: Sender,
    backoff: Backoff,
    /// While what piled up in an outage is sent, unless somebody hurries: rather too fast for the peer than too late.
    pace: Option<Pace>,
    /// What comes back from disk is given up that is older, where the peer takes nothing of such an age.
    max_age: Duration,
    replay: Replay,
    log: Log,
    hurry: Arc<Notify>,
}

impl Delivery {
    /// Sends the oldest parcel once, or, behind one that was taken and where none waits, what comes back from disk.
    async fn step(&mut self) {
        if self.queue.shelf().is_none() {
            let (number, parcel) = self.queue.next().await;
            self.live(number, parcel).await;
            return;
        }
        let may_replay = match self.queue.next_by(self.replay.due()).await {
            Some((number, parcel)) => self.live(number, parcel).await,
            None => {
                // Nothing is left of what piled up.
                self.pace = None;
                true
            }
        };
        self.queue.settle_mail();
        if may_replay && self.queue.has_released() {
            self.replay.look_soon();
        }
        if may_replay && self.pace.is_none() && self.replay.due() <= Instant::now() {
            self.beside().await;
        }
    }

    /// Sends what comes back from disk once, unless something to send comes while the disk is waited for.
    async fn beside(&mut self) {
        let queue = Arc::clone(&self.queue);
        let Some(shelf) = queue.shelf() else { return };
        let next = {
            let (mut live, mut back) = (pin!(queue.next()), pin!(self.replay.next(shelf, queue.has_released())));
            poll_fn(|context| match live.as_mut().poll(context) {
                Poll::Ready(live) => Poll::Ready(Err(live)),
                Poll::Pending => back.as_mut().poll(context).map(Ok),
            })
            .await
        };
        match next {
            Ok(Some(returned)) => self.replay(shelf, returned).await,
            Ok(None) => {}
            Err((number, parcel)) => _ = self.live(number, parcel).await,
        }
    }

    /// Sends a parcel once, does what follows from the answer, and waits until the next may be sent. Whether the peer is well.
    async fn live(&mut self, number: u64, parcel: Parcel) -> bool {
        let profiles = parcel.fate.contents().profiles();
        let (outcome, now) = self.attempt(number, &parcel.body, profiles).await;
        match outcome {
            Outcome::Accepted { warning } => {
                self.log.accepted(&parcel.body, warning.as_deref(), now);
                self.backoff.reset(number);
                self.replay.others_pass();
                self.queue.accepted(number, warning);
                self.keep_pace(&parcel).await;
                true
            }
            Outcome::Refused { why } => {
                self.reject(number, &parcel, why, now).await;
                true
            }
            Outcome::Failed { setback, why } => {
                drop(parcel);
                self.fail(number, setback, why, now).await;
                false
            }
        }
    }

    /// Sends `body` once, which holds so many profiles.
    async fn attempt(&mut self, number: u64, body: &Body, profiles: u64) -> (Outcome, Instant) {
        let (start, before) = (Instant::now(), self.sender.sent_bytes());
        let answer = self.sender.send(body).await;
        let (now, sent_bytes) = (Instant::now(), self.sender.sent_bytes());
        self.queue.attempted(Attempt { number, latency: now - start, sent_bytes });
        let failed = |setback, why| {
            let setback = if sent_bytes > before { setback } else { Setback::Unreached };
            Outcome::Failed { setback, why }
        };
        let outcome = match answer {
            Answer::Accepted { warning } => Outcome::Accepted { warning: warning.or_else(|| body.warning()) },
            Answer::Partial { rejected, why } => {
                // No more than there are: it is the peer who says it.
                self.queue.count_rejected(rejected.min(profiles));
                Outcome::Refused { why }
            }
            Answer::Refused { why } => Outcome::Refused { why },
            Answer::Later { why, after } => failed(Setback::Later(after), why),
            Answer::Throttled { why } => failed(Setback::Throttled, why),
            Answer::Unanswered { why } => failed(Setback::Unanswered, why),
        };
        (outcome, now)
    }

    /// Sends what came back from disk once.
    async fn replay(&mut self, shelf: &Shelf, returned: Returned) {
        let (manifest, receipt) = (&returned.record.manifest, Arc::clone(&returned.record.receipt));
        if !shelf.is_ageless() && returned.is_older(self.max_age) {
            self.queue.replay_given_up(manifest, receipt, Cause::TooOld);
            return self.replay.passed_over();
        }
        let number = returned.number();
        self.queue.hold(manifest, &receipt);
        let (outcome, now) = self.attempt(number, &returned.body, manifest.contents.profiles()).await;
        match outcome {
            Outcome::Accepted { warning } => {
                self.log.accepted(&returned.body, warning.as_deref(), now);
                self.backoff.reset(number);
                self.queue.replayed(manifest, receipt, warning);
                self.replay.settled();
            }
            Outcome::Refused { why } => {
                self.log.failed(&why, now);
                self.backoff.reset(number);
                self.queue.failed(false, why);
                self.queue.replay_given_up(manifest, receipt, Cause::Rejected);
                self.replay.settled();
            }
            Outcome::Failed { setback, why } => {
                self.log.failed(&why, now);
                self.queue.failed(setback == Setback::Unanswered, why);
                let Consequence { wait, given_up } = self.backoff.fail_kept(number, setback, now);
                match given_up {
                    // Where the peer takes nothing at all, it is not this one that it cannot take.
                    Some(cause) if returned.others_pass => {
                        self.queue.replay_given_up(manifest, receipt, cause);
                        self.replay.settled();
                    }
                    Some(_) => self.backoff.forgive(),
                    None => {}
                }
                self.wait(setback, wait).await;
            }
        }
    }

    /// Waits as the pace has it, if there is one: also behind what was refused, for "too much" is refused for good over gRPC.
    async fn keep_pace(&mut self, parcel: &Parcel) {
        let Some(came) = self.queue.backlog() else { return self.pace = None };
        let wait = self.pace.as_mut().map(|pace| pace.wait(parcel.body.uncompressed as u64, came));
        if let Some(wait) = wait
            && self.pause(wait).await
        {
            self.pace = None;
        }
    }

    async fn reject(&mut self, number: u64, parcel: &Parcel, why: String, now: Instant) {
        self.log.failed(&why, now);
        self.backoff.reset(number);
        self.queue.given_up(number, Cause::Rejected, why);
        self.keep_pace(parcel).await;
    }

    async fn fail(&mut self, number: u64, setback: Setback, why: String, now: Instant) {
        self.log.failed(&why, now);
        let Consequence { wait, given_up } = self.backoff.fail(number, setback, now);
        match given_up {
            Some(cause) => self.queue.out_of_time(number, cause, why),
            None => self.queue.put_back(number, setback == Setback::Unanswered, why),
        }
        let hurried = self.wait(setback, wait).await;
        self.pace = self.queue.backlog().filter(|_| !hurried).map(Pace::new);
    }

    /// Waits until the next attempt; whether that was cut short, which it is not where a peer asked for it.
    async fn wait(&mut self, setback: Setback, wait: Duration) -> bool {
        match setback {
            Setback::Later(Some(_)) => {
                tokio::time::sleep(wait).await;
                false
            }
            _ => self.pause(wait).await,
        }
    }

    /// Waits for `wait` unless somebody hurries; says whether that is so.
    async fn pause(&mut self, wait: Duration) -> bool {
        // Not at once: a program that flushes all the time must not beat on a peer that is down.
        let at_least = wait.min(Duration::from_millis(100));
        tokio::time::sleep(at_least).await;
        tokio::time::timeout(wait - at_least, self.hurry.notified()).await.is_ok()
    }
}

/// What came of an attempt.
enum Outcome {
    Accepted { warning: Option<String> },
    Refused { why: String },
    Failed { setback: Setback, why: String },
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

    fn accepted(&mut self, body: &Body, warning: Option<&str>, now: Instant) {
        let (bytes, uncompressed, samples) = (body.len(), body.uncompressed, body.samples);
        tracing::debug!(destination = %self.name, samples, bytes, uncompressed, "profiles were accepted");
        if std::mem::take(&mut self.failing) {
            tracing::info!(destination = %self.name, "profiles are being accepted again");
        }
        if let Some(warning) = warning.filter(|_| self.warnings.is_due(now)) {
            tracing::warn!(destination = %self.name, warning, "profiles were accepted with a warning");
        }
    }
}
