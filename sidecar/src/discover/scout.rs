//! Looks at what a process has in its hand: its program's file, its memory, its variables. It can let a reader wait as long as it likes, by a
//! FUSE file system or `userfaultfd`, so each look is done on a thread of its own, which is left behind when it does not come back.
//!
//! In: a process. Out: what was seen, or that there was no answer in time. Who has a thread away is not looked at again until it is back, and
//! there is a bound on how many are away: from then on those that are new are not looked at, which is said.

use std::collections::HashSet;
use std::sync::mpsc::sync_channel;
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
}

impl Scout {
    /// One that waits so long for an answer.
    pub(super) fn new(patience: Duration) -> Self {
        Self { programs: Arc::default(), away: Arc::default(), patience }
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
        thread::Builder::new().name(name).spawn(body).ok()?;
        take.recv_timeout(self.patience).ok()
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
