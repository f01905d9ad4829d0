//! How long it takes from a process's start until its first sample, with its names, has arrived at a receiver.
//!
//! The agent runs already, in intervals of 100 ms, so that it is what it takes to find the process, to read its tables and to name a stack that is
//! measured; at the default of 10 s profiles leave when the interval ends. Each process is a file that was never seen before. A busy
//! processor for each: all goroutines of the program work.

use std::time::{Duration, Instant};

use profiler_tests::Result;
use profiler_tests::receiver::{Body, Receiver};
use profiler_tests::tally::Tally;

use super::super::{settle, spread};
use super::NAME;
use crate::lab::Lab;
use crate::pod::{NO_CAPTURES, Pod};
use crate::report::Report;

/// Longest that it may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let receiver = Receiver::start()?;
    let flags = ["--include=*/busy-first-*", "--interval=100ms", NO_CAPTURES];
    let _agent = pod.agent(&flags, Some(&receiver.endpoint()))?;
    settle(lab);
    let one = |run: u32| -> Result<f64> {
        let name = format!("busy-first-{run}");
        let began = Instant::now();
        let _target = pod.busy(&format!("first-{run}"), 4)?;
        if !receiver.wait(PATIENCE, |bodies| bodies.iter().any(|body| names(body, &name))) {
            return Err("its samples did not arrive".into());
        }
        Ok(began.elapsed().as_secs_f64())
    };
    let taken = (0..if lab.quick { 3 } else { 15 }).map(one).collect::<Result<Vec<_>>>()?;
    spread(report, NAME, "first named sample of a new program (goal ≤ 1)", "s", 3, &taken);
    Ok(())
}

/// Whether a body has a sample of this program in a function that it names.
fn names(body: &Body, service: &str) -> bool {
    let of_service = |set: &&profiler_proto::ProfileSet| set.resource.service_name() == Some(service);
    let tally = Tally::of(body.profiles.iter().filter(of_service));
    tally.by_function.keys().any(|function| function.starts_with("main."))
}
