//! CPU time in the kernel for each sample, and for each tick that hits nothing of ours.
//!
//! From the kernel's own account of the program's run times (`bpf_stats`, a clock read before and after each run; the interrupt around it is not in
//! it: the row `sidecar-work` has that, too). Two busy goroutines on as many processors, stacks of 32 frames, two labels. Ticks are of kinds,
//! which the program counts: a sample's cost is what is left of the whole once the others' is taken off, which is measured by itself: of
//! processes that are left out by name, and, for an agent that is alone in its pid namespace, of those outside: what fifty sidecars on a node
//! pay for each other.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;

use super::super::Row;
use super::{say, settle};
use crate::lab::Lab;
use crate::pod::{Agent, BpfStats, Pod};
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-kernel", what: "the sidecar's CPU time in the kernel", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let pod = Pod::of(lab)?;
    let _stats = BpfStats::on()?;
    let target = pod.steady(2, 32, 2)?;
    let pid = target.running.id().to_string();
    let left_out = ticks(lab, &pod.agent(&["--exclude=*/steady"], None)?)?;
    let outside = ticks(lab, &pod.agent_alone(&[])?)?;
    let other = left_out.mean;
    for rate in ["99", "997"] {
        let ticks = ticks(lab, &pod.agent(&["--pid", &pid, "--rate-hz", rate], None)?)?;
        let sample = (ticks.mean - (1.0 - ticks.sampled) * other) / ticks.sampled;
        let goal = if rate == "99" { " (goal ≤ 4)" } else { "" };
        let what = format!("a sample of 32 frames, 2 labels, at {rate} Hz{goal}");
        say(report, ROW.name, what, "µs", 2, sample / 1e3);
        say(report, ROW.name, format!("part of the ticks that were samples, at {rate} Hz"), "", 3, ticks.sampled);
    }
    say(report, ROW.name, "a tick in a process that is left out", "ns", 0, left_out.mean);
    say(report, ROW.name, "a tick outside of the pod", "ns", 0, outside.mean);
    Ok(())
}

/// Ticks of a while.
struct Ticks {
    /// Nanoseconds.
    mean: f64,
    /// The part that were samples.
    sampled: f64,
}

fn ticks(lab: &Lab, agent: &Agent) -> Result<Ticks> {
    settle(lab);
    let (before, kinds_before) = (agent.runs()?, kinds(agent)?);
    sleep(Duration::from_secs(if lab.quick { 5 } else { 30 }));
    let (after, kinds) = (agent.runs()?, kinds(agent)?);
    let count = after.count - before.count;
    let all: f64 = kinds.iter().zip(kinds_before).map(|(after, before)| after - before).sum();
    match count > 0.0 && all > 0.0 {
        true => Ok(Ticks { mean: (after.nanos - before.nanos) / count, sampled: (kinds[0] - kinds_before[0]) / all }),
        false => Err("the program did not run".into()),
    }
}

/// Samples, and ticks that were none.
fn kinds(agent: &Agent) -> Result<[f64; 4]> {
    let stats = agent.stats()?;
    let figure = |name: &str| stats["kernel"][name].as_f64().ok_or_else(|| format!("/stats has no kernel.{name}"));
    Ok([figure("seen")?, figure("excluded")?, figure("outside")?, figure("foreign_pid_namespace")?])
}
