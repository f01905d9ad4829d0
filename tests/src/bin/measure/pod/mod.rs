//! The sidecar and what it profiles, for the rows `sidecar-*`: built once, started as a user would.
//!
//! In: flags of the agent, a Go program's arguments. Out: processes that run. Needs root and Go: [`Pod::lacks`] says what is missing.

mod agent;
mod inventory;
mod kernel;
mod peer;
mod steady;
mod ticks;
mod watched;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::{Running, build, run};

pub(crate) use agent::Agent;
pub(crate) use inventory::Inventory;
pub(crate) use kernel::BpfStats;
pub(crate) use peer::Peer;
pub(crate) use steady::{Busy, Steady};
pub(crate) use ticks::Ticks;
pub(crate) use watched::Watched;

use crate::lab::{Lab, workspace};
use crate::who::Who;

/// How long a program may run: many times what it needs.
const LIMIT: Duration = Duration::from_secs(900);
/// What Go's runtimes keep is left alone: no part of what these rows are about.
pub(crate) const NO_CAPTURES: &str = "--runtime-interval=off";

/// Benches of the sidecar, and how cargo is asked for them.
const BENCHES: [(&str, &str); 2] = [("captures", "--bench=captures"), ("symbols", "--bench=symbols")];

/// Programs that were built.
#[derive(Debug)]
pub(crate) struct Pod {
    agent: PathBuf,
    /// `sidecar/benches`.
    benches: [PathBuf; 2],
    /// Go programs, and what else is made for these rows.
    pub(crate) folder: PathBuf,
}

