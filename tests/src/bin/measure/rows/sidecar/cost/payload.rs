//! Bytes on the wire, by gzip, for 10,000 samples of a program of many functions.
//!
//! Counted by the agent as they leave, heads of requests included, of whole intervals of 10 s, and scaled by the stacks that arrived. At
//! 499 Hz one interval of two busy processors has about 10,000 samples in one profile, as the goal means it.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::say;
use super::NAME;
use crate::lab::Lab;
use crate::pod::{NO_CAPTURES, Pod};
use crate::report::Report;

/// Longest that profiles may be on their way.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let target = pod.busy("payload", 4)?;
    let receiver = Receiver::start()?;
    let flags = ["--pid", &target.id().to_string(), "--rate-hz=499", NO_CAPTURES];
    let agent = pod.agent(&flags, Some(&receiver.endpoint()))?;
    let wanted = if lab.quick { 1 } else { 2 };
    if !receiver.wait(PATIENCE, |bodies| bodies.len() >= wanted) {
        return Err("no profiles arrived".into());
    }
    // The sender counts it once it has its answer, and the next one is an interval away.
    sleep(Duration::from_secs(2));
    let (bytes, stacks) = (agent.figure("/destinations/0/sent_bytes")?, receiver.accepted().stacks as f64);
    let what = "gzip for 10,000 samples, profiles of 10 s at 499 Hz (goal ≤ 60)";
    say(report, NAME, what, "KB", 1, bytes / stacks * 10.0);
    say(report, NAME, "samples in one of these profiles", "", 0, stacks / receiver.bodies().len() as f64);
    Ok(())
}
