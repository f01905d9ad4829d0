//! Programs to sample, built here, or before for a machine without compilers.
//!
//! `PROFILER_TEST_PROGRAMS` is their folder then: what is in it is taken as it is, what is not is built into it. `PROFILER_TEST_CC` and `GOARCH` say for which
//! processor.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Builds what tests start in a machine without compilers, where a folder is given.
#[test]
fn what_another_machine_needs_is_built() {
    if !folder().1 {
        return;
    }
    for (depth, milliseconds) in [(10, 200), (10, 500), (10, 60_000), (10, 120_000), (450, 300), (600, 300)] {
        deep(depth, milliseconds);
    }
    context(300);
    uring(300);
    // Another processor has no such registers.
    #[cfg(target_arch = "x86_64")]
    if std::env::var_os("GOARCH").is_none() {
        crooked(300);
    }
    for version in VERSIONS {
        labelled(version, Form::Normal);
    }
}

/// Of Go.
pub(crate) const VERSIONS: [&str; 7] =
    ["go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.11", "go1.26.8", "go1.27.0"];

/// Where programs are, and whether they are kept.
fn folder() -> (PathBuf, bool) {
    let given = std::env::var_os("PROFILER_TEST_PROGRAMS");
    let keep = given.is_some();
    let folder = given.map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel"), PathBuf::from);
    std::fs::create_dir_all(&folder).unwrap();
    (folder, keep)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: run `make setup`"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `deep.c`, with so many calls, busy for so long.
pub(crate) fn deep(depth: u32, milliseconds: u32) -> Command {
    let own = ["-fno-omit-frame-pointer", "-fno-stack-protector", "-fcf-protection=none", "-static", "-nostdlib"];
    let flags = own.map(str::to_owned).into_iter().chain([format!("-DDEPTH={depth}")]);
    c("deep.c", &format!("deep-{depth}-{milliseconds}"), milliseconds, flags)
}

/// `context.c`, busy for so long.
pub(crate) fn context(milliseconds: u32) -> Command {
    c("context.c", &format!("context-{milliseconds}"), milliseconds, [])
}

/// `uring.c`, busy for so long.
pub(crate) fn uring(milliseconds: u32) -> Command {
    c("uring.c", &format!("uring-{milliseconds}"), milliseconds, [])
}

/// `crooked.c`, busy for so long.
#[cfg(target_arch = "x86_64")]
pub(crate) fn crooked(milliseconds: u32) -> Command {
    c("crooked.c", &format!("crooked-{milliseconds}"), milliseconds, [])
}

/// Compiles into a file of its own, then moves it: other tests may run the one that is there.
fn c(source: &str, name: &str, milliseconds: u32, flags: impl IntoIterator<Item = String>) -> Command {
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel").join(source);
    let (folder, keep) = folder();
    let (program, built) = (folder.join(name), BUILT.fetch_add(1, Ordering::Relaxed));
    if keep && program.exists() {
        return Command::new(program);
    }
    let new = folder.join(format!("{name}.{}.{built}", std::process::id()));
    let mut cc = Command::new(std::env::var_os("PROFILER_TEST_CC").unwrap_or_else(|| "cc".into()));
    cc.arg("-O1").arg(format!("-DMILLISECONDS={milliseconds}")).args(flags);
    run(cc.arg("-o").arg(&new).arg(source));
    std::fs::rename(&new, &program).unwrap();
    Command::new(program)
}

/// How a Go program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Normal,
    Pie,
    Cgo,
    CgoPie,
}

/// `tests/go/labelled`, built by `version`.
pub(crate) fn labelled(version: &str, form: Form) -> PathBuf {
    let (folder, keep) = folder();
    let program = folder.join(format!("labelled-{version}-{form:?}"));
    if keep && program.exists() {
        return program;
    }
    let cgo = matches!(form, Form::Cgo | Form::CgoPie);
    let mut go = Command::new("go");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/labelled"));
    go.env("GOTOOLCHAIN", version)
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .env("CGO_ENABLED", if cgo { "1" } else { "0" });
    go.arg("build").arg("-o").arg(&program);
    if cgo {
        go.args(["-tags", "withc"]);
    }
    if matches!(form, Form::Pie | Form::CgoPie) {
        go.arg("-buildmode=pie");
    }
    run(go.arg("."));
    program
}

/// A program that is talked to by lines. Its own are read by a thread, so that the ring can be drained meanwhile.
pub(crate) struct Talk {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Talk {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let (send, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, input, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line; waits for it, while nobody drains the ring.
    pub(crate) fn line(&self) -> String {
        self.lines.recv().unwrap_or_default()
    }

    /// The next line if there is one; an empty one at the end.
    pub(crate) fn try_line(&self) -> Option<String> {
        match self.lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Disconnected) => Some(String::new()),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// A line to it.
    pub(crate) fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _gone = (self.child.kill(), self.child.wait());
    }
}
