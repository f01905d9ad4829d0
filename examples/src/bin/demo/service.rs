//! A program that the demo starts, and that ends with it: the shop, the inventory, the sidecar.
//!
//! In: the program and its arguments. Out: what it says on standard output once it is up, `WORD URL` a line, and its last line when it closes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{Outcome, Stop};

/// How long a program may take to open, to answer, to close.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running program.
#[derive(Debug)]
pub(crate) struct Service {
    name: &'static str,
    child: Child,
    /// It ends when this does.
    lifeline: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    said: BTreeMap<String, String>,
}

/// The program of this name that stands beside this one.
pub(crate) fn beside(name: &str) -> Outcome<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

impl Service {
    /// Starts `command` and waits until it says `ready`.
    pub(crate) async fn start(name: &'static str, command: &mut Command) -> Outcome<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C is for the demo, which wants a last table before anybody closes
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{:?}: {error}; `make demo` builds it", command.as_std().get_program()))?;
        let lifeline = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a program has no standard output")?;
        let lines = BufReader::new(stdout).lines();
        let mut service = Self { name, child, lifeline, lines, said: BTreeMap::new() };
        timeout(PATIENCE, service.opened()).await.map_err(|_| format!("the {name} does not open"))??;
        Ok(service)
    }

    async fn opened(&mut self) -> Outcome<()> {
        while !self.said.contains_key("ready") {
            let line = self.lines.next_line().await?.ok_or_else(|| format!("the {} did not open", self.name))?;
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            self.said.insert(word.to_owned(), rest.to_owned());
        }
        Ok(())
    }

    /// What it said behind `word` when it opened, as `ready`, `profiles`.
    pub(crate) fn said(&self, word: &str) -> Option<&str> {
        self.said.get(word).map(String::as_str)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until then, or for ever; false if a signal came first.
    pub(crate) async fn run_until(&mut self, end: Option<Instant>, stop: &mut Stop) -> Outcome<bool> {
        let over = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => Ok(true),
            () = stop.told() => Ok(false),
            status = self.child.wait() => Err(format!("the {} ended by itself: {}", self.name, status?).into()),
        }
    }

    /// Lets it end; its last line.
    pub(crate) async fn close(mut self) -> Outcome<String> {
        drop(self.lifeline.take());
        let ending = async {
            let mut last = String::new();
            while let Some(line) = self.lines.next_line().await? {
                last = line;
            }
            match self.child.wait().await? {
                status if status.success() => Ok(last),
                status => Err(format!("the {} ended with {status}", self.name).into()),
            }
        };
        timeout(PATIENCE, ending).await.map_err(|_| format!("the {} does not end", self.name))?
    }
}
