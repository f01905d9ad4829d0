//! The sidecar and what it profiles, for the rows `sidecar-*`: built once, started as a user would, asked for its figures.
//!
//! In: flags of the agent, a Go program's arguments. Out: what `/stats`, procfs and the kernel's own account of eBPF programs
//! (`bpf_stats`) say. Needs root, as the agent does.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use profiler_tests::process::{Running, build, run};
use profiler_tests::usage::cpu_of;
use profiler_tests::{Result, fetch};
use serde_json::Value;

use crate::lab::{Lab, workspace};

/// How long a program may run: many times what it needs.
const LIMIT: Duration = Duration::from_secs(900);
/// What turns on the kernel's account of run times (`Documentation/admin-guide/sysctl/kernel.rst`).
const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// `BPF_PROG_TYPE_PERF_EVENT`, as fdinfo has it.
const PERF_EVENT: &str = "7";

/// Programs that were built.
#[derive(Debug)]
pub(crate) struct Pod {
    agent: PathBuf,
    /// Go programs, and what else is made for these rows.
    pub(crate) folder: PathBuf,
}

impl Pod {
    /// Builds the agent with `--release` and the Go programs, once.
    pub(crate) fn of(lab: &Lab) -> Result<&'static Self> {
        static BUILT: OnceLock<Pod> = OnceLock::new();
        if let Some(pod) = BUILT.get() {
            return Ok(pod);
        }
        let options = ["--release", "--package=profiler-sidecar", "--bin=profiler-sidecar"];
        let agent = build(workspace(), &options)?.pop().ok_or("cargo built no profiler-sidecar")?;
        let folder = lab.target().join("measure").join("go");
        fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        for program in ["steady", "busy"] {
            go(&workspace().join("sidecar/tests/go").join(program), &folder.join(program))?;
        }
        Ok(BUILT.get_or_init(|| Self { agent, folder }))
    }

    /// Starts `steady`: goroutines that are busy under labels at the bottom of stacks of so many frames.
    pub(crate) fn steady(&self, goroutines: u32, frames: u32, labels: u32) -> Result<Steady> {
        let mut command = Command::new(self.folder.join("steady"));
        Steady::start(command.args([goroutines, frames, labels].map(|number| number.to_string())))
    }

    /// Starts a copy of `busy`, a program of many functions, for so many seconds of CPU time; each copy is another program to the agent.
    pub(crate) fn busy(&self, copy: &str, seconds: u32) -> Result<Running> {
        let program = self.folder.join(format!("busy-{copy}"));
        // By a process: one that writes the file here would hold it open in what other threads start.
        run(Command::new("cp").arg(self.folder.join("busy")).arg(&program), LIMIT)?;
        let mut busy = Running::start(Command::new(program).args(["-", &seconds.to_string()]), LIMIT)?;
        busy.say("begin")?;
        Ok(busy)
    }

    /// Starts the agent with these flags; it sends to `endpoint` if there is one.
    pub(crate) fn agent(&self, flags: &[&str], endpoint: Option<&str>) -> Result<Agent> {
        self.within(Command::new(&self.agent), flags, endpoint, Ok)
    }

    /// The same in a pid namespace of its own, in which there is nothing but the agent.
    pub(crate) fn agent_alone(&self, flags: &[&str]) -> Result<Agent> {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(&self.agent);
        self.within(command, flags, None, |outer| {
            let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
            Ok(children.trim().parse()?)
        })
    }

    fn within(
        &self,
        mut command: Command,
        flags: &[&str],
        endpoint: Option<&str>,
        agent_of: impl Fn(u32) -> Result<u32>,
    ) -> Result<Agent> {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_") || name.starts_with("PROFILER_"))
        {
            command.env_remove(name);
        }
        if let Some(endpoint) = endpoint {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        }
        // What Go's runtimes keep is read each minute, and is no part of what these rows are about.
        command.args(["run", "--serve=127.0.0.1:0", "--runtime-interval=off"]).args(flags);
        let mut running = Running::start(&mut command, LIMIT)?;
        let mut page = None;
        loop {
            let line = running.line()?;
            match line.split_once(' ') {
                Some(("profiles", url)) => page = url.trim_start_matches("http://").trim_end_matches('/').parse().ok(),
                None if line == "ready" => break,
                _ => {}
            }
        }
        let id = agent_of(running.id())?;
        let agent = Agent { id, page: page.ok_or("the agent did not say where its page is")?, _running: running };
        // It is said once the thread that samples has begun.
        for _ in 0..50 {
            if agent.stats()?["engine"]["name"] == "ebpf" {
                return Ok(agent);
            }
            sleep(Duration::from_millis(100));
        }
        Err("the agent does not sample: run this as root; `profiler-sidecar doctor` says what is missing".into())
    }
}

