//! Where Go programs keep what the kernel side reads of goroutines, once for each program.
//!
//! In: targets. Out: offsets, or that there are none: the program is no Go, of a version that nobody knows, or not ours to read. Files may hold
//! anything.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bpf::Go;
use crate::discover::{Kind, Target};
use crate::target::Identity;
use crate::{elf, go};

/// Most programs that are remembered.
const MOST: usize = 1024;

/// Offsets by program.
#[derive(Debug, Default)]
pub(super) struct Goroutines(HashMap<Identity, Option<Go>>);

impl Goroutines {
    /// The offsets for a process.
    pub(super) fn of(&mut self, target: &Target) -> Option<Go> {
        let Kind::Go(_) = target.kind else { return None };
        let identity = target.exe.identity?;
        if let Some(known) = self.0.get(&identity) {
            return *known;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let offsets = read(target);
        if offsets.is_none() {
            tracing::info!(pid = target.process.pid(), program = %target.kind, "goroutines have no labels and numbers: unknown version");
        }
        self.0.insert(identity, offsets);
        offsets
    }
}

fn read(target: &Target) -> Option<Go> {
    let file = target.process.open_exe().ok()?;
    let program = go::Program::open(Arc::new(elf::File::open(file).ok()?)).ok()??;
    go::offsets::offsets(&program)
}
