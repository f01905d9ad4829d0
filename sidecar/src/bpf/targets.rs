//! What the kernel side is told of processes: a map by pid, and the same here, so that a part of an entry can be changed.

use std::collections::HashMap;

use aya::maps::{self, MapData};
use profiler_sidecar_ebpf::{TARGET_WORDS, Target};

use crate::error::Error;

/// Both.
pub(super) struct Targets {
    map: maps::HashMap<MapData, u32, [u64; TARGET_WORDS]>,
    known: HashMap<u32, Target>,
}

impl Targets {
    pub(super) fn new(map: maps::HashMap<MapData, u32, [u64; TARGET_WORDS]>) -> Self {
        Self { map, known: HashMap::new() }
    }

    /// Changes what is known of a process.
    pub(super) fn change(&mut self, pid: u32, change: impl FnOnce(&mut Target)) -> Result<(), Error> {
        let mut target = self.known.get(&pid).copied().unwrap_or_default();
        change(&mut target);
        if self.known.get(&pid) == Some(&target) {
            return Ok(());
        }
        self.map.insert(pid, target.words(), 0).map_err(|error| {
            Error::new(
                format!("process {pid} in the kernel side's table"),
                error.to_string(),
                "there is room for 8,192 processes: forget those that ended, or profile fewer",
            )
        })?;
        self.known.insert(pid, target);
        Ok(())
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: u32) {
        if self.known.remove(&pid).is_some() {
            // It was there: nobody else removes any.
            let _gone = self.map.remove(&pid);
        }
    }
}