impl Pod {
    /// Builds the agent as it is given to others, and the Go programs, once.
    pub(crate) fn of(lab: &Lab) -> Result<&'static Self> {
        static BUILT: OnceLock<Pod> = OnceLock::new();
        if let Some(pod) = BUILT.get() {
            return Ok(pod);
        }
        // At once, so that what they share is built once.
        let options = ["--profile=dist", "--package=profiler-sidecar", "--bin=profiler-sidecar"];
        let built = build(workspace(), &[&options[..], &BENCHES.map(|(_, option)| option)].concat())?;
        let named = |name: &str| {
            let is_named =
                |path: &&PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
            built.iter().find(is_named).cloned().ok_or_else(|| format!("cargo built no {name}"))
        };
        let agent = named("profiler-sidecar")?;
        let benches = [named(BENCHES[0].0)?, named(BENCHES[1].0)?];
        let folder = lab.target().join("measure").join("go");
        fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        for program in ["steady", "busy", "many"] {
            go(&workspace().join("sidecar/tests/go").join(program), ".", &folder.join(program))?;
        }
        go(&workspace().join("examples/go/inventory"), ".", &folder.join("inventory"))?;
        Ok(BUILT.get_or_init(|| Self { agent, benches, folder }))
    }

    /// Why the rows cannot be measured here, if they cannot.
    pub(crate) fn lacks() -> Option<&'static str> {
        let goes = |command: &mut Command| run(command, LIMIT).is_ok_and(|finished| finished.status.success());
        match () {
            () if !goes(Command::new("go").arg("version")) => Some("Go is not installed"),
            () if !rustix::process::geteuid().is_root() => {
                Some("only root may read other processes, and load eBPF programs")
            }
            () => None,
        }
    }

    /// Why the agent samples no CPU time here, if it does not.
    pub(crate) fn lacks_ebpf(&self) -> Result<Option<&'static str>> {
        let doctor = run(Command::new(&self.agent).arg("doctor"), LIMIT)?;
        Ok((!doctor.status.success()).then_some("no eBPF: `profiler-sidecar doctor` says what is missing"))
    }

    /// The bench of captures, of a heap or of goroutines.
    pub(crate) fn captures(&self) -> &Path {
        &self.benches[0]
    }

    /// The bench of Go's tables.
    pub(crate) fn symbols(&self) -> &Path {
        &self.benches[1]
    }

    /// Starts `steady`.
    pub(crate) fn steady(&self, busy: Busy) -> Result<Steady> {
        Steady::start(Command::new(self.folder.join("steady")).args(busy.arguments()))
    }

    /// Starts a copy of `busy`, a program of many functions, four goroutines of which work all the time, on so many threads; each copy is another program to the
    /// agent.
    pub(crate) fn busy(&self, copy: &str, threads: u32) -> Result<Running> {
        let program = self.folder.join(format!("busy-{copy}"));
        // By a process: one that writes the file here would hold it open in what other threads start.
        run(Command::new("cp").arg(self.folder.join("busy")).arg(&program), LIMIT)?;
        let mut command = Command::new(program);
        command.args(["-", "100000"]).env("GOMAXPROCS", threads.to_string());
        let mut busy = Running::start(&mut command, LIMIT)?;
        busy.say("begin")?;
        Ok(busy)
    }

    /// Starts the service of the examples, asked by so many at once.
    pub(crate) fn inventory(&self, at_once: u64) -> Result<Inventory> {
        let mut command = Command::new(self.folder.join("inventory"));
        without_settings(&mut command);
        Inventory::start(&mut command, at_once)
    }

    /// Starts `many`: so many goroutines that wait, and 2^`log` stacks that allocate.
    pub(crate) fn many(&self, goroutines: u32, log: u32) -> Result<Running> {
        let mut command = Command::new(self.folder.join("many"));
        let mut many = Running::start(command.args([goroutines, log].map(|number| number.to_string())), LIMIT)?;
        match many.line()?.as_str() {
            "ready" => Ok(many),
            other => Err(format!("`many` said {other:?}").into()),
        }
    }

    /// Builds the OpenTelemetry eBPF profiler, and starts it; it sends to `endpoint`.
    pub(crate) fn peer(&self, endpoint: &str) -> Result<Peer> {
        let program = self.folder.join(Who::OpenTelemetry.program());
        go(&workspace().join("tests/go/otel_agent"), "go.opentelemetry.io/ebpf-profiler", &program)?;
        Peer::start(&program, endpoint)
    }

    /// Starts the agent with these flags; it sends to `endpoint` if there is one.
    pub(crate) fn agent(&self, flags: &[&str], endpoint: Option<&str>) -> Result<Agent> {
        let agent = self.start(Command::new(&self.agent), flags, endpoint, Ok)?;
        agent.until_it_samples()?;
        Ok(agent)
    }

    /// The same in a pid namespace of its own, in which there is nothing but the agent.
    pub(crate) fn agent_alone(&self, flags: &[&str]) -> Result<Agent> {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(&self.agent);
        let agent = self.start(command, flags, None, |outer| {
            let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
            Ok(children.trim().parse()?)
        })?;
        agent.until_it_samples()?;
        Ok(agent)
    }

    /// The same with `CAP_SYS_PTRACE` alone: it reads what Go's runtimes keep, and samples no CPU time.
    pub(crate) fn agent_without_ebpf(&self, flags: &[&str]) -> Result<Agent> {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all,+sys_ptrace", "--inh-caps=-all", "--no-new-privs"]).arg(&self.agent);
        self.start(command, flags, None, Ok)
    }

    fn start(
        &self,
        mut command: Command,
        flags: &[&str],
        endpoint: Option<&str>,
        agent_of: impl Fn(u32) -> Result<u32>,
    ) -> Result<Agent> {
        without_settings(&mut command);
        if let Some(endpoint) = endpoint {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        }
        command.args(["run", "--serve=127.0.0.1:0"]).args(flags);
        Agent::of(Running::start(&mut command, LIMIT)?, agent_of)
    }
}

/// Takes away what variables say of profiles and traces.
fn without_settings(command: &mut Command) {
    let ours = |name: &String| name.starts_with("OTEL_") || name.starts_with("PROFILER_");
    for name in std::env::vars().map(|(name, _)| name).filter(ours) {
        command.env_remove(name);
    }
}

/// Builds the program of a Go package, as the module in `source` has it, with the Go that is installed.
pub(crate) fn go(source: &Path, package: &str, program: &Path) -> Result<()> {
    let mut go = Command::new("go");
    go.current_dir(source).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0");
    let finished = run(go.arg("build").arg("-o").arg(program).arg(package), LIMIT)?;
    if !finished.status.success() {
        return Err(format!("go build in {}: {}", source.display(), finished.stderr).into());
    }
    Ok(())
}
