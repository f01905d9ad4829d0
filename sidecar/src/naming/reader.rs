//! Reads files and mappings of targets for the thread that samples, which must not wait for them: a library may lie on a file system that is
//! dead, a process may hold its own memory.
//!
//! Mappings are read of one program of a process, the one that a sample says: not of another that the process became since ([`Programs`]).
//!
//! In: whom a piece of work depends on, and the work. Out: what came of it, or nothing, after a bounded time. The work is done by a thread of its
//! own ([`Aside`]); one that waits for ever is left behind, and whom it waits for is not asked before it is back. All that reads a file is done here, its
//! closing too, which FUSE lets wait as well: the sampling thread holds none.

use std::time::Duration;

use super::book::Book;
use crate::bpf::Programs;
use crate::sample::Sample;
use crate::target::{Aside, Fault, Hurry, Mappings, NoAnswer, Process, Whom};

/// How long an answer is waited for: more than a large table takes on a slow disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// The reader.
#[derive(Debug)]
pub(super) struct Reader {
    aside: Aside,
    book: Book,
    hurry: Hurry,
    /// Whether its thread stays: not before capabilities were dropped, which every thread does for itself.
    is_kept: bool,
    unanswered: u64,
    /// `None` where nobody can tell: mappings are those of whatever runs when they are read.
    programs: Option<Programs>,
}

/// What came of a look at the mappings of a program.
pub(super) enum Look {
    Mapped(Mappings),
    /// The process is gone, or does not let us.
    Closed(Fault),
    /// The process runs another program.
    Over,
    /// In time, none.
    NoAnswer,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            aside: Aside::new("names", PATIENCE),
            book: Book::default(),
            hurry: Hurry::default(),
            is_kept: false,
            unanswered: 0,
            programs: None,
        }
    }
}

impl Reader {
    /// One that knows which program each process runs.
    pub(super) fn knowing(programs: Option<Programs>) -> Self {
        Self { programs, ..Self::default() }
    }

    /// The number of the program that a sample is of; 0 of all where nobody can tell.
    pub(super) fn number(&self, sample: &Sample) -> u64 {
        if self.programs.is_some() { sample.program } else { 0 }
    }

    /// The number of the program that a process runs; `None`: it is becoming another one.
    pub(super) fn running(&mut self, process: Process) -> Option<u64> {
        let Some(programs) = &mut self.programs else { return Some(0) };
        match programs.of(process.pid()) {
            Ok(number) => number,
            Err(error) => {
                tracing::warn!(%error, "a process that becomes another program may be named by the new one");
                self.programs = None;
                Some(0)
            }
        }
    }

    /// The mappings of a process while it runs the program of this number.
    pub(super) fn mappings(&mut self, process: Process, program: u64) -> Look {
        if self.running(process) != Some(program) {
            return Look::Over;
        }
        match self.read(process.into(), move |_| process.mappings()) {
            Some(Ok(_)) if self.running(process) != Some(program) => Look::Over,
            // Whoever lives has some. One that is on its way out has none any more, and is still there to be asked.
            Some(Ok(mappings)) if mappings.list().is_empty() => Look::Closed(Fault::Gone { pid: process.pid() }),
            Some(Ok(mappings)) => Look::Mapped(mappings),
            Some(Err(fault)) => Look::Closed(fault),
            None => Look::NoAnswer,
        }
    }

    /// Does `work`, which waits for `whom`; `None`: no answer came.
    pub(super) fn read<T: Send + 'static>(
        &mut self,
        whom: Whom,
        work: impl FnOnce(&Book) -> T + Send + 'static,
    ) -> Option<T> {
        let (book, patience) = (self.book.clone(), self.patience());
        let work = move || work(&book);
        let answer = if self.is_kept {
            self.aside.ask_often(whom, patience, work)
        } else {
            self.aside.ask_within(whom, patience, work)
        };
        self.note(whom, answer.as_ref().err().copied());
        answer.ok()
    }

    /// The files that are open.
    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// From now on its thread stays, to be asked often.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// How often no answer came.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Those that are waited for still.
    pub(super) fn away(&self) -> usize {
        self.aside.away()
    }

    /// How long an answer is waited for now.
    pub(super) fn patience(&self) -> Duration {
        self.hurry.patience(PATIENCE)
    }

    fn note(&mut self, whom: Whom, no_answer: Option<NoAnswer>) {
        self.unanswered += u64::from(no_answer.is_some());
        if no_answer != Some(NoAnswer::Late) {
            return;
        }
        if self.hurry.note_late() {
            let what = match whom {
                Whom::Process(process) => format!("process {}", process.pid()),
                Whom::Disk(device) => format!("the file system of device {device} (see /proc/PID/mountinfo)"),
            };
            tracing::warn!("{what} gave no answer in time; what is on it is named by file and address until it does");
        }
    }
}
