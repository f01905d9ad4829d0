//! Looks at what a process has in its hand: its program's file, its memory, its variables. It can let a reader wait as long as it likes, so
//! each look is done on a thread that can be left behind ([`Aside`]).
//!
//! In: a process. Out: what was seen, or that there was no answer in time.

use std::sync::Arc;
use std::time::Duration;

use super::container::Container;
use super::context::Published;
use super::environment::Environment;
use super::program::Programs;
use super::target::Exe;
use crate::target::{Aside, Fault, Files, Folder, Process};

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
    aside: Aside,
}

impl Scout {
    /// One that waits so long for an answer.
    pub(super) fn new(patience: Duration) -> Self {
        Self { programs: Arc::default(), aside: Aside::new("look", patience) }
    }

    /// Looks at a process; `None`: no answer came.
    ///
    /// # Errors
    /// When it is gone.
    pub(super) fn look(&self, process: Process, folder: Folder) -> Option<Result<Seen, Fault>> {
        let programs = Arc::clone(&self.programs);
        self.aside.ask(process, move || see(process, folder, &programs)).ok()
    }

    /// When what lies at `header` was published (`Some(None)`: nothing does); `None`: no answer came.
    pub(super) fn published_time(&self, process: Process, header: u64) -> Option<Option<u64>> {
        self.aside.ask(process, move || Published::time_at(header, process.memory())).ok()
    }

    /// Threads that did not come back yet.
    pub(super) fn away(&self) -> usize {
        self.aside.away()
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
