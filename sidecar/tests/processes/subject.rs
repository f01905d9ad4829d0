//! Processes of our own making.
//!
//! In: a program, arguments. Out: a child that has said that it is ready, and ends with this value.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A folder for this run of the tests, left behind in the target folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("processes-{}", std::process::id())).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Where the Go program is that was built already, for runs of these tests within another: in a pid namespace all have the same number, and
/// with it the same folder.
pub(crate) const BUILT_ALREADY: &str = "PROFILER_TEST_SUBJECT";

/// The Go program, built once.
pub(crate) fn go_program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(program) = std::env::var_os(BUILT_ALREADY) {
            return program.into();
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/subject");
        let program = folder("go").join("subject");
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(".").current_dir(source).env("GO111MODULE", "off");
        let built = go.status();
        assert!(built.expect("go is needed for this test").success());
        program
    })
}

/// A copy of a program under another name. A process of its own writes it: a file that this one has open for writing cannot be run, and a child that
/// another test starts meanwhile would hold it open for longer.
pub(crate) fn copy_of(program: impl AsRef<Path>, folder_name: &str, name: &str) -> PathBuf {
    let copy = folder(folder_name).join(name);
    let copied = Command::new("cp").arg("--").arg(program.as_ref()).arg(&copy).status();
    assert!(copied.unwrap().success(), "{copy:?}");
    copy
}

/// Starts a program, which may just have been copied: a child that another test started meanwhile has the copy open for writing until it becomes
/// its own program.
fn spawned(command: &mut Command) -> Child {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            started => return started.unwrap(),
        }
    }
}

/// A running child.
pub(crate) struct Subject {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// What it said behind `ready`.
    pub(crate) said: String,
}

impl Subject {
    /// Starts a program that says `ready`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = spawned(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut subject = Self { child, output, said: String::new() };
        subject.said = subject.line().strip_prefix("ready").expect("ready").trim().to_owned();
        subject
    }

    /// Starts the Go program with these arguments.
    pub(crate) fn go(arguments: &[&str]) -> Self {
        Self::start(Command::new(go_program()).args(arguments))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Says a line and hears that it is done.
    pub(crate) fn ask(&mut self, line: &str) {
        self.tell(line);
        assert_eq!(self.line(), "done\n");
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends it and waits until its number is free.
    pub(crate) fn end(mut self) {
        self.kill();
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{what} did not come in a minute");
        std::thread::yield_now();
    }
}
