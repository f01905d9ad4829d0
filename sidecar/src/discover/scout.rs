//! Looks at what a process has in its hand: its program's file, its memory, its variables. It can let a reader wait as long as it likes, so
//! each look is done on a thread that can be left behind ([`Aside`]).
//!
//! In: a process. Out: what was seen, or that there was no answer in time. Who asks waits: once somebody gave no answer, the others of the same
//! round are waited for only shortly, so that several that hang do not hold up the start. The program's file is asked of its file system: of one
//! that hangs one thread is left behind, whatever the number of programs on it.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::container::Container;
use super::context::Published;
use super::environment::Environment;
use super::program::Programs;
use super::target::Exe;
use crate::target::numbers::leads_to_initial;
use crate::target::{Aside, Device, Fault, Files, Folder, Mappings, NoAnswer, Process, Whom, undeleted};

/// How long an answer is waited for in a round in which somebody gave none: enough for files and memory that are there.
const HURRIED: Duration = Duration::from_millis(100);
/// Mappings among which the program is looked for: it lies below all others but what was put there on purpose.
const FIRST_MAPPINGS: usize = 64;

/// What was seen of a process.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) container: Container,
    pub(super) environment: Environment,
    pub(super) context: Option<Published>,
    /// It is in a pid namespace below ours, and ours is not that of the machine, in which every process has a number.
    pub(super) is_below: bool,
    /// `None`: no answer came.
    pub(super) exe: Option<Result<Exe, Fault>>,
}

/// What is seen without a file.
struct Outside {
    seen: Seen,
    /// Where the link to its program leads.
    link: Result<Vec<u8>, Fault>,
    /// Where its file lies, if that can be told without it.
    device: Option<Device>,
    folder: Folder,
}

/// Who looks.
#[derive(Debug)]
pub(super) struct Scout {
    programs: Arc<Programs>,
    aside: Aside,
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
        Self { programs: Arc::default(), aside: Aside::new("look", patience), patience, is_hurried, is_told }
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
        let outside = match self.ask(process.into(), process, move || see(process, folder))? {
            Ok(outside) => outside,
            Err(fault) => return Some(Err(fault)),
        };
        let Outside { mut seen, link, device, folder } = outside;
        seen.exe = match link {
            Ok(link) => self.program(process, device, folder, &link),
            // No threads of the kernel come here: who has no program is on its way out, and has given its memory back.
            Err(fault @ Fault::Missing { .. }) => return Some(Err(fault)),
            Err(fault) => Some(Err(fault)),
        };
        match seen.exe {
            Some(Err(fault)) if fault.is_gone() => Some(Err(fault)),
            exe => Some(Ok(Seen { exe, ..seen })),
        }
    }

    /// The program's file; `None`: no answer came.
    fn program(
        &self,
        process: Process,
        device: Option<Device>,
        folder: Folder,
        link: &[u8],
    ) -> Option<Result<Exe, Fault>> {
        let (path, is_deleted) = undeleted(Path::new(OsStr::from_bytes(link)));
        let path = path.to_owned();
        let (programs, whom) = (Arc::clone(&self.programs), device.map_or(process.into(), Whom::Disk));
        self.ask(whom, process, move || {
            let (file, identity) = Files::new(folder).exe()?;
            let program = programs.look_into(identity, file);
            Ok(Exe { path, is_deleted, identity: Some(identity), program: Some(program) })
        })
    }

    /// When what lies at `header` was published (`Some(None)`: nothing does); `None`: no answer came.
    pub(super) fn published_time(&self, process: Process, header: u64) -> Option<Option<u64>> {
        self.ask(process.into(), process, move || Published::time_at(header, process.memory()))
    }

    /// Threads that did not come back yet.
    pub(super) fn away(&self) -> usize {
        self.aside.away()
    }

    /// Asks, on behalf of a process.
    fn ask<T: Send + 'static>(
        &self,
        whom: Whom,
        process: Process,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let answer = self.aside.ask_within(whom, self.patience(), work);
        if matches!(answer, Err(NoAnswer::Late)) {
            self.hurry(process);
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

fn see(process: Process, folder: Folder) -> Result<Outside, Fault> {
    let container = Container::read(&folder);
    let environment = readable(Environment::read(&folder, process.memory()))?.unwrap_or_default();
    let context = readable(Published::read(&folder, process.memory()))?.flatten();
    let is_below = is_below(&folder);
    let seen = Seen { container, environment, context, is_below, exe: None };
    let link = folder.link("exe");
    let device = link.as_ref().ok().and_then(|link| device_of(&folder, link));
    Ok(Outside { seen, link, device, folder })
}

/// Whether a process is in a pid namespace below ours, which is not the initial one: in another one it cannot be, for then our `/proc` would not show it. What cannot be
/// read is taken for ours.
///
/// Source: pid_namespaces(7).
fn is_below(folder: &Folder) -> bool {
    static OURS: LazyLock<Option<Vec<u8>>> =
        LazyLock::new(|| Some(std::fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_vec()));
    let Some(ours) = OURS.as_ref().filter(|ours| !leads_to_initial(ours)) else { return false };
    folder.link("ns/pid").is_ok_and(|its| its != *ours)
}

/// Where the file of the program lies, by its mappings: nothing of it is looked at.
fn device_of(folder: &Folder, link: &[u8]) -> Option<Device> {
    let (mut left, mut device) = (FIRST_MAPPINGS, None);
    let scan = Mappings::each(folder, |line| {
        left -= 1;
        device = (line.inode != 0 && line.name == link).then_some(line.device);
        device.is_none() && left > 0
    });
    scan.ok().and(device)
}

/// What may be missing; only that the process is gone is an error.
fn readable<T>(outcome: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_gone() => Err(fault),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(scout.ask(Process::new(1, 1).into(), Process::new(1, 1), first), None);
        scout.patience = LONG;
        assert_eq!(scout.patience(), HURRIED);
        let ends: Vec<_> = (2..5)
            .map(|pid| {
                let (end, work) = hang();
                let process = Process::new(pid, 1);
                assert_eq!(scout.ask(process.into(), process, work), None);
                end
            })
            .collect();
        assert_eq!(scout.away(), 4);
        scout.begin_round();
        assert_eq!(scout.patience(), LONG);
        let another = Process::new(9, 1);
        assert_eq!(scout.ask(another.into(), another, || 5), Some(5));
        drop((end_first, ends));
    }
}
