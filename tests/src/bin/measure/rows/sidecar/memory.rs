//! What the agent holds with ten Go programs beside it: resident memory, and its maps in the kernel.
//!
//! Ten copies of a program of many functions, each a file of its own, so that nothing that is known of one serves another; after some
//! intervals of 10 s, sent to a receiver.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::Row;
use super::say;
use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-memory", what: "the sidecar's memory with ten Go programs", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let pod = Pod::of(lab)?;
    let receiver = Receiver::start()?;
    let programs = (0..10).map(|copy| pod.busy(&copy.to_string(), 100_000)).collect::<Result<Vec<_>>>()?;
    let pids = programs.iter().flat_map(|program| ["--pid".to_owned(), program.id().to_string()]);
    let pids: Vec<String> = pids.collect();
    let agent = pod.agent(&pids.iter().map(String::as_str).collect::<Vec<_>>(), Some(&receiver.endpoint()))?;
    sleep(Duration::from_secs(if lab.quick { 15 } else { 60 }));
    let memory = agent.memory()?;
    let mut add = |what: &str, bytes: f64| say(report, ROW.name, what, "MB", 1, bytes / 1e6);
    add("resident and maps (goal ≤ 40)", memory.resident + memory.maps);
    add("resident", memory.resident);
    add("most that was ever resident", memory.most_resident);
    add("maps in the kernel", memory.maps);
    Ok(())
}
