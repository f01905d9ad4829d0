//! Where Go programs keep what the kernel side reads of goroutines, once for each program.
//!
//! In: targets. Out: offsets, or that there are none: the program is no Go, of a version that nobody knows, or was not read. Only what was read is
//! remembered: a program that could not be opened may be opened for the next process that runs it. Files may hold anything, and lie on file systems
//! that give no answer in time: they are read by a thread that can be left behind, and what it finds in the end is there for who asks again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bpf::Go;
use crate::discover::{Kind, Target};
use crate::target::{Aside, Fault, Hurry, Identity, NoAnswer, Process};
use crate::{elf, go};

/// Most programs that are remembered.
const MOST: usize = 1024;
/// How long a file is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Offsets by program.
#[derive(Debug)]
pub(super) struct Goroutines {
    known: Arc<Mutex<Known>>,
    aside: Aside,
    patience: Duration,
    hurry: Hurry,
    /// Those whose program gave no answer yet, which was said.
    awaited: HashSet<Process>,
}

type Known = HashMap<Identity, Option<Go>>;

impl Default for Goroutines {
    fn default() -> Self {
        let (known, aside, awaited) = (Arc::default(), Aside::new("offsets", PATIENCE), HashSet::new());
        Self { known, aside, patience: PATIENCE, hurry: Hurry::default(), awaited }
    }
}

/// What is known of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It keeps goroutines so.
    At(Go),
    /// It has none, or keeps them nobody knows where.
    Nowhere,
    /// It could not be read.
    Unread,
    /// It gave no answer in time: it is to be asked for again.
    Later,
}

impl Place {
    fn of(offsets: Option<Go>) -> Self {
        offsets.map_or(Self::Nowhere, Self::At)
    }
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("{0}")]
    Process(#[from] Fault),
    #[error("its program: {0}")]
    Program(#[from] elf::Fault),
    #[error("it runs another program by now")]
    Changed,
}

impl Goroutines {
    /// Where the program of a process keeps them.
    pub(super) fn of(&mut self, target: &Target) -> Place {
        let (Kind::Go(_), Some(identity)) = (&target.kind, target.exe.identity) else { return Place::Nowhere };
        let (process, program) = (target.process, &target.kind);
        let pid = process.pid();
        let known = held(&self.known).get(&identity).copied();
        if let Some(offsets) = known {
            if self.awaited.remove(&process) && offsets.is_none() {
                tracing::info!(pid, %program, "goroutines have no labels and numbers: unknown version");
            }
            return Place::of(offsets);
        }
        let known = Arc::clone(&self.known);
        let answer = self.aside.ask_within(identity.device, self.hurry.patience(self.patience), move || {
            let found = read(process, identity);
            found.inspect(|offsets| remember(&mut held(&known), identity, *offsets))
        });
        let read = match answer {
            Ok(read) => read,
            Err(why) => {
                if why == NoAnswer::Late {
                    self.hurry.note_late();
                }
                self.awaits(process, program, &why);
                return Place::Later;
            }
        };
        self.awaited.remove(&process);
        match &read {
            Ok(Some(_)) => {}
            Ok(None) => tracing::info!(pid, %program, "goroutines have no labels and numbers: unknown version"),
            Err(Unread::Process(fault)) if fault.is_gone() => {
                tracing::debug!(pid, %program, "ended before its goroutines were looked for");
            }
            Err(why) => tracing::info!(pid, %program, "goroutines have no labels and numbers: not read: {why}"),
        }
        read.map_or(Place::Unread, Place::of)
    }

    fn awaits(&mut self, process: Process, program: &Kind, why: &NoAnswer) {
        if self.awaited.len() >= MOST {
            self.awaited.clear();
        }
        if self.awaited.insert(process) {
            let pid = process.pid();
            tracing::info!(pid, %program, "goroutines have no labels and numbers until its program is read: {why}");
        }
    }
}

fn held(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(known: &mut Known, identity: Identity, offsets: Option<Go>) {
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(identity, offsets);
}

/// The offsets of the program `identity`; `None`: nobody knows where its version keeps them.
fn read(process: Process, identity: Identity) -> Result<Option<Go>, Unread> {
    let (file, found) = process.files()?.exe()?;
    if found != identity {
        return Err(Unread::Changed);
    }
    let program = go::Program::open(Arc::new(elf::File::open(file)?))?;
    Ok(program.and_then(|program| go::offsets::offsets(&program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(process: Process, identity: Identity) -> Target {
        let mut target = Target::bare(process, Kind::Go("go1.24.0".into()));
        target.exe.identity = Some(identity);
        target
    }

    /// Check that a program is judged by what was read of it, and not by a process that ended too early or runs another one.
    #[test]
    fn only_what_was_read_is_remembered() {
        let own = Process::find(std::process::id()).unwrap();
        let (_, identity) = own.files().unwrap().exe().unwrap();
        let mut goroutines = Goroutines::default();
        let ended = Process::new(own.pid(), own.start_time() + 1);
        assert!(matches!(read(ended, identity), Err(Unread::Process(fault)) if fault.is_gone()));
        let other = Identity { inode: identity.inode + 1, ..identity };
        assert!(matches!(read(own, other), Err(Unread::Changed)));
        assert_eq!(goroutines.of(&target(ended, identity)), Place::Unread);
        assert_eq!(goroutines.of(&target(own, other)), Place::Unread);
        assert!(held(&goroutines.known).is_empty(), "{goroutines:?}");
        // This is no Go program: read, and remembered as such.
        assert_eq!(goroutines.of(&target(own, identity)), Place::Nowhere);
        assert_eq!(held(&goroutines.known).keys().collect::<Vec<_>>(), [&identity]);
    }

    /// Check that what was not read in time is there for who asks again, once it is read.
    #[test]
    fn what_came_late_is_known_later() {
        let own = Process::find(std::process::id()).unwrap();
        let (_, identity) = own.files().unwrap().exe().unwrap();
        let mut goroutines = Goroutines { patience: Duration::ZERO, ..Goroutines::default() };
        let target = target(own, identity);
        // The first is not waited for; until it is back, nobody else is asked.
        let mut answers = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(1));
            goroutines.of(&target)
        });
        assert_eq!(answers.next(), Some(Place::Later));
        assert!(answers.take(60_000).any(|answer| answer == Place::Nowhere));
        assert!(goroutines.awaited.is_empty());
    }
}
