//! The sidecar beside a Go program, each in a process of its own: what a pod has.
//!
//! In: what the sidecar is told beside whom it is to read. Out: both at work. The program is `examples/go/troubles`, built by the installed Go; the sidecar is
//! built by the cargo that runs the tests. Needs root, by which the sidecar may read other processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::process::{Running, build, run};

/// How long either may run: many times what a test needs.
const LIMIT: Duration = Duration::from_secs(900);

/// Both, until this is dropped.
#[derive(Debug)]
pub struct Pod {
    /// The Go program's process.
    pub pid: u32,
    /// The sidecar's page.
    pub page: SocketAddr,
    _programs: Vec<Troubles>,
    _sidecar: Running,
}

/// The program, at work, until this is dropped.
#[derive(Debug)]
struct Troubles {
    pid: u32,
    _running: Running,
    /// Where it is.
    folder: PathBuf,
}

impl Drop for Troubles {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl Pod {
    /// Whether the sidecar may read here what others have in their memory.
    #[must_use]
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Starts both; the sidecar captures the program's runtime each second, and has these variables.
    ///
    /// # Errors
    /// When one of them cannot be built, or does not come up.
    pub fn start(variables: &[(&str, &str)]) -> Result<Self> {
        Self::of(vec![Troubles::start("troubles", &[])?], variables)
    }

    /// The same with another program beside it, the same but for these variables; its process.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_beside(of_other: &[(&str, &str)]) -> Result<(Self, u32)> {
        let (program, other) = (Troubles::start("troubles", &[])?, Troubles::start("others", of_other)?);
        let pid = other.pid;
        Ok((Self::of(vec![program, other], &[])?, pid))
    }

    fn of(programs: Vec<Troubles>, variables: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(sidecar()?);
        let of_others = |name: &str| name.starts_with("OTEL_") || name.starts_with("PROFILER_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_others)) {
            command.env_remove(name);
        }
        // No bounds that a debug build on a busy machine goes beyond.
        command.env("PROFILER_CPU_PERCENT", "1000").env("PROFILER_MEMORY", "4GiB").envs(variables.iter().copied());
        command.args(["run", "--runtime-interval", "1s", "--serve", "127.0.0.1:0", "--until-eof"]);
        for Troubles { pid, .. } in &programs {
            command.args(["--pid", &pid.to_string()]);
        }
        let mut sidecar = Running::start(&mut command, LIMIT)?;
        let line = sidecar.line()?;
        let page = line.strip_prefix("profiles http://").ok_or_else(|| format!("it says {line:?}"))?;
        let page = page.trim_end_matches('/').parse()?;
        let pid = programs.first().map_or(0, |program| program.pid);
        Ok(Self { pid, page, _programs: programs, _sidecar: sidecar })
    }
}

/// The sidecar as its source is now: cargo builds what is older. All packages, and an example (`as_tests.rs`): so it stands on what the tests of the workspace
/// stand on, which is there.
fn sidecar() -> Result<PathBuf> {
    let built = build(&workspace(), &["--workspace", "--bin=profiler-sidecar", "--example=as_tests"])?;
    built.into_iter().find(|path| path.ends_with("profiler-sidecar")).ok_or_else(|| "cargo built no sidecar".into())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

impl Troubles {
    /// Builds it in a folder of this name, and starts it with these variables.
    fn start(name: &str, variables: &[(&str, &str)]) -> Result<Self> {
        let own = format!("{name}-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(own.replace(['(', ')'], ""));
        let program = folder.join("troubles");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(".").current_dir(workspace().join("examples/go/troubles"));
        let built = run(go.env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0"), LIMIT)?;
        if !built.status.success() {
            return Err(format!("the Go program cannot be built (run `make setup`): {}", built.stderr).into());
        }
        let mut running =
            Running::start(Command::new(&program).arg("-until-eof").envs(variables.iter().copied()), LIMIT)?;
        let line = running.line()?;
        let pid = line.strip_prefix("ready ").ok_or_else(|| format!("it says {line:?}"))?.parse()?;
        Ok(Self { pid, _running: running, folder })
    }
}
