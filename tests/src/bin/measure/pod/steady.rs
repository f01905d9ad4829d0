//! The Go program `steady` (`sidecar/tests/go/steady`): busy all the time, it says how much it got done.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::Running;

use super::LIMIT;

/// What it is to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Busy {
    /// Goroutines that work,
    pub(crate) goroutines: u32,
    /// at the bottom of stacks of so many frames,
    pub(crate) frames: u32,
    /// under so many labels.
    pub(crate) labels: u32,
    /// Goroutines that wait.
    pub(crate) parked: u32,
    /// Stacks that allocated once, each sampled: a power of two.
    pub(crate) allocated: u32,
}

impl Busy {
    /// Two busy cores, as the goals have them.
    pub(crate) const TWO: Self = Self { goroutines: 2, frames: 32, labels: 2, parked: 0, allocated: 0 };

    pub(super) fn arguments(self) -> [String; 5] {
        let Self { goroutines, frames, labels, parked, allocated } = self;
        [goroutines, frames, labels, parked, allocated].map(|number| number.to_string())
    }
}

/// `steady` at work.
#[derive(Debug)]
pub(crate) struct Steady {
    running: Running,
}

/// What its goroutines that work have done since they began.
#[derive(Debug, Clone, Copy)]
struct Done {
    units: f64,
    cpu_seconds: f64,
}

impl Steady {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let mut running = Running::start(command, LIMIT)?;
        match running.line()?.as_str() {
            "ready" => Ok(Self { running }),
            other => Err(format!("`steady` said {other:?}").into()),
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> String {
        self.running.id().to_string()
    }

    /// Units of work that it does for each second of CPU time, during so much time.
    pub(crate) fn rate(&mut self, stretch: Duration) -> Result<f64> {
        let before = self.done()?;
        sleep(stretch);
        let after = self.done()?;
        Ok((after.units - before.units) / (after.cpu_seconds - before.cpu_seconds))
    }

    fn done(&mut self) -> Result<Done> {
        self.running.say("how much?")?;
        let line = self.running.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["work", units, "cpu", nanos] => {
                Ok(Done { units: units.parse()?, cpu_seconds: nanos.parse::<f64>()? / 1e9 })
            }
            _ => Err(format!("`steady` said {line:?}").into()),
        }
    }
}
