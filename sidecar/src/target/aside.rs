//! Work that a process can let wait for as long as it likes, by a FUSE file system or `userfaultfd`: on a thread of its own, which is left
//! behind when it does not come back.
//!
//! In: whom the work may wait for (a process, a disk) and what to do. Out: what came of it, or that there was no answer. Who has a thread
//! away is not asked again until it is back, so that what hangs costs one thread, however many ask for it; and there is a bound on how many are
//! away: from then on nobody is asked, which is said. On whichever thread asks.

use std::collections::HashSet;
use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::mappings::Device;
use super::process::Process;
use crate::privilege;

/// Most threads that are away. Each takes two or three pages of memory.
const MOST_AWAY: usize = 64;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The thread of an earlier look there did not come back yet.
    #[error("an earlier look at it did not come back yet")]
    Away,
    /// So many threads wait for others that there is none for this one.
    #[error("{MOST_AWAY} threads wait for other processes that give no answer; end those")]
    Crowded,
    /// It took too long, or the thread ended without.
    #[error(
        "it gave no answer in time (files or memory on a file system that hangs, or too little CPU time for the sidecar?)"
    )]
    Late,
    /// There is no thread to be had.
    #[error("there is no thread for it; raise the limit of processes (RLIMIT_NPROC, pids.max)")]
    NoThread,
}

/// What an answer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whom {
    /// A process: its memory, and what the kernel tells of that.
    Process(Process),
    /// A file system.
    Disk(Device),
}

impl From<Process> for Whom {
    fn from(process: Process) -> Self {
        Self::Process(process)
    }
}

impl From<Device> for Whom {
    fn from(device: Device) -> Self {
        Self::Disk(device)
    }
}

impl fmt::Display for Whom {
    /// `4711`, `0:52`.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(to, "{}", process.pid()),
            Self::Disk(device) => write!(to, "{device}"),
        }
    }
}

/// Whom answers are waited for, by one thread each.
#[derive(Debug)]
pub struct Aside {
    name: &'static str,
    away: Arc<Mutex<HashSet<Whom>>>,
    patience: Duration,
    /// The thread that answered last, if it is kept.
    waiting: Mutex<Option<Worker>>,
}

/// A thread that does what it is given, one after the other, until nobody can give it anything any more.
#[derive(Debug)]
struct Worker {
    give: Sender<Job>,
    thread: JoinHandle<()>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Aside {
    /// Threads called `name`, each of which is waited for so long.
    #[must_use]
    pub fn new(name: &'static str, patience: Duration) -> Self {
        Self { name, away: Arc::default(), patience, waiting: Mutex::new(None) }
    }

    /// Threads that did not come back yet.
    #[must_use]
    pub fn away(&self) -> usize {
        held(&self.away).len()
    }

    /// Whether a thread waits for `whom`.
    #[must_use]
    pub fn is_away(&self, whom: impl Into<Whom>) -> bool {
        held(&self.away).contains(&whom.into())
    }

    /// Does `work`, which waits for `whom`, and waits for it. No thread is left of one that was answered.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask<T: Send + 'static>(
        &self,
        whom: impl Into<Whom>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.ask_within(whom, self.patience, work)
    }

    /// The same, waiting so long.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask_within<T: Send + 'static>(
        &self,
        whom: impl Into<Whom>,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (answer, worker) = self.answer(whom.into(), patience, work)?;
        drop(worker.give);
        // It ends now, and threads that are still ending count where there must be one alone: its panic is told by the missing answer.
        let _ = worker.thread.join();
        answer
    }

    /// The same, by a thread that is kept for the next time: for who asks often. It has the capabilities that the first who asks has.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask_often<T: Send + 'static>(
        &self,
        whom: impl Into<Whom>,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (answer, worker) = self.answer(whom.into(), patience, work)?;
        if answer.is_ok() {
            *held(&self.waiting) = Some(worker);
        }
        answer
    }

    /// What came of the work, and the thread that did it; no thread where it is left behind.
    fn answer<T: Send + 'static>(
        &self,
        whom: Whom,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(Result<T, NoAnswer>, Worker), NoAnswer> {
        let way_back = self.leave(whom)?;
        let (give, take) = sync_channel(1);
        let job = move || {
            let answer = work();
            drop(way_back);
            // Nobody is there any more where it took too long.
            let _ = give.send(answer);
        };
        let waiting = held(&self.waiting).take();
        let worker = waiting.map_or_else(|| self.hire(whom), Ok)?;
        // One that ended is told by the missing answer.
        let _ = worker.give.send(Box::new(job));
        let begun = Instant::now();
        let mut answer = take.recv_timeout(patience);
        // Whoever was stopped meanwhile (SIGSTOP, a freezer, a machine that was suspended) has not waited, nor has the other one worked.
        if matches!(answer, Err(RecvTimeoutError::Timeout)) && begun.elapsed() > patience * 2 {
            answer = take.recv_timeout(patience);
        }
        match answer {
            Err(RecvTimeoutError::Timeout) => Err(NoAnswer::Late),
            answer => Ok((answer.map_err(|_| NoAnswer::Late), worker)),
        }
    }

    fn leave(&self, whom: Whom) -> Result<Back, NoAnswer> {
        let mut away = held(&self.away);
        if away.contains(&whom) {
            return Err(NoAnswer::Away);
        }
        if away.len() >= MOST_AWAY {
            return Err(NoAnswer::Crowded);
        }
        away.insert(whom);
        Ok(Back { whom, away: Arc::clone(&self.away) })
    }

    fn hire(&self, whom: Whom) -> Result<Worker, NoAnswer> {
        let (give, take) = channel::<Job>();
        // By its name a person finds whom it waits for; 15 bytes are shown.
        let thread = thread::Builder::new().name(format!("{}-{whom}", self.name));
        let thread = thread.spawn(move || {
            // Capabilities are each thread's own: what the thread that samples keeps for its clock is nothing that is needed here.
            let _ = privilege::drop_idle();
            take.into_iter().for_each(|job| job());
        });
        let thread = thread.map_err(|_| NoAnswer::NoThread)?;
        Ok(Worker { give, thread })
    }
}

