//! What the agent holds with ten Go programs beside it: resident memory, and its maps in the kernel.
//!
//! Ten copies of a program of many functions, with one busy thread each, each a file of its own, so that nothing that is known of one serves another; after some
//! intervals of 10 s, sent to a receiver, and captures of their runtimes.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::say;
use super::NAME;
use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::Report;

pub(super) fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let receiver = Receiver::start()?;
    let programs = (0..10).map(|copy| pod.busy(&copy.to_string(), 1)).collect::<Result<Vec<_>>>()?;
    let pids: Vec<String> = programs.iter().map(|program| format!("--pid={}", program.id())).collect();
    let flags: Vec<&str> = pids.iter().map(String::as_str).chain(["--runtime-interval=10s"]).collect();
    let agent = pod.agent(&flags, Some(&receiver.endpoint()))?;
    sleep(Duration::from_secs(if lab.quick { 12 } else { 25 }));
    let memory = agent.watched().memory()?;
    let mut add = |what: &str, bytes: f64| say(report, NAME, what, "MB", 1, bytes / 1e6);
    add("resident and maps beside 10 Go programs (goal ≤ 40)", memory.resident + memory.maps);
    add("of that, its maps in the kernel", memory.maps);
    add("most that was ever resident", memory.most_resident);
    Ok(())
}
