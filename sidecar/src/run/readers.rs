//! Reads of processes for whoever asks at the page: each on a thread that can be left behind, one at once.
//!
//! In: a process and what to read of it. Out: what came of it, or that there was no answer. A process can let a read wait as long as it likes
//! (`userfaultfd`, FUSE): it then has one thread, which is not waited for any more, and is not asked again until that one is back. Nothing
//! here takes a thread of the runtime's, which names of hosts need. On the main thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::target::{NoAnswer, Process};

/// Most reads at once: each may take a hundred megabytes until what was read is a set.
const AT_ONCE: usize = 1;
/// Most threads that are away.
const MOST_AWAY: usize = 8;
/// How long a read may take, once it has its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who is asked; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    places: Arc<Semaphore>,
    threads: Arc<Mutex<Threads>>,
    patience: Duration,
}

/// Threads that read, by a number each, with the process and whether nobody waits for it any more.
#[derive(Debug, Default)]
struct Threads {
    next: u64,
    reading: HashMap<u64, (Process, bool)>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), threads: Arc::default(), patience: PATIENCE }
    }
}

impl Readers {
    /// Does `work`, which reads of `process`, and waits for it.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        process: Process,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        // Before it waits for its turn: who asks for what hangs does not stand before others.
        self.threads().admits(process)?;
        // It is never closed. Those before it have theirs for so long at most.
        let place = self.places.acquire().await.map_err(|_| NoAnswer::Late)?;
        let until = Instant::now() + self.patience;
        let number = self.threads().admit(process)?;
        let waiting = Waiting { threads: &self.threads, number };
        let back = Back { threads: Arc::clone(&self.threads), number };
        let (give, take) = oneshot::channel();
        let body = move || {
            let answer = work();
            drop(back);
            // Nobody is there any more where it took too long.
            drop(give.send(answer));
        };
        // By its name a person finds whom it waits for; 15 bytes are shown.
        let name = format!("asked-{}", process.pid());
        std::thread::Builder::new().name(name).spawn(body).map_err(|_| NoAnswer::NoThread)?;
        let answer = timeout_at(until, take).await;
        drop((waiting, place));
        answer.map_err(|_| NoAnswer::Late)?.map_err(|_| NoAnswer::Late)
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        lock(&self.threads)
    }
}

impl Threads {
    /// Whether one more thread may read of `process`.
    fn admits(&self, process: Process) -> Result<(), NoAnswer> {
        let away = || self.reading.values().filter(|(_, is_away)| *is_away);
        match () {
            () if away().any(|(of, _)| *of == process) => Err(NoAnswer::Away),
            () if away().count() >= MOST_AWAY => Err(NoAnswer::Crowded),
            () => Ok(()),
        }
    }

    fn admit(&mut self, process: Process) -> Result<u64, NoAnswer> {
        self.admits(process)?;
        self.next += 1;
        self.reading.insert(self.next, (process, false));
        Ok(self.next)
    }
}

/// Whoever waits for a thread; dropped, because of time or of who asked, nobody does.
struct Waiting<'t> {
    threads: &'t Mutex<Threads>,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((_, is_away)) = lock(self.threads).reading.get_mut(&self.number) {
            *is_away = true;
        }
    }
}

/// Takes a thread off those that read, whichever way it ends, or never begins.
struct Back {
    threads: Arc<Mutex<Threads>>,
    number: u64,
}

impl Drop for Back {
    fn drop(&mut self) {
        lock(&self.threads).reading.remove(&self.number);
    }
}

fn lock(threads: &Mutex<Threads>) -> MutexGuard<'_, Threads> {
    // A map is whole between two calls of its methods.
    threads.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A read that hangs until the sender is dropped.
    fn hang() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (release, wait) = channel::<()>();
        (release, move || _ = wait.recv())
    }

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work);
    }

    /// Check that processes that hang take one thread each and nobody's turn, and are asked again once they are back.
    #[test]
    fn pulls_that_hang_do_not_keep_others_from_being_answered() {
        run(async {
            let hung = Readers { patience: Duration::from_millis(20), ..Readers::default() };
            let others = Readers { patience: Duration::from_secs(60), ..hung.clone() };
            let mut held = Vec::new();
            for pid in 1..=MOST_AWAY as u32 {
                assert_eq!(others.ask(Process::new(1000 + pid, 1), move || pid).await, Ok(pid));
                let (release, work) = hang();
                held.push(release);
                assert_eq!(hung.ask(Process::new(pid, 1), work).await, Err(NoAnswer::Late));
                assert_eq!(others.ask(Process::new(pid, 1), || ()).await, Err(NoAnswer::Away));
            }
            assert_eq!(others.ask(Process::new(9, 1), || ()).await, Err(NoAnswer::Crowded));
            drop(held);
            let until = Instant::now() + Duration::from_secs(60);
            while !others.threads().reading.is_empty() {
                assert!(Instant::now() < until);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(others.ask(Process::new(1, 1), || 5).await, Ok(5));
        });
    }

    /// Check that of many who ask one is read at a time, and that the wait for those before is no part of anybody's time.
    #[test]
    fn one_is_read_at_a_time() {
        run(async {
            let readers = Readers { patience: Duration::from_secs(60), ..Readers::default() };
            let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let mut asked = tokio::task::JoinSet::new();
            for pid in 1..=20 {
                let (readers, running, most) = (readers.clone(), Arc::clone(&running), Arc::clone(&most));
                let work = move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                asked.spawn(async move { readers.ask(Process::new(pid, 1), work).await });
            }
            assert!(asked.join_all().await.iter().all(Result::is_ok));
            assert_eq!(most.load(Ordering::SeqCst), 1);
        });
    }

    /// Check that who asks and goes away leaves a thread that counts.
    #[test]
    fn a_pull_that_is_broken_off_leaves_its_thread_counted() {
        run(async {
            let readers = Readers { patience: Duration::from_secs(600), ..Readers::default() };
            let (_release, work) = hang();
            let asked = tokio::time::timeout(Duration::from_millis(20), readers.ask(Process::new(1, 1), work));
            assert!(asked.await.is_err());
            assert_eq!(readers.ask(Process::new(1, 1), || ()).await, Err(NoAnswer::Away));
            assert_eq!(readers.places.available_permits(), AT_ONCE);
        });
    }
}
