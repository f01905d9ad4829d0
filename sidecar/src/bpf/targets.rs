//! What the kernel side is told of processes: a map by pid, of which the kernel side changes entries, too, at an exec, a fork and the end of a process.

use std::collections::HashSet;

use aya::maps::{self, MapData};
use profiler_sidecar_ebpf::{Go, TARGET_WORDS, Target, TargetFlag};

use crate::error::Error;

/// What is known of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Knowledge {
    /// No samples of it.
    pub is_excluded: bool,
    /// It is a Go program, which keeps so what samples say of goroutines.
    pub go: Option<Go>,
    /// It publishes thread contexts (OTEP 4947): their pointer is so many bytes from the thread pointer.
    pub context_offset: Option<i64>,
}

impl Knowledge {
    fn target(&self) -> Target {
        let flag = |is: bool, flag: TargetFlag| if is { flag as u32 } else { 0 };
        let flags = flag(self.is_excluded, TargetFlag::Excluded)
            | flag(self.go.is_some(), TargetFlag::Go)
            | flag(self.context_offset.is_some(), TargetFlag::Context);
        let context_offset = self.context_offset.unwrap_or_default();
        Target { flags, padding: 0, context_offset, go: self.go.unwrap_or_default() }
    }
}

/// The map, and whom it was told of.
pub(super) struct Targets {
    map: maps::HashMap<MapData, u32, [u64; TARGET_WORDS]>,
    told: HashSet<u32>,
}

impl Targets {
    pub(super) fn new(map: maps::HashMap<MapData, u32, [u64; TARGET_WORDS]>) -> Self {
        Self { map, told: HashSet::new() }
    }

    /// Tells of a process: at once, in place of all that was told before.
    pub(super) fn tell(&mut self, pid: u32, knowledge: &Knowledge) -> Result<(), Error> {
        self.map.insert(pid, knowledge.target().words(), 0).map_err(|error| {
            Error::new(
                format!("process {pid} in the kernel side's table"),
                error.to_string(),
                "there is room for 10,240 processes: forget those that ended, or profile fewer",
            )
        })?;
        self.told.insert(pid);
        Ok(())
    }

    /// Takes back what was told of a process; what the kernel side has put there since is its own.
    pub(super) fn forget(&mut self, pid: u32) {
        if self.told.remove(&pid) && !self.is_known_by_executable(pid) {
            // Not there any more if the kernel side did so.
            let _gone = self.map.remove(&pid);
        }
    }

    /// Whether the kernel side knows the process by the file of its program.
    pub(super) fn is_known_by_executable(&self, pid: u32) -> bool {
        let flags = self.map.get(&pid, 0).map_or(0, |[flags, ..]| flags);
        flags & TargetFlag::ByExecutable as u64 != 0
    }
}
