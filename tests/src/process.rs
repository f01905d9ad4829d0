//! Child processes with an end: started, listened to line by line, and ended by their own id when their time is over.
//!
//! In: a command and how long it may take. Out: its lines, its last line as JSON, its exit. Runs on the caller's thread
//! beside one that reads the child's output. Only processes that were started here are ever signalled: a child has a process
//! group of its own, with which those end that it leaves behind.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;

use crate::{Result, signal};

/// A child process that runs, until it ends, is waited for too long, or this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Once it was waited for: its number may be somebody else's from then on.
    status: Option<ExitStatus>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    name: String,
    deadline: Instant,
}

/// How a child process ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// The lines of its standard output that nobody had read yet.
    pub lines: Vec<String>,
    /// Its standard error.
    pub stderr: String,
}

impl Running {
    /// Starts `command`, which must end within `limit`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command, limit: Duration) -> Result<Self> {
        let name = format!("{command:?}");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        signal::end_with_the_caller(piped.process_group(0));
        let mut child = piped.spawn().map_err(|error| format!("{name}: {error}"))?;
        let stdin = child.stdin.take();
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(stdout).lines().map_while(std::io::Result::ok);
                lines.map(|line| sender.send(line)).take_while(std::result::Result::is_ok).for_each(drop);
            });
        }
        let errors = child.stderr.take().map(|mut stderr| std::thread::spawn(move || text_of(&mut stderr)));
        Ok(Self { child, status: None, stdin, lines, errors, name, deadline: Instant::now() + limit })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its standard output.
    ///
    /// # Errors
    /// When it ends, or its time does, before there is one.
    pub fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.ended("said nothing more in its time")),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended("ended without the line that was waited for")),
        }
    }

    /// The next line of its standard output, as JSON.
    ///
    /// # Errors
    /// When there is none, or it is not JSON.
    pub fn json(&mut self) -> Result<Value> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| format!("{}: {error} in the line {line:?}", self.name).into())
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// When it does not read any more.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or("standard input is closed")?;
        writeln!(stdin, "{line}")?;
        Ok(stdin.flush()?)
    }

    /// Whether it has ended. Its number stays its own: it is not waited for yet.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some())
    }

    /// Closes its standard input and waits for its end. What it started and left behind is killed.
    ///
    /// # Errors
    /// When it does not end in its time; it is killed then.
    pub fn finish(mut self) -> Result<Finished> {
        drop(self.stdin.take());
        while !self.has_ended()? {
            if Instant::now() >= self.deadline {
                return Err(self.ended("did not end in its time"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = self.kill()?;
        let lines = self.lines.iter().collect();
        Ok(Finished { status, lines, stderr: self.stderr() })
    }

    /// Kills it, and says why and what it had to say about it.
    fn ended(&mut self, why: &str) -> crate::Error {
        // It ends, and what it wrote is all that there is.
        let _status = self.kill();
        let stderr = self.stderr();
        format!("{} {why}; its standard error:\n{stderr}", self.name).into()
    }

    /// Kills it and all of its group, if they still run: whoever it forked holds its output open, which would be read for ever.
    fn kill(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        kill_process_group(Pid::from_child(&self.child), Signal::KILL)?;
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    fn stderr(&mut self) -> String {
        self.errors.take().and_then(|reader| reader.join().ok()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _status = self.kill();
    }
}

impl Finished {
    /// The last line of its standard output as JSON, if it ended well.
    ///
    /// # Errors
    /// When it did not exit with 0, or its last line is not JSON.
    pub fn json(&self) -> Result<Value> {
        let line = self.lines.last().ok_or_else(|| self.complaint("it said nothing"))?;
        match self.status.success() {
            true => serde_json::from_str(line).map_err(|error| self.complaint(&format!("{error} in {line:?}")).into()),
            false => Err(self.complaint(line).into()),
        }
    }

    fn complaint(&self, what: &str) -> String {
        format!("{}: {what}; its standard error:\n{}", self.status, self.stderr)
    }
}

/// Runs `command` to its end within `limit`.
///
/// # Errors
/// When it cannot be started or does not end in time.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    Running::start(command, limit)?.finish()
}

/// Builds with cargo, in `directory`'s workspace and with the caller's own cargo and target directory; `arguments` say what.
/// Says where the executables and the libraries for other languages are.
///
/// # Errors
/// When the build fails; its messages are part of the error.
pub fn build<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> Result<Vec<PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("build").args(arguments).arg("--message-format=json-render-diagnostics").current_dir(directory);
    // What cargo tells a test of its own package: build scripts that look at it (`ring`'s) would run again, here and at the next
    // build from outside, and everything above them be built again.
    let of_package = |name: &str| ["CARGO_MANIFEST_", "CARGO_PKG_", "OUT_DIR"].iter().any(|own| name.starts_with(own));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        command.env_remove(name);
    }
    let finished = run(&mut command, Duration::from_secs(1800))?;
    if !finished.status.success() {
        return Err(finished.complaint("the build failed").into());
    }
    let messages = finished.lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| artifact(&message)).collect())
}

