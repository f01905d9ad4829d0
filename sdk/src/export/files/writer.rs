//! Hands batches to a thread that writes them, and waits for it no longer than for any peer.
//!
//! In: bodies, on the runtime. Out: what became of them. The thread is the only one that a disk can hold up: while it is, attempts
//! fail as those of a peer that does not answer, and none begins another write beside it. It ends with this, unless it is held up.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use super::batch::Batch;
use super::folder::Folder;
use crate::export::answer::Answer;
use crate::export::body::Body;
use crate::export::settings::DEFAULT_TIMEOUT;

/// What writes to one folder.
#[derive(Debug)]
pub(in crate::export) struct Writer {
    folder: Arc<Folder>,
    /// How long an attempt may take.
    timeout: Duration,
    /// Opened with the first attempt, and again if it has ended.
    lane: Option<Lane>,
    written_bytes: u64,
}

/// The thread.
#[derive(Debug)]
struct Lane {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    /// What a job was given of which there is no outcome yet.
    busy: Option<Bytes>,
}

type Job = Box<dyn FnOnce() -> Outcome + Send>;
/// Bytes that were written, or why they were not.
type Outcome = Result<u64, String>;

/// How often the thread is asked for an outcome.
const ASKED_EVERY: Duration = Duration::from_millis(5);

impl Writer {
    pub(in crate::export) fn new(folder: Folder) -> Self {
        Self { folder: Arc::new(folder), timeout: DEFAULT_TIMEOUT, lane: None, written_bytes: 0 }
    }

    /// Writes the batch that `body` holds, once.
    pub(in crate::export) async fn send(&mut self, body: &Body) -> Answer {
        let (folder, message) = (Arc::clone(&self.folder), body.message());
        let batch = match Batch::read(message.clone()) {
            Ok(batch) => batch,
            Err(why) => return Answer::Refused { why },
        };
        let job = move || folder.write(&batch).map(|()| batch.bytes());
        match self.attempt(message, Box::new(job)).await {
            Ok(bytes) => {
                self.written_bytes += bytes;
                Answer::Accepted { warning: None }
            }
            Err(why) => Answer::Later { why, after: None },
        }
    }

    /// Bytes of files that were written until now.
    pub(in crate::export) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    async fn attempt(&mut self, message: Bytes, job: Job) -> Outcome {
        let timeout = self.timeout;
        let too_long = || Err(format!("writing to {} takes longer than {timeout:?}", self.folder.path.display()));
        let lane = match &mut self.lane {
            Some(lane) => lane,
            none => none.insert(Lane::open()?),
        };
        match tokio::time::timeout(timeout, lane.run(message, job)).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => {
                self.lane = None;
                Err("the thread that writes has ended".to_owned())
            }
            Err(_) => too_long(),
        }
    }
}

impl Lane {
    fn open() -> Result<Self, String> {
        let ((jobs, inbox), (results, outcomes)) = (mpsc::channel::<Job>(), mpsc::channel());
        let work = move || while inbox.recv().is_ok_and(|job| results.send(job()).is_ok()) {};
        // Of the runtime, which makes its threads as the profiler needs them; it does not wait for this one when it is shut down. Nobody waits
        // for what is returned, so that its end wakes nobody.
        let runtime = Handle::try_current().map_err(|error| format!("cannot make a thread: {error}"))?;
        drop(runtime.spawn_blocking(work));
        Ok(Self { jobs, outcomes, busy: None })
    }

    /// What comes of `job`, which writes `message` and begins when the one before has ended: where that wrote the same, for longer than
    /// an attempt may take, what came of it. `None` where the thread has ended.
    async fn run(&mut self, message: Bytes, job: Job) -> Option<Outcome> {
        if let Some(before) = self.busy.clone() {
            let outcome = self.outcome().await?;
            // Kept until now, so it is at an address of its own.
            if before.as_ptr() == message.as_ptr() {
                return Some(outcome);
            }
        }
        self.jobs.send(job).ok()?;
        self.busy = Some(message);
        self.outcome().await
    }

    /// Asks until there is one. Whoever would tell wakes the runtime through a descriptor, and a host may have closed that while
    /// the disk took its time.
    async fn outcome(&mut self) -> Option<Outcome> {
        loop {
            match self.outcomes.try_recv() {
                Ok(outcome) => {
                    self.busy = None;
                    return Some(outcome);
                }
                Err(TryRecvError::Empty) => tokio::time::sleep(ASKED_EVERY).await,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Written;
    use super::*;

    fn writer() -> Writer {
        let folder = Folder { path: "/nowhere".into(), most_files: 1, most_bytes: 1, written: Written::default() };
        Writer { timeout: Duration::from_millis(50), ..Writer::new(folder) }
    }

    const ONE: Bytes = Bytes::from_static(b"one");
    const OTHER: Bytes = Bytes::from_static(b"other");

    /// Check that a disk that hangs holds up nobody, that no second write begins beside the one that hangs, and that all goes on when
    /// it is there again.
    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_nobody() {
        let mut writer = writer();
        let ((release, held), (began, begins)) = (mpsc::channel::<()>(), mpsc::channel());
        let hanging = Box::new(move || {
            held.recv().map_err(|error| error.to_string())?;
            Ok(1)
        });
        let job = move || {
            began.send(()).unwrap();
            Ok(2)
        };
        let (mut ticks, mut tick) = (0, tokio::time::interval(Duration::from_millis(1)));
        let outcome = {
            let mut attempt = std::pin::pin!(writer.attempt(ONE, hanging));
            loop {
                tokio::select! {
                    outcome = &mut attempt => break outcome,
                    _ = tick.tick() => ticks += 1,
                }
            }
        };
        assert_eq!(outcome, Err("writing to /nowhere takes longer than 50ms".to_owned()));
        assert!(ticks > 1, "{ticks}");
        assert!(writer.attempt(OTHER, Box::new(job.clone())).await.is_err());
        assert!(begins.try_recv().is_err(), "nothing is written beside what hangs");
        release.send(()).unwrap();
        writer.timeout = Duration::from_secs(60);
        assert_eq!(writer.attempt(OTHER, Box::new(job)).await, Ok(2));
        assert_eq!(begins.try_iter().count(), 1);
    }

    /// Check that what was written after an attempt gave up waiting for it is not written again.
    #[tokio::test]
    async fn what_a_slow_disk_has_written_is_not_written_again() {
        let mut writer = writer();
        let (release, held) = mpsc::channel::<()>();
        let slow = Box::new(move || held.recv().map(|()| 1).map_err(|error| error.to_string()));
        assert!(writer.attempt(ONE, slow).await.is_err());
        release.send(()).unwrap();
        writer.timeout = Duration::from_secs(60);
        assert_eq!(writer.attempt(ONE, Box::new(|| Ok(2))).await, Ok(1));
        assert_eq!(writer.attempt(ONE, Box::new(|| Ok(3))).await, Ok(3));
    }

    /// Check that a thread that has ended is said, and replaced.
    #[tokio::test]
    async fn a_thread_that_ends_is_replaced() {
        let mut writer = writer();
        writer.timeout = Duration::from_secs(60);
        assert!(
            writer.attempt(ONE, Box::new(|| -> Outcome { std::panic::resume_unwind(Box::new(())) })).await.is_err()
        );
        assert_eq!(writer.attempt(ONE, Box::new(|| Ok(3))).await, Ok(3));
    }
}
