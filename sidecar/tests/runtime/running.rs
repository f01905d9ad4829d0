//! A Go program of `tests/go` that runs until it is dropped, spoken to by lines.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Long enough for any machine; only a broken program takes as long.
const LIMIT: Duration = Duration::from_secs(60);

/// A child process.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts `program` and waits until it says "ready".
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::start_with(program, arguments, &[])
    }

    /// The same with these variables.
    pub(crate) fn start_with(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        command.envs(variables.iter().copied());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let running = Self { child, lines };
        running.expect("ready");
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line, and waits for the answer.
    pub(crate) fn ask(&mut self, line: &str, answer: &str) {
        assert_eq!(self.told(line), answer);
    }

    /// Writes a line, and gives the answer.
    pub(crate) fn told(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.lines.recv_timeout(LIMIT).unwrap()
    }

    fn expect(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(LIMIT).as_deref(), Ok(line));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
