//! Where Go programs keep what the kernel side reads of goroutines, once for each program.
//!
//! In: targets. Out: offsets, or that there are none: the program is no Go, of a version that nobody knows, or not ours to read. Only what was read is
//! remembered: a program that could not be opened may be opened for the next process that runs it. Files may hold anything, and lie on file systems
//! that give no answer: they are read by a thread that can be left behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::bpf::Go;
use crate::discover::{Kind, Target};
use crate::target::{Aside, Fault, Identity, NoAnswer, Process};
use crate::{elf, go};

/// Most programs that are remembered.
const MOST: usize = 1024;
/// How long a file is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Offsets by program.
#[derive(Debug)]
pub(super) struct Goroutines {
    known: HashMap<Identity, Option<Go>>,
    aside: Aside,
}

impl Default for Goroutines {
    fn default() -> Self {
        Self { known: HashMap::new(), aside: Aside::new("offsets", PATIENCE) }
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
    #[error("its program: {0}")]
    NoAnswer(#[from] NoAnswer),
}

impl Goroutines {
    /// The offsets for a process.
    pub(super) fn of(&mut self, target: &Target) -> Option<Go> {
        let Kind::Go(_) = target.kind else { return None };
        let identity = target.exe.identity?;
        if let Some(known) = self.known.get(&identity) {
            return *known;
        }
        let (pid, program) = (target.process.pid(), &target.kind);
        let process = target.process;
        let answer = self.aside.ask(identity.device, move || read(process, identity));
        match answer.unwrap_or_else(|why| Err(why.into())) {
            Ok(offsets) => {
                if offsets.is_none() {
                    tracing::info!(pid, %program, "goroutines have no labels and numbers: unknown version");
                }
                self.remember(identity, offsets);
                offsets
            }
            Err(Unread::Process(fault)) if fault.is_gone() => {
                tracing::debug!(pid, %program, "ended before its goroutines were looked for");
                None
            }
            Err(why) => {
                tracing::info!(pid, %program, "goroutines have no labels and numbers: not read: {why}");
                None
            }
        }
    }

    fn remember(&mut self, identity: Identity, offsets: Option<Go>) {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(identity, offsets);
    }
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
        assert_eq!(goroutines.of(&target(ended, identity)), None);
        assert_eq!(goroutines.of(&target(own, other)), None);
        assert!(goroutines.known.is_empty(), "{goroutines:?}");
        // This is no Go program: read, and remembered as such.
        assert_eq!(goroutines.of(&target(own, identity)), None);
        assert_eq!(goroutines.known.keys().collect::<Vec<_>>(), [&identity]);
    }
}
