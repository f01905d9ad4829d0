//! Looks at what a process has in its hand: its program's file, its memory, its variables. It can let a reader wait as long as it likes, by a
//! FUSE file system or `userfaultfd`, so each look is done on a thread of its own, which is left behind when it does not come back.
//!
//! In: a process. Out: what was seen, or that there was no answer in time. Who has a thread away is not looked at again until it is back, and
//! there is a bound on how many are away: from then on those that are new are not looked at, which is said. Who asks waits: once somebody
//! gave no answer, the others of the same round are waited for only shortly, so that several that hang do not hold up the start.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::container::Container;
use super::context::Published;
use super::environment::Environment;
use super::program::Programs;
use super::target::Exe;
use crate::target::{Fault, Files, Folder, Process};

/// Most threads that are away.
const MOST_AWAY: usize = 8;
/// How long an answer is waited for in a round in which somebody gave none: enough for files and memory that are there.
const HURRIED: Duration = Duration::from_millis(100);

/// What was seen of a process.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) container: Container,
    pub(super) environment: Environment,
    pub(super) context: Option<Published>,
    pub(super) exe: Result<Exe, Fault>,
}

impl Default for Seen {
    /// Nothing.
    fn default() -> Self {
        Self {
            container: Container::default(),
            environment: Environment::default(),
            context: None,
            exe: Ok(Exe::default()),
        }
    }
}

/// Who looks.
#[derive(Debug)]
pub(super) struct Scout {
    programs: Arc<Programs>,
    away: Arc<Mutex<HashSet<Process>>>,
    patience: Duration,
    /// Somebody gave no answer in this round.
    is_hurried: Cell<bool>,
    /// It was said that there are such.
    is_told: Cell<bool>,
}

impl Scout {
    /// One that waits so long for an answer.
    pub(super) fn new(patience: Duration) -> Self {
        let (is_hurried, is_told) = (Cell::new(false), Cell::new(false));
        Self { programs: Arc::default(), away: Arc::default(), patience, is_hurried, is_told }
    }

    /// Another round through all processes begins.
    pub(super) fn begin_round(&self) {
        self.is_hurried.set(false);
    }

    /// Looks at a process; `None`: no answer came.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn look(&self, process: Process, folder: Folder) -> Option<Result<Seen, Fault>> {
        let programs = Arc::clone(&self.programs);
        self.ask(process, move || see(process, folder, &programs))
    }

    /// When what lies at `header` was published (`Some(None)`: nothing does); `None`: no answer came.
    pub(super) fn published_time(&self, process: Process, header: u64) -> Option<Option<u64>> {
        self.ask(process, move || Published::time_at(header, process.memory()))
    }

    /// Threads that did not come back yet.
    pub(super) fn away(&self) -> usize {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn ask<T: Send + 'static>(&self, process: Process, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            if away.len() >= MOST_AWAY || !away.insert(process) {
                return None;
            }
        }
        let way_back = Back { process, away: Arc::clone(&self.away) };
        let (give, take) = sync_channel(1);
        let body = move || {
            let answer = work();
            drop(way_back);
            // Nobody is there any more where it took too long.
            let _ = give.send(answer);
        };
        // By its name a person finds whom it waits for; 15 bytes are shown.
        let name = format!("look-{}", process.pid());
        let thread = thread::Builder::new().name(name).spawn(body).ok()?;
        let answer = take.recv_timeout(self.patience());
        if matches!(answer, Err(RecvTimeoutError::Timeout)) {
            self.hurry(process);
        } else {
            // It ends now, and threads that are still ending count where there must be one alone: its panic is told by the missing answer.
            let _ = thread.join();
        }
        answer.ok()
    }

    fn patience(&self) -> Duration {
        if self.is_hurried.get() { self.patience.min(HURRIED) } else { self.patience }
    }

    fn hurry(&self, process: Process) {
        if !self.is_told.replace(true) {
            let (pid, waited) = (process.pid(), self.patience());
            tracing::warn!(
                pid,
                "a process gave no answer within {waited:?} (a network or FUSE file system that hangs?); others are waited for at most \
                 {HURRIED:?} until all were looked at"
            );
        }
        self.is_hurried.set(true);
    }
}

/// Takes a process off those that have a thread away, whichever way the thread ends, or never begins.
struct Back {
    process: Process,
    away: Arc<Mutex<HashSet<Process>>>,
}

impl Drop for Back {
    fn drop(&mut self) {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.process);
    }
}

fn see(process: Process, folder: Folder, programs: &Programs) -> Result<Seen, Fault> {
    let container = Container::read(&folder);
    let environment = readable(Environment::read(&folder))?.unwrap_or_default();
    let context = readable(Published::read(&folder, process.memory()))?.flatten();
    match program(folder, programs) {
        Err(fault) if fault.is_gone() => Err(fault),
        exe => Ok(Seen { container, environment, context, exe }),
    }
}

/// What may be missing; only that the process is gone is an error.
fn readable<T>(outcome: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_gone() => Err(fault),
        Err(_) => Ok(None),
    }
}

fn program(folder: Folder, programs: &Programs) -> Result<Exe, Fault> {
    let files = Files::new(folder);
    let (path, is_deleted) = files.exe_path()?;
    let (file, identity) = files.exe()?;
    let program = programs.look_into(identity, file);
    Ok(Exe { path, is_deleted, identity: Some(identity), program: Some(program) })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// So long that a test which waits for it is seen to hang.
    const LONG: Duration = Duration::from_secs(600);

    /// Work that hangs until the other end is dropped.
    fn hang() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (end, wait): (Sender<()>, Receiver<()>) = channel();
        (end, move || _ = wait.recv())
    }

    /// Check that one that hangs makes the others of its round wait shortly and still be asked, and that the next round has patience again.
    #[test]
    fn only_the_first_that_hangs_is_waited_for_long() {
        let mut scout = Scout::new(Duration::from_millis(1));
        let (end_first, first) = hang();
        assert_eq!(scout.ask(Process::new(1, 1), first), None);
        scout.patience = LONG;
        assert_eq!(scout.patience(), HURRIED);
        let ends: Vec<_> = (2..5)
            .map(|pid| {
                let (end, work) = hang();
                assert_eq!(scout.ask(Process::new(pid, 1), work), None);
                end
            })
            .collect();
        assert_eq!(scout.away(), 4);
        scout.begin_round();
        assert_eq!(scout.patience(), LONG);
        assert_eq!(scout.ask(Process::new(9, 1), || 5), Some(5));
        drop((end_first, ends));
    }

    /// Check that the thread of a look that was answered, or panicked, has ended when the answer is there.
    #[test]
    fn no_thread_is_left_of_a_look_that_was_answered() {
        struct Last(Arc<AtomicBool>);
        impl Drop for Last {
            fn drop(&mut self) {
                // A thread that is not waited for comes too late.
                thread::sleep(Duration::from_millis(50));
                self.0.store(true, Ordering::Relaxed);
            }
        }
        thread_local!(static LAST: Cell<Option<Last>> = const { Cell::new(None) });
        let scout = Scout::new(LONG);
        for fails in [false, true] {
            let ended = Arc::<AtomicBool>::default();
            let flag = Arc::clone(&ended);
            let answer = scout.ask(Process::new(1, 1), move || {
                LAST.set(Some(Last(flag)));
                assert!(!fails, "as the test wants it");
            });
            assert_eq!((answer.is_some(), ended.load(Ordering::Relaxed)), (!fails, true));
        }
    }
}
