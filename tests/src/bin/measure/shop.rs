//! The shop under one of the profilers, as a process that serves.
//!
//! In: a program that was started with the task. Out: the address where it is asked. Waits on the caller's thread.

use profiler_tests::Result;
use profiler_tests::process::Running;

/// How a shop serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Serving {
    pub(crate) rate_hz: u32,
    /// With a span and tags for each request.
    pub(crate) spans: bool,
}

impl Serving {
    /// The task of the profilers' programs.
    pub(crate) fn task(self) -> [String; 3] {
        ["task=serve".into(), format!("rate={}", self.rate_hz), format!("spans={}", self.spans)]
    }
}

/// A shop that serves.
pub(crate) struct Shop {
    pub(crate) program: Running,
    pub(crate) address: String,
}

impl Shop {
    /// Waits until it can be asked.
    pub(crate) fn start(mut program: Running) -> Result<Self> {
        let address = program.json()?["ready"].as_str().ok_or("the shop did not say where it is")?.to_owned();
        Ok(Self { program, address })
    }
}