/// Builds the Go program in `source`, with the newest Go that is installed.
pub(crate) fn go(source: &Path, program: &Path) -> Result<()> {
    let mut go = Command::new("go");
    go.current_dir(source).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0");
    let finished = run(go.arg("build").arg("-o").arg(program).arg("."), LIMIT)?;
    if !finished.status.success() {
        return Err(format!("go build in {}: {}", source.display(), finished.stderr).into());
    }
    Ok(())
}

/// The Go program `steady` at work.
#[derive(Debug)]
pub(crate) struct Steady {
    pub(crate) running: Running,
}

/// What it has done since it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) units: f64,
    pub(crate) cpu_seconds: f64,
}

impl Steady {
    fn start(command: &mut Command) -> Result<Self> {
        let mut running = Running::start(command, LIMIT)?;
        match running.line()?.as_str() {
            "ready" => Ok(Self { running }),
            other => Err(format!("`steady` said {other:?}").into()),
        }
    }

    pub(crate) fn done(&mut self) -> Result<Done> {
        self.running.say("how much?")?;
        let line = self.running.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["work", units, "cpu", nanos] => {
                Ok(Done { units: units.parse()?, cpu_seconds: nanos.parse::<f64>()? / 1e9 })
            }
            _ => Err(format!("`steady` said {line:?}").into()),
        }
    }
}

/// The agent at work.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Its process, as it is numbered here.
    pub(crate) id: u32,
    page: SocketAddr,
    _running: Running,
}

/// How often the kernel side ran, and for how long in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    pub(crate) count: f64,
    pub(crate) nanos: f64,
}

/// Bytes that the agent holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: f64,
    pub(crate) most_resident: f64,
    pub(crate) maps: f64,
}

impl Agent {
    pub(crate) fn stats(&self) -> Result<Value> {
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

    /// The kernel's account of the program that takes samples.
    pub(crate) fn runs(&self) -> Result<Runs> {
        let program = self.fdinfo()?.into_iter().find(|info| field(info, "prog_type") == Some(PERF_EVENT));
        let program = program.ok_or("the agent has no eBPF program of perf events")?;
        let figure = |name| field(&program, name).and_then(|value| value.parse().ok());
        let missing = || "the kernel does not say run times: bpf_stats_enabled";
        Ok(Runs { count: figure("run_cnt").ok_or_else(missing)?, nanos: figure("run_time_ns").ok_or_else(missing)? })
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

/// The value in the line `name:	value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// The kernel's account of eBPF programs, while this lives; as it was, afterwards.
#[derive(Debug)]
pub(crate) struct BpfStats(String);

impl BpfStats {
    pub(crate) fn on() -> Result<Self> {
        let before = fs::read_to_string(BPF_STATS)?;
        fs::write(BPF_STATS, "1").map_err(|error| format!("{BPF_STATS}: {error}: run this as root"))?;
        Ok(Self(before))
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _restored = fs::write(BPF_STATS, self.0.trim());
    }
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