fn artifact(message: &Value) -> Option<PathBuf> {
    let mut files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
    message["executable"].as_str().or_else(|| files.find(|file| file.ends_with(".so"))).map(PathBuf::from)
}

fn text_of(stream: &mut dyn Read) -> String {
    let mut bytes = Vec::new();
    // What came before an error is worth showing too.
    let _outcome = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Whether there is such a process, and it has not ended.
    fn is_running(id: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    fn shell(script: &str, limit: Duration) -> Running {
        Running::start(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    /// Check that lines come as they are written, that what is said arrives, and that the last line is read as JSON.
    #[test]
    fn a_child_is_heard_and_spoken_to() {
        let mut child = shell(r#"echo ready; read word; echo "{\"word\": \"$word\"}""#, Duration::from_secs(20));
        assert_eq!(child.line().unwrap(), "ready");
        child.say("hello").unwrap();
        assert_eq!(child.finish().unwrap().json().unwrap()["word"], "hello");
    }

    /// Check that a child that does not end is killed when its time is over, and that its own words are in the error.
    #[test]
    fn a_child_without_end_is_killed() {
        let child = shell("echo stuck >&2; exec sleep 600", Duration::from_secs(3));
        let id = child.id();
        let error = child.finish().unwrap_err().to_string();
        assert!(error.contains("did not end in its time") && error.contains("stuck"), "{error}");
        assert!(!is_running(id), "process {id} still runs");
    }

    /// Check that what a child started is killed with it, when its time is over and when it ends before: that holds the child's
    /// output open, and would be read to its end.
    #[test]
    fn what_a_child_leaves_behind_is_killed() {
        for (script, limit, code) in [("wait", 3, None), ("exit 4", 60, Some(4))] {
            let start = Instant::now();
            let mut child = shell(&format!("sleep 600 & echo $!; {script}"), Duration::from_secs(limit));
            let left = child.line().unwrap().parse().unwrap();
            assert!(is_running(left), "process {left} does not run");
            assert_eq!(child.finish().ok().and_then(|finished| finished.status.code()), code);
            assert!(start.elapsed() < Duration::from_secs(300), "it was waited for");
            while is_running(left) {
                assert!(start.elapsed() < Duration::from_secs(300), "process {left} still runs");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Check that a child ends with the thread that started it: Ctrl-C does not reach its group.
    #[test]
    fn a_child_ends_with_who_started_it() {
        let left = std::thread::spawn(|| std::mem::ManuallyDrop::new(shell("exec sleep 600", Duration::from_secs(60))));
        let mut left = left.join().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !left.has_ended().unwrap() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let has_ended = left.has_ended().unwrap();
        assert_eq!(left.kill().unwrap().signal(), Some(9));
        assert!(has_ended, "it goes on");
    }

    /// Check that a child that fails is not taken for one that answered.
    #[test]
    fn a_failure_is_no_answer() {
        let finished = shell("echo '{}'; exit 3", Duration::from_secs(20)).finish().unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert!(finished.json().unwrap_err().to_string().contains("exit status: 3"));
    }
}
