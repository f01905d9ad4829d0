//! Bytes on the wire, by gzip, for 10,000 samples in one profile: of a service, and of a program nearly each of whose samples is a stack of its own.
//!
//! Counted by the agent as they leave, heads of requests included, of whole intervals of 10 s, and scaled by the stacks that arrived. The service is the Go
//! program of the examples under requests, none of which is part of a trace that is recorded: what a span takes, the row `export` says. The rates
//! are such that one interval has about 10,000 samples of what has two processors, of which those who ask take a part.

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
    let service = pod.inventory(4)?;
    sent(pod, lab, report, &service.pid(), 999, "a service (goal ≤ 60)")?;
    if !service.is_asked() {
        return Err("the service gave no answer".into());
    }
    drop(service);
    let busy = pod.busy("payload", 4)?;
    sent(pod, lab, report, &busy.id().to_string(), 499, "nearly as many stacks")
}

fn sent(pod: &Pod, lab: &Lab, report: &mut Report, pid: &str, rate_hz: u32, of: &str) -> Result<()> {
    let receiver = Receiver::start()?;
    let flags = ["--pid", pid, &format!("--rate-hz={rate_hz}"), NO_CAPTURES];
    let agent = pod.agent(&flags, Some(&receiver.endpoint()))?;
    let wanted = if lab.quick { 1 } else { 2 };
    if !receiver.wait(PATIENCE, |bodies| bodies.len() >= wanted) {
        return Err("no profiles arrived".into());
    }
    // The sender counts it once it has its answer, and the next one is an interval away.
    sleep(Duration::from_secs(2));
    let (bytes, stacks) = (agent.figure("/destinations/0/sent_bytes")?, receiver.accepted().stacks as f64);
    say(report, NAME, format!("gzip for 10,000 samples of {of}"), "KB", 1, bytes / stacks * 10.0);
    let samples = stacks / receiver.bodies().len() as f64;
    say(report, NAME, format!("samples in each of its profiles of 10 s at {rate_hz} Hz"), "", 0, samples);
    Ok(())
}
