//! A running example, what it writes, and what it answers over HTTP.
//!
//! In: a path and arguments. Out: lines, bodies, processes; nothing is waited for without an end, and nothing outlives its value.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long anything may take that takes a moment on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running example; killed when dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    /// Its standard output, read by a thread, so that nothing waits for it without an end.
    lines: Receiver<String>,
}

impl Program {
    /// Starts the program at this path.
    pub(crate) fn start(path: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(path);
        Self::of(command.args(arguments).env("DEMO_SECONDS", "1"))
    }

    /// Starts a command.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// The shop under load, on free ports.
    pub(crate) fn shop(arguments: &[&str]) -> Self {
        let free = ["--listen", "127.0.0.1:0", "--serve", "127.0.0.1:0"];
        Self::start(env!("CARGO_BIN_EXE_shop"), &[&free, arguments].concat())
    }

    /// The next line; `None` once the output has ended.
    pub(crate) fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing was written for {PATIENCE:?}"),
        }
    }

    /// The rest of the next line that begins like that.
    pub(crate) fn line(&self, beginning: &str) -> String {
        let mut lines = std::iter::from_fn(|| self.next_line());
        let found = lines.find_map(|line| Some(line.strip_prefix(beginning)?.to_owned()));
        found.unwrap_or_else(|| panic!("no line begins with {beginning:?}"))
    }

    /// The last line, once it has ended by itself and well.
    pub(crate) fn finish(mut self) -> String {
        let last = std::iter::from_fn(|| self.next_line()).last().unwrap();
        assert!(self.child.wait().unwrap().success());
        last
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Processes that this one started and that still run.
    pub(crate) fn children(&self) -> Vec<u32> {
        children_of(self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// The body of the answer to one request.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: &str) -> String {
    send(address, method, path, body, "").1
}

/// The head of the answer, and its body; `head` is added to the request's.
pub(crate) fn send(address: &str, method: &str, path: &str, body: &str, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The running processes whose parent is that one.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|&pid| state_and_parent(pid).is_some_and(|(state, of)| of == parent && state != "Z")).collect()
}

/// Whether that process ends before long; one that waits to be reaped has ended.
pub(crate) fn gone(pid: u32) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while state_and_parent(pid).is_some_and(|(state, _)| state != "Z") {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Fields 3 and 4 of `/proc/[pid]/stat` (proc(5)), behind the name in parentheses.
fn state_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
