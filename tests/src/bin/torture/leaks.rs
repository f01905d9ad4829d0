//! What a process holds of the kernel's things: descriptors, timers, threads, memory.
//!
//! In: `/proc/self`. Out: counts, to be compared before and after.

use std::{fs, io};

use profiler_tests::Result;
use serde_json::{Value, json};

/// What is held at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    /// Where the kernel tells of them.
    pub(crate) timers: Option<usize>,
    pub(crate) threads: usize,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

impl Held {
    /// Now.
    pub(crate) fn now() -> Result<Self> {
        let entries = |path: &str| fs::read_dir(path).map(Iterator::count);
        let status = fs::read_to_string("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Ok(Self {
            descriptors: entries("/proc/self/fd")?,
            timers: timers()?.map(|timers| timers.len()),
            threads: entries("/proc/self/task")?,
            resident: resident.ok_or("there is no VmRSS")?.parse::<u64>()? * 1024,
        })
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "descriptors": self.descriptors, "timers": self.timers, "threads": self.threads, "resident": self.resident,
        })
    }
}

/// The POSIX timers of this process: whom each one signals, as the kernel writes it (`signal/tid.17`). A kernel that was built
/// without `CONFIG_CHECKPOINT_RESTORE` does not.
///
/// Source: proc(5), "/proc/pid/timers".
pub(crate) fn timers() -> Result<Option<Vec<String>>> {
    match fs::read_to_string("/proc/self/timers") {
        Ok(text) => {
            Ok(Some(text.lines().filter_map(|line| line.strip_prefix("notify: ")).map(str::to_owned).collect()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
