//! What the kernel says of a process that profiles others: its CPU time, its memory and that of its maps, the runs of its eBPF programs.

use std::fs;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::usage::cpu_of;

use super::kernel::Runs;

/// A process that profiles others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// Its number, as it is here.
    pub(super) id: u32,
}

/// Bytes that it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: f64,
    pub(crate) most_resident: f64,
    pub(crate) maps: f64,
}

impl Watched {
    /// CPU time of its threads.
    pub(crate) fn cpu(self) -> Result<Duration> {
        cpu_of(self.id)
    }

    /// The kernel's account of the programs that take samples.
    pub(crate) fn runs(self) -> Result<Runs> {
        Runs::of(&self.fdinfo()?)
    }

    /// What it holds: its own memory, and that of its maps in the kernel.
    pub(crate) fn memory(self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let bytes = |name| {
            let value = field(&status, name).and_then(|value| value.trim_end_matches(" kB").parse::<f64>().ok());
            value.map(|kibibytes| kibibytes * 1024.0).ok_or_else(|| format!("its status has no {name}"))
        };
        let is_map = |info: &&String| field(info, "map_type").is_some();
        let locked = |info: &String| field(info, "memlock")?.parse::<f64>().ok();
        let maps = self.fdinfo()?.iter().filter(is_map).filter_map(locked).sum();
        Ok(Memory { resident: bytes("VmRSS")?, most_resident: bytes("VmHWM")?, maps })
    }

    /// What the kernel says of each of its descriptors (proc_pid_fdinfo(5), `kernel/bpf/syscall.c`).
    fn fdinfo(self) -> Result<Vec<String>> {
        let folder = fs::read_dir(format!("/proc/{}/fdinfo", self.id))?;
        Ok(folder.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok()).collect())
    }
}

/// The value in the line of this name: a colon, white space, the value.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a field is found by its whole name.
    #[test]
    fn fields_are_found_by_their_names() {
        let info = "pos:\t0\nprog_type:\t7\nrun_time_ns:\t120\nrun_cnt:\t4\n";
        assert_eq!((field(info, "prog_type"), field(info, "run_cnt")), (Some("7"), Some("4")));
        assert_eq!((field(info, "run"), field(info, "type")), (None, None));
        assert_eq!(field("VmRSS:\t    2048 kB\n", "VmRSS"), Some("2048 kB"));
    }
}
