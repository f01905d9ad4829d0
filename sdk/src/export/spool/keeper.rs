//! The thread that has the folder: writes, reads, confirms, makes room, and says what is wrong.
//!
//! In: jobs, in the order in which they were given. Out: records in the folder, receipts that know whether theirs is,
//! answers to readers, a call for each record that a destination lost. Waits for the disk, and nothing waits for it; after a
//! failure it goes on with the next job, and where the folder is gone or not to be had, it tries again after a while.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, atomic::Ordering};
use std::time::Instant;

use bytes::Bytes;

use super::backlog::{Backlog, Receipt};
use super::figures::Shared;
use super::folder::{Bounds, Folder};
use super::replay::Found;
use super::settled::{Cursors, Settled};
use super::{Gone, Pace, Replayed, Why};
use crate::error::Error;

/// What there is to do.
pub(super) enum Job {
    Append {
        receipt: Arc<Receipt>,
        body: Bytes,
    },
    Settle {
        destination: usize,
        receipt: Arc<Receipt>,
    },
    Release {
        destination: usize,
        receipt: Arc<Receipt>,
    },
    Read {
        destination: usize,
        reply: Sender<Option<Replayed>>,
    },
    /// Nothing comes any more.
    End,
}

/// The state of the thread.
pub(super) struct Keeper {
    pub(super) path: PathBuf,
    pub(super) bounds: Bounds,
    pub(super) pace: Pace,
    pub(super) backlogs: Vec<Backlog>,
    pub(super) shared: Arc<Shared>,
    pub(super) lose: Box<dyn Fn(Gone<'_>) + Send>,
    pub(super) folder: Option<Folder>,
    /// As they were loaded: destinations that are not configured are in here alone.
    pub(super) cursors: Cursors,
    /// Receipts with smaller numbers are of a folder that is gone.
    pub(super) floor: u64,
    /// When to sync and save, or to try to open the folder.
    pub(super) due: Option<Instant>,
    /// Something has failed since the last turn.
    pub(super) failing: bool,
}

impl Keeper {
    /// Runs until nobody can give it anything to do any more.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        self.turn();
        loop {
            match self.next(jobs) {
                Ok(Job::End) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(job) => self.during(|keeper| keeper.work(job)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.due.is_some_and(|due| due <= Instant::now()) {
                self.turn();
            }
        }
        self.during(Self::confirm);
    }

    fn next(&self, jobs: &Receiver<Job>) -> Result<Job, RecvTimeoutError> {
        match self.due {
            Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// What is done once in a while: the folder is opened, or what was written is confirmed.
    fn turn(&mut self) {
        self.due = None;
        let failed = std::mem::take(&mut self.failing);
        if self.folder.is_none() {
            self.during(Self::open);
        } else {
            self.during(Self::confirm);
        }
        if !failed && !self.failing {
            self.shared.is_well();
        }
    }

    /// Does something that may take as long as the disk likes: meanwhile others can see since when.
    fn during(&mut self, work: impl FnOnce(&mut Self)) {
        self.shared.state().busy = Some(Instant::now());
        work(self);
        let figures = self.folder.as_ref().map_or((0, 0), |folder| (folder.bytes(), folder.segments.len()));
        let mut state = self.shared.state();
        state.busy = None;
        (state.figures.bytes, state.figures.segments) = figures;
    }

    fn work(&mut self, job: Job) {
        match job {
            Job::Append { receipt, body } => {
                self.append(&receipt, &body);
                // A bound on memory by itself: nothing is read on the strength of it.
                self.shared.waiting.fetch_sub(body.len(), Ordering::Relaxed);
            }
            Job::Settle { destination, receipt } => self.settle(destination, receipt.number()),
            Job::Release { destination, receipt } => self.release(destination, &receipt),
            Job::Read { destination, reply } => {
                // Nobody waits any more where the destination is gone, or has something else to send.
                let _sent = reply.send(self.read(destination));
            }
            Job::End => {}
        }
    }

    fn append(&mut self, receipt: &Arc<Receipt>, body: &[u8]) {
        if !self.make_room(body.len()) {
            return;
        }
        let Some(folder) = &mut self.folder else { return };
        let expected = folder.next;
        let written = folder.append(receipt.form, &receipt.counts, body);
        // Numbers that were passed over have no record.
        let passed_over = expected..written.as_ref().map_or(folder.next, |number| *number);
        self.backlogs.iter_mut().for_each(|backlog| backlog.settled.add(passed_over.clone()));
        let Some(number) = self.noted(written) else { return };
        receipt.keep(number);
        self.backlogs.iter_mut().for_each(|backlog| backlog.hold(number, receipt));
        self.shared.state().figures.appended += 1;
        self.later();
    }

    fn settle(&mut self, destination: usize, number: u64) {
        if number >= self.floor.max(1)
            && let Some(backlog) = self.backlogs.get_mut(destination)
        {
            backlog.settle(number);
            self.later();
        }
    }

    fn release(&mut self, destination: usize, receipt: &Receipt) {
        let Some(backlog) = self.backlogs.get_mut(destination) else { return };
        match receipt.number() {
            0 => {
                let counts = Some(&*receipt.counts);
                (self.lose)(Gone { destination, numbers: 0..0, counts, why: Why::Full });
            }
            number => backlog.release(number),
        }
    }

    fn read(&mut self, destination: usize) -> Option<Replayed> {
        loop {
            let backlog = self.backlogs.get_mut(destination)?;
            let mut position = backlog.position.clone();
            let found = self.folder.as_ref()?.read(&mut position, |header| backlog.wants(header));
            backlog.position = position;
            match self.noted(found)?? {
                Found::Whole(header, body) => {
                    let receipt = Receipt::new(header.form, header.counts, header.number);
                    self.backlogs.get_mut(destination)?.hand_out(&receipt);
                    return Some(Replayed { receipt, body: body.into() });
                }
                Found::Damaged(header) => {
                    let (number, counts) = (header.number, Some(&*header.counts));
                    (self.lose)(Gone { destination, numbers: number..number + 1, counts, why: Why::Damaged });
                    self.settle(destination, number);
                }
                // For all: what memory has, too, is kept by nobody else any more, and lost once memory lets go of it.
                Found::Missing(numbers) => {
                    for (destination, backlog) in self.backlogs.iter_mut().enumerate() {
                        let missing = backlog.forget(numbers.clone());
                        if missing > 0 {
                            self.shared.state().figures.missing += missing;
                            (self.lose)(Gone {
                                destination,
                                numbers: numbers.clone(),
                                counts: None,
                                why: Why::Damaged,
                            });
                        }
                    }
                }
            }
        }
    }

    /// Has a turn come soon, if none is due.
    pub(super) fn later(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + self.pace.sync);
    }

    /// What came out well; else says what is wrong, and lets go of a folder that is not there any more.
    pub(super) fn noted<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        let error = match outcome {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        self.failing = true;
        if let Some(folder) = self.folder.take_if(|folder| !folder.is_held()) {
            self.floor = folder.next;
            for (destination, backlog) in self.backlogs.iter_mut().enumerate() {
                self.shared.state().figures.missing += backlog.forget(1..self.floor);
                backlog.reset(Settled::default());
                // Not those to come: what is written into the next folder is none of what is lost with this one.
                (self.lose)(Gone { destination, numbers: 1..self.floor, counts: None, why: Why::Damaged });
            }
            self.due = Some(Instant::now() + self.pace.reopen);
        } else {
            self.later();
        }
        self.shared.is_ill(&error.to_string());
        None
    }
}
