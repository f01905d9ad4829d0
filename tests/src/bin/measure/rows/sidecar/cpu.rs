//! The agent's own CPU time in user space, as a share of one core: draining, naming, aggregating, exporting.
//!
//! Two busy goroutines on as many processors at 99 Hz, stacks of 32 frames, two labels, intervals of 10 s sent over gRPC to a receiver that
//! takes them; what is done once at the start is over before. All of its threads are counted, with what they do in system calls.

use std::thread::sleep;
use std::time::{Duration, Instant};

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::Row;
use super::{say, settle};
use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-cpu", what: "the sidecar's CPU time in user space", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let pod = Pod::of(lab)?;
    let receiver = Receiver::start()?;
    for (program, of) in [("steady", "2 busy goroutines"), ("busy", "4 goroutines of many functions")] {
        let target = match program {
            "steady" => pod.steady(2, 32, 2)?.running,
            _ => pod.busy("cpu", 100_000)?,
        };
        let agent = pod.agent(&["--pid", &target.id().to_string()], Some(&receiver.endpoint()))?;
        settle(lab);
        let (began, before) = (Instant::now(), agent.cpu()?);
        sleep(Duration::from_secs(if lab.quick { 10 } else { 60 }));
        let share = (agent.cpu()? - before).as_secs_f64() / began.elapsed().as_secs_f64();
        say(report, ROW.name, format!("of a core at 99 Hz, {of} (goal ≤ 0.3)"), "%", 3, 100.0 * share);
    }
    Ok(())
}
