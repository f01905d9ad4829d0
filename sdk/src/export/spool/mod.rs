//! Keeps on disk what has not arrived yet: it outlives an outage longer than memory lasts, and the process.
//!
//! In: bodies, encoded already, in the order in which they were made, from any thread; which of them are settled. Out: the
//! same bodies, once memory has forgotten them or the process that made them has ended. Nothing here waits for the disk but
//! one thread of its own ([`keeper`]); where the disk is full, read-only, gone or hangs, that is said, and bodies are in
//! memory alone.
//!
//! ```text
//! append ──┐                   ╭► segments, the oldest out first
//! settle ──┼─► jobs ─► keeper ─┤
//! read   ──┘           ▲       ╰► how far each destination is
//!                      ╰── what earlier processes left
//! ```
//!
//! What is guaranteed: a body is on disk a moment after [`Spool::append`], which the end of the process does not undo, and
//! confirmed by the disk within a second or so (once a second if anything was written, and at the end), which a power cut does not
//! undo. Bodies come back in the order in which they went in. Twice comes what was settled in the last second before the
//! process was killed. What is lost is told one by one: for room, or because it is damaged.

mod backlog;
mod figures;
mod files;
mod folder;
#[cfg(test)]
mod fuzz;
mod keeper;
mod lock;
mod record;
mod replay;
mod segment;
mod settled;
#[cfg(test)]
mod tests;
mod unsynced;
mod upkeep;
mod writing;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(super) use self::backlog::{Receipt, Taker};
pub(super) use self::figures::Figures;
pub(super) use self::folder::Bounds;

use self::backlog::Backlog;
use self::figures::Shared;
use self::keeper::{Job, Keeper};
use self::record::{MAX_BODY, MAX_COUNTS};
use self::settled::Cursors;
use crate::error::Error;

/// How often the keeper is asked for an answer: it does not wake the runtime, which would be through a descriptor that a host may have
/// closed while the disk took its time.
const ASKED_EVERY: Duration = Duration::from_millis(5);

/// Bytes of bodies that wait for the disk: more than a disk falls behind that works.
const MAX_WAITING: usize = 4 << 20;

/// How long the keeper takes over things.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Between two times that the disk is asked to confirm.
    sync: Duration,
    /// Until the folder is tried again that could not be had.
    reopen: Duration,
    /// Until a disk that does not answer counts as hanging.
    patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { sync: Duration::from_secs(1), reopen: Duration::from_secs(5), patience: Duration::from_secs(5) }
    }
}

/// A body that comes back.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) receipt: Arc<Receipt>,
    pub(super) body: Bytes,
}

/// Records that a destination will never get from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone<'a> {
    /// Index of the destination.
    pub(super) destination: usize,
    /// Their numbers; none if one went out of the folder before memory had forgotten it.
    pub(super) numbers: Range<u64>,
    /// What was in it, where it is one record of which that is known.
    pub(super) counts: Option<&'a [u8]>,
    pub(super) why: Why,
}

/// Why a record is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It was the oldest, and there was no room.
    Full,
    /// Its body is not what was written, or it is not there any more.
    Damaged,
}

/// The front: nothing in it waits for the disk.
#[derive(Debug)]
pub(super) struct Spool {
    path: PathBuf,
    bounds: Bounds,
    pace: Pace,
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    keeper: JoinHandle<()>,
}

