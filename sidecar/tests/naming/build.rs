//! Programs of the tests, built where the build has its temporary files, and run.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use profiler_sidecar::target::Process;

/// Tests of one process build one after the other: the machine has few cores, and Go uses them all.
static BUILDING: Mutex<()> = Mutex::new(());

/// The versions of Go that are tried: the oldest that the proxy has and the newest, or all.
pub(crate) fn versions() -> Vec<&'static str> {
    let all = std::env::var("PROFILER_TEST_GO").is_ok_and(|which| which == "all");
    let more = ["go1.22.12", "go1.23.12", "go1.24.13", "go1.25.11", "go1.26.8"];
    ["go1.21.13", "go1.27.0"].into_iter().chain(more.into_iter().filter(|_| all)).collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// A path for what a test makes.
pub(crate) fn place(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("naming");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Builds `tests/go/subject` by a version of Go, with these arguments.
pub(crate) fn go(version: &str, arguments: &[&str]) -> PathBuf {
    go_program("subject", version, arguments)
}

/// Builds a program of `tests/go`.
pub(crate) fn go_program(name: &str, version: &str, arguments: &[&str]) -> PathBuf {
    go_program_with(name, version, arguments, &[])
}

/// The same, with these variables.
pub(crate) fn go_program_with(name: &str, version: &str, arguments: &[&str], variables: &[(&str, &str)]) -> PathBuf {
    let _one = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let values: String = variables.iter().map(|(_, value)| *value).collect();
    let program = place(&format!("{name}-{version}{}", (arguments.concat() + &values).replace([' ', '/'], "_")));
    let mut go = Command::new("go");
    go.envs(variables.iter().copied());
    go.current_dir(source("go").join(name)).env("GOTOOLCHAIN", version).env("GOFLAGS", "-mod=mod -buildvcs=false");
    run(go.arg("build").args(arguments).arg("-o").arg(&program).arg("."));
    program
}

/// Builds a C or C++ file of this folder.
pub(crate) fn c(name: &str, arguments: &[&str]) -> PathBuf {
    let _one = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let program =
        place(&format!("{}{}", name.replace('.', "-"), arguments.concat().replace(['"', '=', ',', '/'], "_")));
    let compiler = if name.ends_with(".cc") { "c++" } else { "cc" };
    // Another test may run what stands there, or copy it.
    let unfinished = program.with_extension("unfinished");
    run(Command::new(compiler).args(arguments).arg(source("naming").join(name)).arg("-o").arg(&unfinished).arg("-ldl"));
    std::fs::rename(unfinished, &program).unwrap();
    program
}

/// Builds a library whose one function has this name; `work` points to it.
pub(crate) fn library(name: &str) -> PathBuf {
    c("library.c", &["-shared", "-fPIC", &format!("-DNAME={name}")])
}

/// Runs a command to its end; gives what it wrote.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: run `make setup`"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program that waits for the end of its input; ended when dropped.
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next line that it writes.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }

    /// The next line as a hexadecimal number.
    pub(crate) fn address(&mut self) -> u64 {
        let line = self.line().unwrap();
        u64::from_str_radix(line.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("{line}"))
    }

    /// Writes to its input.
    pub(crate) fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn process(&self) -> Process {
        Process::find(self.child.id()).unwrap()
    }

    /// Lets it go on; then what it writes up to its end.
    pub(crate) fn go_on(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
