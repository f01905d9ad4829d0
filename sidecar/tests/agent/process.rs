//! Processes under test: agents, Go programs. All end with the test.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::DEADLINE;

/// The folder of what was built before, for a machine without compilers (`.ci/machine`): the agent, and programs of Go, for the processor that
/// `GOARCH` and `PROFILER_TEST_CC` say. What is not in it is built into it, but for the agent.
pub(crate) fn built_before() -> Option<PathBuf> {
    std::env::var_os("PROFILER_TEST_PROGRAMS").map(PathBuf::from)
}

/// The binary with these arguments, in an environment that sets nothing else.
pub(crate) fn agent(arguments: &[&str]) -> Command {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_profiler-sidecar"));
    let mut command = Command::new(built_before().map_or_else(built, |folder| folder.join("profiler-sidecar")));
    command.args(arguments);
    quiet(&mut command);
    command
}

/// Sets what all agents here are set to: any free port, no budget that a debug build on a busy machine goes beyond.
pub(crate) fn quiet(command: &mut Command) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_") || name.starts_with("PROFILER_")) {
        command.env_remove(name);
    }
    command.env("PROFILER_SERVE", "127.0.0.1:0");
    command.env("PROFILER_CPU_PERCENT", "1000").env("PROFILER_MEMORY", "4GiB");
}

/// What a command that succeeds says to a pipe.
pub(crate) fn said(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// A process whose lines of standard error, or output, are kept.
pub(crate) struct Running {
    child: Child,
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
}

impl Running {
    pub(crate) fn agent(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        Self::reading(child, stderr)
    }

    /// Any other program, whose lines of standard output are kept.
    pub(crate) fn program(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Self::reading(child, stdout)
    }

    fn reading(child: Child, output: impl std::io::Read + Send + 'static) -> Self {
        let lines = Arc::<(Mutex<Vec<String>>, Condvar)>::default();
        let sink = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sink.0.lock().unwrap().push(line);
                sink.1.notify_all();
            }
        });
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input, and waits for a line that begins with `answer`.
    pub(crate) fn ask(&mut self, line: &str, answer: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.address_after(answer);
    }

    /// All lines until now.
    pub(crate) fn log(&self) -> String {
        self.lines.0.lock().unwrap().join("\n")
    }

    /// The word behind `before` in the first line that has it.
    pub(crate) fn address_after(&self, before: &str) -> String {
        let found = |lines: &Vec<String>| {
            let rest = lines.iter().find_map(|line| Some(line.split_once(before)?.1.to_owned()))?;
            Some(rest.split([' ', ',']).next().unwrap().to_owned())
        };
        let lines = self.lines.0.lock().unwrap();
        let (lines, _) = self.lines.1.wait_timeout_while(lines, DEADLINE, |lines| found(lines).is_none()).unwrap();
        found(&lines).unwrap_or_else(|| panic!("no line with {before:?}: {lines:#?}"))
    }

    /// Ends it by SIGTERM; its exit code.
    pub(crate) fn end(self) -> Option<i32> {
        self.signal("-TERM");
        self.ended()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it has ended; its exit code.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What programs are built by that need no other version.
pub(crate) const GO: &str = "go1.22.12";

/// Builds `tests/go/NAME` and starts it; it is at work when this returns.
pub(crate) fn go_program(name: &str) -> Running {
    go_program_with(name, &[])
}

/// The same, with arguments.
pub(crate) fn go_program_with(name: &str, arguments: &[&str]) -> Running {
    go_program_by(GO, name, arguments)
}

/// The same, built by this version.
pub(crate) fn go_program_by(version: &str, name: &str, arguments: &[&str]) -> Running {
    started(&build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(name), version), arguments)
}

/// Builds `examples/go/NAME`, by a Go that its module allows, and starts it in the same way.
pub(crate) fn go_example(name: &str, arguments: &[&str]) -> Running {
    started(&build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/go").join(name), "go1.24.13"), arguments)
}

/// The program, built once; as it is, where it was before.
pub(crate) fn build(source: &Path, toolchain: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let name = source.file_name().unwrap();
    let before = built_before().map(|folder| folder.join(name));
    let is_before = before.is_some();
    let program = before.unwrap_or_else(|| {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("agent").join(format!("by-{toolchain}")).join(name)
    });
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    // Tests run beside each other: one builds, the others wait. Go is not asked again, for it gives a program that is as it should be a new time, by which agents
    // know it, too.
    let lock = File::create(program.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let built = || BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built().contains(&program) || (is_before && program.exists()) {
        return program;
    }
    let mut go = Command::new("go");
    go.current_dir(source).env("GOTOOLCHAIN", toolchain).env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0");
    let done = go.arg("build").arg("-o").arg(&program).arg(".").output().expect("go: run `make setup`");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    built().insert(program.clone());
    program
}

fn started(program: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(program);
    quiet(command.args(arguments));
    let running = Running::program(&mut command);
    running.address_after("ready");
    running
}
