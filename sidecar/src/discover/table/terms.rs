//! What is said to the table, and what it says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::target::{Candidate, Target};
use crate::target::Process;

/// What the kernel side tells of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It runs another program now.
    Exec {
        /// Which.
        pid: u32,
    },
    /// It ended.
    Exit {
        /// Which.
        pid: u32,
    },
    /// It is new, with its parent's program.
    Fork {
        /// Whose child.
        parent: u32,
        /// Which.
        child: u32,
    },
}

/// What the settings say of processes.
pub struct Options {
    /// Most processes that are known at once, ended ones included.
    pub most: usize,
    /// Whether processes that profile themselves are profiled all the same.
    pub sdk_too: bool,
    /// How long a look at a process may take, during which nothing else is done. A process can make a look hang on purpose.
    pub patience: Duration,
    /// Whether a process is to be profiled, or why not.
    pub choose: Choose,
}

/// Says whether a process is to be profiled, or why not.
pub type Choose = Box<dyn Fn(&Candidate<'_>) -> Result<(), String> + Send>;

impl Default for Options {
    /// 4,096 processes, two seconds for a look, all chosen that do not profile themselves.
    fn default() -> Self {
        Self { most: 4096, sdk_too: false, patience: Duration::from_secs(2), choose: Box::new(|_| Ok(())) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Options {{ most: {}, sdk_too: {} }}", self.most, self.sdk_too)
    }
}

/// What a part of a sweep did.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Targets that are new, or not what they were: their program changed, or what they publish.
    pub changed: Vec<Arc<Target>>,
    /// Processes that ended.
    pub ended: Vec<Process>,
    /// All of `/proc` was looked at since the last time that this was `true`.
    pub is_whole: bool,
}

/// What did not go as it should, since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Looks at processes that found out what they are.
    pub classified: u64,
    /// Samples or events of processes that were gone before anybody looked.
    pub gone_before: u64,
    /// Looks at processes for which there was no room.
    pub crowded: u64,
    /// Events that were not kept, as too many waited.
    pub untold: u64,
    /// `/proc` could not be listed.
    pub unlisted: u64,
}
