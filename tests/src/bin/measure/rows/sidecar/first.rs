//! How long it takes from a process's start until its first sample, with its names, has arrived at a receiver.
//!
//! The agent runs already, in intervals of 100 ms, so that it is what it takes to find the process, to read its tables and to name a stack that is
//! measured; at the default of 10 s profiles leave when the interval ends. Each process is a file that was never seen before. A busy
//! processor for each: both goroutines of the program work.

use std::time::{Duration, Instant};

use profiler_tests::Result;
use profiler_tests::receiver::{Body, Receiver};
use profiler_tests::statistics::{median, quantile};
use profiler_tests::tally::Tally;

use super::super::Row;
use super::{say, settle};
use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-first", what: "time until a process's first sample", measure };

/// Longest that it may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let pod = Pod::of(lab)?;
    let receiver = Receiver::start()?;
    let _agent = pod.agent(&["--include=*/busy-first-*", "--interval=100ms"], Some(&receiver.endpoint()))?;
    settle(lab);
    let runs = if lab.quick { 3 } else { 15 };
    let one = |run: u32| -> Result<f64> {
        let name = format!("busy-first-{run}");
        let began = Instant::now();
        let _target = pod.busy(&format!("first-{run}"), 1000)?;
        if !receiver.wait(PATIENCE, |bodies| bodies.iter().any(|body| names(body, &name))) {
            return Err("its samples did not arrive".into());
        }
        Ok(began.elapsed().as_secs_f64())
    };
    let taken = (0..runs).map(one).collect::<Result<Vec<_>>>()?;
    say(
        report,
        ROW.name,
        format!("first named sample of {runs} new programs, median (goal ≤ 1)"),
        "s",
        3,
        median(&taken),
    );
    say(report, ROW.name, "the longest of them", "s", 3, quantile(&taken, 1.0));
    Ok(())
}

/// Whether a body has a sample of this program in a function that it names.
fn names(body: &Body, service: &str) -> bool {
    let of_service = |set: &&profiler_proto::ProfileSet| set.resource.service_name() == Some(service);
    let tally = Tally::of(body.profiles.iter().filter(of_service));
    tally.by_function.keys().any(|function| function.starts_with("main."))
}
