//! Bytes on the wire, by gzip, for 10,000 samples of a program of many functions.
//!
//! Counted by the agent as they leave, heads of requests included, of whole intervals of 10 s, and scaled by the stacks that arrived. At
//! 499 Hz one interval of two busy processors has about 10,000 samples in one profile; at 99 Hz a fifth, so that five profiles with as many
//! dictionaries carry as much.

use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::Row;
use super::say;
use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-payload", what: "bytes that the sidecar sends", measure };

/// Longest that profiles may be on their way.
const PATIENCE: Duration = Duration::from_secs(120);

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let pod = Pod::of(lab)?;
    for rate in ["499", "99"] {
        let target = pod.busy("payload", 100_000)?;
        let receiver = Receiver::start()?;
        let flags = ["--pid", &target.id().to_string(), "--rate-hz", rate];
        let agent = pod.agent(&flags, Some(&receiver.endpoint()))?;
        let wanted = if lab.quick { 1 } else { 4 };
        if !receiver.wait(PATIENCE, |bodies| bodies.len() > wanted) {
            return Err("no profiles arrived".into());
        }
        // The figure of bytes may be one request behind or ahead: it is asked for between two intervals.
        let (bytes, stacks) = (agent.figure("/destinations/0/sent_bytes")?, receiver.accepted().stacks as f64);
        let goal = if rate == "499" { " (goal ≤ 60)" } else { "" };
        let what = format!("gzip for 10,000 samples, at {rate} Hz, 10 s a profile{goal}");
        say(report, ROW.name, what, "KB", 1, bytes / stacks * 10.0);
    }
    Ok(())
}
