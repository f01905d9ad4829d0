//! What it costs to read Go's runtime from outside: the target's work beside captures each second, and captures of very much.
//!
//! *By pairs*: one program, two goroutines of which are busy, with 1,000 that wait and 1,024 stacks in its profile of the heap. The agent has
//! `CAP_SYS_PTRACE` alone, so that it captures heap, goroutines and contention each second and nothing else. It is stopped and let go on again
//! (`SIGSTOP`, `SIGCONT`), so that each stretch with it stands between two without; how often it captured is said.
//!
//! *Very much*: `sidecar/benches/captures.rs`, in a fresh process for each time, captures 100,000 goroutines, or 100,000 stacks of the heap (of
//! 131,072), as the agent does. *Captured* is reading and walking; a profile of model and names comes after it. Memory is all that the process had.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::process::run;
use serde_json::Value;

use super::super::Row;
use super::{Needs, on_pod, paired, say, settle, spread};
use crate::lab::Lab;
use crate::pod::{Busy, Pod};
use crate::report::Report;

const NAME: &str = "sidecar-runtime";

/// The row.
pub(crate) const ROW: Row = Row {
    name: NAME,
    what: "captures of Go's runtime",
    measure: |lab, report| on_pod(lab, report, NAME, Needs::Nothing, measure),
};

fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    beside(pod, lab, report)?;
    // As many as the bounds let through: 2^17 stacks are more than 100,000.
    let target = pod.many(100_000, 17)?;
    let runs = if lab.quick { 2 } else { 9 };
    for (kind, what) in [("goroutines", "100,000 goroutines"), ("heap", "100,000 stacks of the heap")] {
        let captures = (0..runs).map(|_| capture(pod.captures(), kind, target.id())).collect::<Result<Vec<_>>>()?;
        let figures = |name: &str| captures.iter().map(|said| figure(said, name)).collect::<Result<Vec<_>>>();
        let mut add = |does: &str, unit, digits, name: &str, divisor: f64| -> Result<()> {
            let values: Vec<f64> = figures(name)?.iter().map(|value| value / divisor).collect();
            spread(report, NAME, &format!("{what}: {does}"), unit, digits, &values);
            Ok(())
        };
        add("captured (goal < 1)", "s", 3, "captured_ms", 1e3)?;
        add("memory at its peak (goal < 64)", "MB", 1, "captured_bytes", 1e6)?;
        add("with its profile", "s", 3, "built_ms", 1e3)?;
        add("memory at its peak, with its profile", "MB", 1, "built_bytes", 1e6)?;
    }
    Ok(())
}

/// The target's work with captures ÷ without.
fn beside(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let mut target = pod.steady(Busy { parked: 1000, allocated: 1024, ..Busy::TWO })?;
    let agent = pod.agent_without_ebpf(&["--pid", &target.pid(), "--runtime-interval=1s"])?;
    settle(lab);
    // Many: what is looked for is a thousandth, and one pair differs from another by ten.
    let pairs = if lab.quick { 4 } else { 80 };
    let stretch = Duration::from_secs(2);
    let sets = || agent.figure("/captures/sets");
    let (mut ratios, mut captured) = (Vec::new(), 0.0);
    agent.pause(true)?;
    let mut before = target.rate(stretch)?;
    for _ in 0..pairs {
        agent.pause(false)?;
        let sets_before = sets()?;
        let with = target.rate(stretch)?;
        captured += sets()? - sets_before;
        agent.pause(true)?;
        let after = target.rate(stretch)?;
        ratios.push(2.0 * with / (before + after));
        before = after;
    }
    paired(report, NAME, "work per CPU second with a capture each second ÷ without (goal ≥ 0.999)", &ratios);
    let each = captured / f64::from(pairs) / stretch.as_secs_f64();
    say(report, NAME, "captures a second meanwhile", "", 2, each);
    if each < 0.5 {
        return Err(format!("the agent captured {each:.2} times a second, not once").into());
    }
    Ok(())
}

fn capture(bench: &Path, kind: &str, pid: u32) -> Result<Value> {
    let said = run(Command::new(bench).args([kind, &pid.to_string()]), Duration::from_secs(120))?.json()?;
    match figure(&said, "count")? {
        count if count >= 100_000.0 => Ok(said),
        count => Err(format!("{kind}: {count} were captured of 100,000").into()),
    }
}

fn figure(said: &Value, name: &str) -> Result<f64> {
    said[name].as_f64().ok_or_else(|| format!("the bench did not say {name}").into())
}
