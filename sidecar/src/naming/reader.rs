//! Reads files and mappings of targets for the thread that samples, which must not wait for them: a library may lie on a file system that is
//! dead, a process may hold its own memory.
//!
//! In: whom a piece of work depends on, and the work. Out: what came of it, or nothing, after a bounded time. The work is done by a thread of its
//! own ([`Aside`]); one that waits for ever is left behind, and whom it waits for is not asked before it is back. All that reads a file is done here, its
//! closing too, which FUSE lets wait as well: the sampling thread holds none.

use std::time::{Duration, Instant};

use super::book::Book;
use crate::target::{Aside, NoAnswer, Whom};

/// How long an answer is waited for: more than a large table takes on a slow disk.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for some time after one did not come.
const HURRIED: Duration = Duration::from_millis(50);
/// How long that is.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// The reader.
#[derive(Debug)]
pub(super) struct Reader {
    aside: Aside,
    book: Book,
    /// When an answer last did not come in time.
    late: Option<Instant>,
    /// Whether its thread stays: not before capabilities were dropped, which every thread does for itself.
    is_kept: bool,
    unanswered: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self { aside: Aside::new("names", PATIENCE), book: Book::default(), late: None, is_kept: false, unanswered: 0 }
    }
}

impl Reader {
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

    fn patience(&self) -> Duration {
        let is_hurried = self.late.is_some_and(|late| late.elapsed() < AFTERWARDS);
        if is_hurried { HURRIED } else { PATIENCE }
    }

    fn note(&mut self, whom: Whom, no_answer: Option<NoAnswer>) {
        self.unanswered += u64::from(no_answer.is_some());
        if no_answer != Some(NoAnswer::Late) {
            return;
        }
        if self.late.is_none() {
            let what = match whom {
                Whom::Process(process) => format!("process {}", process.pid()),
                Whom::Disk(device) => format!("the file system of device {device} (see /proc/PID/mountinfo)"),
            };
            tracing::warn!("{what} gave no answer in time; what is on it is named by file and address until it does");
        }
        self.late = Some(Instant::now());
    }
}
