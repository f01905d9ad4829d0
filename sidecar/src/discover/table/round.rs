//! One look at all of `/proc`, in as many parts as it takes.
//!
//! In: the names in `/proc`. Out: pids, each once.

use std::collections::HashSet;

/// Most pids of a round; `pid_max` can be 4,194,304.
const MOST: usize = 1 << 16;

/// Pids that there were when the round began.
#[derive(Debug, Default)]
pub(super) struct Round {
    listed: HashSet<u32>,
    left: Vec<u32>,
}

impl Round {
    /// Lists the processes; `false`: that cannot be done.
    pub(super) fn begin(&mut self) -> bool {
        let Ok(folder) = std::fs::read_dir("/proc") else { return false };
        let names = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        self.left = names.take(MOST).collect();
        self.listed = self.left.iter().copied().collect();
        // From the lowest up.
        self.left.sort_unstable_by(|a, b| b.cmp(a));
        true
    }

    pub(super) fn next(&mut self) -> Option<u32> {
        self.left.pop()
    }

    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Whether a pid was there when the round began.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.listed.contains(&pid)
    }
}
