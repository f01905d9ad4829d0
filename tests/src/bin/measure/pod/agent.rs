//! The agent at work, and what is known of it: `/stats`, and what procfs says of its memory, CPU time and descriptors.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use profiler_tests::process::Running;
use profiler_tests::usage::cpu_of;
use profiler_tests::{Result, fetch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::kernel::Runs;

/// The agent at work.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Its process, as it is numbered here.
    id: u32,
    page: SocketAddr,
    _running: Running,
}

/// Bytes that the agent holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: f64,
    pub(crate) most_resident: f64,
    pub(crate) maps: f64,
}

impl Agent {
    /// Waits until it is ready. `agent_of` says which process it is, of the one that was started.
    pub(super) fn of(mut running: Running, agent_of: impl Fn(u32) -> Result<u32>) -> Result<Self> {
        let mut page = None;
        loop {
            let line = running.line()?;
            match line.split_once(' ') {
                Some(("profiles", url)) => page = url.trim_start_matches("http://").trim_end_matches('/').parse().ok(),
                None if line == "ready" => break,
                _ => {}
            }
        }
        let page = page.ok_or("the agent did not say where its page is")?;
        Ok(Self { id: agent_of(running.id())?, page, _running: running })
    }

    /// It is said once the thread that samples has begun.
    pub(super) fn until_it_samples(&self) -> Result<()> {
        for _ in 0..100 {
            if self.stats()?["engine"]["name"] == "ebpf" {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("the agent does not sample: `profiler-sidecar doctor` says what is missing".into())
    }

    fn stats(&self) -> Result<Value> {
        fetch::json(self.page, "/stats")
    }

    /// A figure of `/stats`, by its JSON pointer.
    pub(crate) fn figure(&self, pointer: &str) -> Result<f64> {
        let stats = self.stats()?;
        stats.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| format!("/stats has no {pointer}").into())
    }

    /// CPU time of its threads.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.id)
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn pause(&self, pause: bool) -> Result<()> {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw).ok_or("the agent has no number")?;
        Ok(kill_process(id, if pause { Signal::STOP } else { Signal::CONT })?)
    }

    /// The kernel's account of the program that takes samples.
    pub(crate) fn runs(&self) -> Result<Runs> {
        Runs::of(&self.fdinfo()?)
    }

    /// What it holds: its own memory, and that of its maps in the kernel.
    pub(crate) fn memory(&self) -> Result<Memory> {
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
    fn fdinfo(&self) -> Result<Vec<String>> {
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
