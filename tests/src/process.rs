//! Child processes with an end: started, listened to line by line, and ended by their own id when their time is over.
//!
//! In: a command and how long it may take. Out: its lines, its last line as JSON, its exit. Runs on the caller's thread
//! beside one that reads the child's output. Only processes that were started here are ever signalled.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;

/// A child process that runs, until it ends, is waited for too long, or this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
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
        Ok(Self { child, stdin, lines, errors, name, deadline: Instant::now() + limit })
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

    /// Closes its standard input and waits for its end.
    ///
    /// # Errors
    /// When it does not end in its time; it is killed then.
    pub fn finish(mut self) -> Result<Finished> {
        drop(self.stdin.take());
        while self.child.try_wait()?.is_none() {
            if Instant::now() >= self.deadline {
                return Err(self.ended("did not end in its time"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.wait()?;
        let lines = self.lines.iter().collect();
        Ok(Finished { status, lines, stderr: self.stderr() })
    }

    /// Kills it, and says why and what it had to say about it.
    fn ended(&mut self, why: &str) -> crate::Error {
        self.kill();
        let stderr = self.stderr();
        format!("{} {why}; its standard error:\n{stderr}", self.name).into()
    }

    fn kill(&mut self) {
        // Fails only when the child has ended already: its id is kept for us until it is waited for.
        if self.child.kill().is_ok() {
            let _status = self.child.wait();
        }
    }

    fn stderr(&mut self) -> String {
        self.errors.take().and_then(|reader| reader.join().ok()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
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
    use super::*;

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
        let child = shell("echo stuck >&2; exec sleep 600", Duration::from_millis(300));
        let id = child.id();
        let error = child.finish().unwrap_err().to_string();
        assert!(error.contains("did not end in its time") && error.contains("stuck"), "{error}");
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} is still there");
    }

    /// Check that a child that fails is not taken for one that answered.
    #[test]
    fn a_failure_is_no_answer() {
        let finished = shell("echo '{}'; exit 3", Duration::from_secs(20)).finish().unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert!(finished.json().unwrap_err().to_string().contains("exit status: 3"));
    }
}