/// What is held for a moment and is whole between two calls of its methods.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes whom it waited for off those that have a thread away, whichever way the thread ends, or never begins.
struct Back {
    whom: Whom,
    away: Arc<Mutex<HashSet<Whom>>>,
}

impl Drop for Back {
    fn drop(&mut self) {
        held(&self.away).remove(&self.whom);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// One that knows of the same threads that are away, and waits so long.
    fn sharing(other: &Aside, patience: Duration) -> Aside {
        Aside { away: Arc::clone(&other.away), ..Aside::new("test", patience) }
    }

    /// Check that processes that give no answer take one thread each, never stop the others before there are too many of them, and
    /// are asked again once they are back.
    #[test]
    fn those_that_hang_take_one_thread_each() {
        let hung = Aside::new("test", Duration::ZERO);
        let others = sharing(&hung, Duration::from_secs(60));
        let (release, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for pid in 1..=MOST_AWAY as u32 {
            assert_eq!(others.ask(Process::new(1000 + pid, 1), move || pid), Ok(pid));
            let (process, wait) = (Process::new(pid, 1), Arc::clone(&wait));
            let hang = move || _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
            assert_eq!(hung.ask(process, hang), Err(NoAnswer::Late));
            assert_eq!(others.ask(process, || ()), Err(NoAnswer::Away));
        }
        assert_eq!((others.ask(Process::new(999, 1), || ()), others.away()), (Err(NoAnswer::Crowded), MOST_AWAY));
        drop(release);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while others.away() > 0 {
            assert!(std::time::Instant::now() < until);
            thread::yield_now();
        }
        assert_eq!(others.ask(Process::new(1, 1), || 5), Ok(5));
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
        let aside = Aside::new("test", Duration::from_secs(600));
        for fails in [false, true] {
            let ended = Arc::<AtomicBool>::default();
            let flag = Arc::clone(&ended);
            let answer = aside.ask(Process::new(1, 1), move || {
                LAST.set(Some(Last(flag)));
                assert!(!fails, "as the test wants it");
            });
            assert_eq!((answer.is_ok(), ended.load(Ordering::Relaxed)), (!fails, true));
        }
    }

    /// Check that who asks often is answered by one thread, that another one takes its place when it is left behind or panics, and that the
    /// first one ends when it comes back.
    #[test]
    fn one_thread_answers_who_asks_often() {
        const LONG: Duration = Duration::from_secs(600);
        let aside = Aside::new("test", Duration::ZERO);
        let who = |pid| aside.ask_often(Process::new(pid, 1), LONG, || thread::current().id());
        let first = who(1).unwrap();
        assert_eq!((who(2), who(1)), (Ok(first), Ok(first)));
        let (release, wait) = channel::<()>();
        let hang = move || _ = wait.recv();
        assert_eq!(aside.ask_often(Process::new(3, 1), Duration::ZERO, hang), Err(NoAnswer::Late));
        let second = who(1).unwrap();
        assert_ne!(second, first);
        assert_eq!((who(3), who(2)), (Err(NoAnswer::Away), Ok(second)));
        let fails = move || assert!(thread::current().id() != second, "as the test wants it");
        assert_eq!(aside.ask_often(Process::new(4, 1), LONG, fails), Err(NoAnswer::Late));
        assert!(who(4).is_ok_and(|third| third != second));
        drop(release);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while who(3).is_err() {
            assert!(std::time::Instant::now() < until);
            thread::yield_now();
        }
    }
}
