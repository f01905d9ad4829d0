//! The agent at work, and what it says of itself in `/stats`.

use std::net::SocketAddr;
use std::time::Duration;

use profiler_tests::process::Running;
use profiler_tests::{Result, fetch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::ticks::Ticks;
use super::watched::Watched;

/// The agent at work.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Its process, as it is numbered here.
    id: u32,
    page: SocketAddr,
    _running: Running,
}

impl Agent {
    /// Waits until it is ready. `agent_of` says which process it is, of the one that was started.
    pub(super) fn of(mut running: Running, agent_of: impl Fn(u32) -> Result<u32>) -> Result<Self> {
        let mut page = None;
        loop {
            let line = running.line()?;
            match line.split_once(' ') {
                Some(("profiles", url)) => page = url.trim_start_matches("http://").trim_end_matches('/').parse().ok(),
                None if line == "ready" => break,
                _ => {}
            }
        }
        let page = page.ok_or("the agent did not say where its page is")?;
        Ok(Self { id: agent_of(running.id())?, page, _running: running })
    }

    /// It is said once the thread that samples has begun.
    pub(super) fn until_it_samples(&self) -> Result<()> {
        for _ in 0..100 {
            if self.stats()?["engine"]["name"] == "ebpf" {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("the agent does not sample: `profiler-sidecar doctor` says what is missing".into())
    }

    fn stats(&self) -> Result<Value> {
        fetch::json(self.page, "/stats")
    }

    /// A figure of `/stats`, by its JSON pointer.
    pub(crate) fn figure(&self, pointer: &str) -> Result<f64> {
        let stats = self.stats()?;
        stats.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| format!("/stats has no {pointer}").into())
    }

    /// What the kernel says of it.
    pub(crate) fn watched(&self) -> Watched {
        Watched { id: self.id }
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn pause(&self, pause: bool) -> Result<()> {
        Ok(kill_process(self.pid()?, if pause { Signal::STOP } else { Signal::CONT })?)
    }

    /// What it samples by.
    pub(crate) fn ticks(&self) -> Result<Ticks> {
        Ticks::of(self.pid()?)
    }

    fn pid(&self) -> Result<Pid> {
        Ok(i32::try_from(self.id).ok().and_then(Pid::from_raw).ok_or("the agent has no number")?)
    }
}
