//! Work that a process can let wait for as long as it likes, by a FUSE file system or `userfaultfd`: each on a thread of its own, which is left
//! behind when it does not come back.
//!
//! In: a process and what to do with it. Out: what came of it, or that there was no answer. Who has a thread away is not looked at again until it is
//! back, and there is a bound on how many are away: from then on nobody is looked at, which is said. On whichever thread asks.

use std::collections::HashSet;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::process::Process;

/// Most threads that are away.
const MOST_AWAY: usize = 8;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The thread of an earlier look at the same process did not come back yet.
    #[error("an earlier look at it did not come back yet")]
    Away,
    /// So many threads wait for others that there is none for this one.
    #[error("{MOST_AWAY} threads wait for other processes that give no answer; end those")]
    Crowded,
    /// It took too long, or the thread ended without.
    #[error("it gave no answer in time (files or memory on a file system that hangs?)")]
    Late,
    /// There is no thread to be had.
    #[error("there is no thread for it; raise the limit of processes (RLIMIT_NPROC, pids.max)")]
    NoThread,
}

/// Who is asked, and by how many threads.
#[derive(Debug)]
pub struct Aside {
    name: &'static str,
    away: Arc<Mutex<HashSet<Process>>>,
    patience: Duration,
}

impl Aside {
    /// Threads called `name`, each of which is waited for so long.
    #[must_use]
    pub fn new(name: &'static str, patience: Duration) -> Self {
        Self { name, away: Arc::default(), patience }
    }

    /// Threads that did not come back yet.
    #[must_use]
    pub fn away(&self) -> usize {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Does `work`, which reads of `process`, and waits for it.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask<T: Send + 'static>(
        &self,
        process: Process,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.ask_within(process, self.patience, work)
    }

    /// The same, waiting so long.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask_within<T: Send + 'static>(
        &self,
        process: Process,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            if away.contains(&process) {
                return Err(NoAnswer::Away);
            }
            if away.len() >= MOST_AWAY {
                return Err(NoAnswer::Crowded);
            }
            away.insert(process);
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
        let name = format!("{}-{}", self.name, process.pid());
        let thread = thread::Builder::new().name(name).spawn(body).map_err(|_| NoAnswer::NoThread)?;
        let answer = take.recv_timeout(patience);
        if !matches!(answer, Err(RecvTimeoutError::Timeout)) {
            // It ends now, and threads that are still ending count where there must be one alone: its panic is told by the missing answer.
            let _ = thread.join();
        }
        answer.map_err(|_| NoAnswer::Late)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// Check that processes that give no answer take one thread each, never stop the others before there are too many of them, and
    /// are asked again once they are back.
    #[test]
    fn those_that_hang_take_one_thread_each() {
        let hung = Aside::new("test", Duration::ZERO);
        let others = Aside { name: "test", away: Arc::clone(&hung.away), patience: Duration::from_secs(60) };
        let (release, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for pid in 1..=8 {
            assert_eq!(others.ask(Process::new(1000 + pid, 1), move || pid), Ok(pid));
            let (process, wait) = (Process::new(pid, 1), Arc::clone(&wait));
            let hang = move || _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
            assert_eq!(hung.ask(process, hang), Err(NoAnswer::Late));
            assert_eq!(others.ask(process, || ()), Err(NoAnswer::Away));
        }
        assert_eq!((others.ask(Process::new(9, 1), || ()), others.away()), (Err(NoAnswer::Crowded), 8));
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
}
