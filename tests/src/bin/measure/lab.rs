//! Builds the profilers' programs and runs one task in one of them, counting what it sends.
//!
//! In: who and which task. Out: what the program says of itself, with the stacks and the weight that arrived. Only one
//! program runs at a time: they would take the processor from each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::{build, run};
use profiler_tests::receiver::Receiver;
use serde_json::Value;

use crate::push::Server;
use crate::who::Who;

/// The built programs.
#[derive(Debug)]
pub(crate) struct Lab {
    programs: BTreeMap<Who, PathBuf>,
    /// Shorter runs.
    pub(crate) quick: bool,
}

/// What came of a task.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What the program said.
    pub(crate) said: Value,
    /// Stacks that were delivered: where the profiler sends, those that arrived; else those of its report.
    pub(crate) stacks: Option<f64>,
    /// What they weigh, in periods.
    pub(crate) weight: Option<f64>,
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

impl Lab {
    /// Builds all programs, in release mode, each with its own features only.
    pub(crate) fn build(quick: bool) -> Result<Self> {
        let mut programs = BTreeMap::new();
        for who in Who::ALL {
            let arguments = ["--release", "--package=profiler-tests", "--features=peers", "--bin", who.program()];
            let program = build(workspace(), &arguments)?.pop().ok_or("cargo built no program")?;
            programs.insert(who, program);
        }
        Ok(Self { programs, quick })
    }

    /// The program of `who`.
    pub(crate) fn program(&self, who: Who) -> Result<&Path> {
        Ok(self.programs.get(&who).ok_or("a program is missing")?)
    }

    /// The directory that cargo builds in.
    pub(crate) fn target(&self) -> &Path {
        let program = self.programs.values().next().and_then(|program| program.ancestors().nth(2));
        program.unwrap_or(Path::new("target"))
    }

    /// Runs `task` under `who`.
    pub(crate) fn run(&self, who: Who, task: &[String]) -> Result<Outcome> {
        match who {
            Who::Nobody | Who::Pprof => {
                let said = self.said(who, task, "")?;
                let stacks = said["stacks"].as_f64();
                Ok(Outcome { said, stacks, weight: stacks })
            }
            Who::Ours => {
                let receiver = Receiver::start()?;
                let said = self.said(who, task, &receiver.endpoint())?;
                let tally = receiver.accepted();
                Ok(Outcome { said, stacks: Some(tally.stacks as f64), weight: Some(tally.weight as f64) })
            }
            Who::Pyroscope => {
                let server = Server::start()?;
                let said = self.said(who, task, &server.url())?;
                let stacks = server.periods()?;
                Ok(Outcome { said, stacks: Some(stacks), weight: Some(stacks) })
            }
        }
    }

    fn said(&self, who: Who, task: &[String], url: &str) -> Result<Value> {
        let mut command = Command::new(self.program(who)?);
        command.args(task).arg(format!("url={url}"));
        run(&mut command, Duration::from_secs(300))?.json().map_err(|error| format!("{}: {error}", who.name()).into())
    }
}