impl Spool {
    /// A spool in the folder `path`, kept by a thread of `runtime` that may block. `lose` is called on it, and must not wait.
    pub(super) fn start(
        runtime: &Handle,
        path: PathBuf,
        (bounds, pace): (Bounds, Pace),
        destinations: Vec<Taker>,
        lose: Box<dyn Fn(Gone<'_>) + Send>,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let (jobs, inbox) = channel();
        let keeper = Keeper {
            path: path.clone(),
            bounds,
            pace,
            backlogs: destinations.into_iter().map(Backlog::new).collect(),
            shared: Arc::clone(&shared),
            lose,
            folder: None,
            cursors: Cursors::default(),
            floor: 0,
            due: None,
            failing: false,
        };
        let keeper = runtime.spawn_blocking(move || keeper.run(&inbox));
        Self { path, bounds, pace, jobs, shared, keeper }
    }

    /// Gives a body to the disk. It is there once the receipt says so; until then, memory alone has it.
    ///
    /// # Errors
    /// If it is too long, or the disk is so far behind, or hangs, that it is not even waited for.
    pub(super) fn append(&self, form: u8, counts: Box<[u8]>, body: Bytes) -> Result<Arc<Receipt>, Error> {
        if body.len() > MAX_BODY || counts.len() > MAX_COUNTS || body.len() as u64 * 2 > self.bounds.folder {
            let why = format!("a body of {} bytes is too long for it", body.len());
            return Err(Error::misuse("spool", why, "raise its bound"));
        }
        self.answers()?;
        // A bound on memory by itself: nothing is read on the strength of it.
        let waiting = self.shared.waiting.fetch_add(body.len(), Ordering::Relaxed);
        if waiting > MAX_WAITING {
            self.shared.waiting.fetch_sub(body.len(), Ordering::Relaxed);
            return Err(self.slow(format!("{waiting} bytes wait for the disk")));
        }
        let receipt = Receipt::new(form, counts, 0);
        self.give(Job::Append { receipt: Arc::clone(&receipt), body });
        Ok(receipt)
    }

    /// `destination` needs the record no more: it was accepted, refused for good, or is given up.
    pub(super) fn settle(&self, destination: usize, receipt: Arc<Receipt>) {
        self.give(Job::Settle { destination, receipt });
    }

    /// The record of `destination` that this process appended is not in its memory any more: it is to be read.
    pub(super) fn release(&self, destination: usize, receipt: Arc<Receipt>) {
        self.give(Job::Release { destination, receipt });
    }

    /// The oldest record that `destination` has not settled and that is not in its memory; the same one until it is settled. Where it goes for
    /// room it is lost, unless it was taken ([`Receipt::take`]) before.
    ///
    /// # Errors
    /// If the disk hangs.
    pub(super) async fn read(&self, destination: usize) -> Result<Option<Replayed>, Error> {
        self.answers()?;
        let (reply, answer) = channel();
        self.give(Job::Read { destination, reply });
        let until = Instant::now() + self.pace.patience;
        loop {
            match answer.try_recv() {
                Ok(read) => return Ok(read),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) if Instant::now() >= until => {
                    return Err(self.slow(format!("the disk has not answered for {:?}", self.pace.patience)));
                }
                Err(TryRecvError::Empty) => tokio::time::sleep(ASKED_EVERY).await,
            }
        }
    }

    /// What there is to say at present.
    pub(super) fn figures(&self) -> Figures {
        let state = self.shared.state();
        let mut figures = state.figures.clone();
        drop(state);
        if let Err(error) = self.answers() {
            figures.trouble = Some(error.to_string());
        }
        figures
    }

    /// Has what waits written and confirmed, and the keeper end; what is given to it later is not taken.
    pub(super) fn end(&self) {
        self.give(Job::End);
    }

    /// The same, and waits for it; `false` if the disk takes longer than `timeout`: then it goes on alone.
    pub(super) async fn close(&self, timeout: Duration) -> bool {
        self.end();
        let until = Instant::now() + timeout;
        while !self.keeper.is_finished() {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
        true
    }

    /// Queues a job without a bound: those with a body have one of their own, and of the others there are as many as
    /// records in memory.
    fn give(&self, job: Job) {
        // Where the keeper has ended, so has the runtime: nothing is replayed or appended any more.
        let _given = self.jobs.send(job);
    }

    fn answers(&self) -> Result<(), Error> {
        let busy = self.shared.state().busy.map(|since| since.elapsed());
        match busy.filter(|busy| *busy > self.pace.patience) {
            Some(busy) => Err(self.slow(format!("the disk has not answered for {} s", busy.as_secs()))),
            None => Ok(()),
        }
    }

    fn slow(&self, why: String) -> Error {
        let what = format!("use the spool {}", self.path.display());
        let error = std::io::Error::new(std::io::ErrorKind::TimedOut, why);
        Error::environment(what, error, "give the spool a disk that is faster, or do without")
    }
}
