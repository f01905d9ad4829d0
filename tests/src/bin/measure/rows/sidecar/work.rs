//! What is left of the target's work: units done per CPU second with the agent ÷ without.
//!
//! Twice. *Computed*: one less what the kernel's account says a second of ticks takes (`sidecar-kernel`). *By pairs*: one program of two busy
//! goroutines all the time; the agent comes and goes, so that each stretch with it stands between two without, and what else happens on the
//! machine happens to both; the median, for some stretches are hit by others' work. The interrupt of the clock itself is in the pairs alone.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::statistics::median;

use super::super::Row;
use super::say;
use crate::lab::Lab;
use crate::pod::{BpfStats, Done, Pod, Steady};
use crate::report::Report;

/// The row.
pub(crate) const ROW: Row = Row { name: "sidecar-work", what: "the target's work beside the sidecar", measure };

/// Until the agent has done what is done once.
const SETTLED: Duration = Duration::from_secs(3);

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let pod = Pod::of(lab)?;
    let mut target = pod.steady(2, 32, 2)?;
    let pid = target.running.id().to_string();
    say(report, ROW.name, "work per CPU second ÷ without, computed (goal ≥ 0.999)", "", 5, computed(pod, &pid, lab)?);
    let (pairs, seconds) = if lab.quick { (3, 3) } else { (20, 6) };
    let stretch = Duration::from_secs(seconds);
    let mut ratios = Vec::new();
    let mut before = rate(&mut target, stretch)?;
    for _ in 0..pairs {
        let agent = pod.agent(&["--pid", &pid], None)?;
        sleep(SETTLED);
        let with = rate(&mut target, stretch)?;
        drop(agent);
        let after = rate(&mut target, stretch)?;
        ratios.push(2.0 * with / (before + after));
        before = after;
    }
    let what = format!("work per CPU second ÷ without, median of {pairs} pairs");
    say(report, ROW.name, what, "", 5, median(&ratios));
    Ok(())
}

/// Units per CPU second.
fn rate(target: &mut Steady, stretch: Duration) -> Result<f64> {
    let Done { units, cpu_seconds } = target.done()?;
    sleep(stretch);
    let after = target.done()?;
    Ok((after.units - units) / (after.cpu_seconds - cpu_seconds))
}

/// One less the share of a processor that the program takes there.
fn computed(pod: &Pod, pid: &str, lab: &Lab) -> Result<f64> {
    let _stats = BpfStats::on()?;
    let agent = pod.agent(&["--pid", pid], None)?;
    sleep(SETTLED);
    let before = agent.runs()?;
    sleep(Duration::from_secs(if lab.quick { 3 } else { 20 }));
    let after = agent.runs()?;
    Ok(1.0 - 99.0 * (after.nanos - before.nanos) / (after.count - before.count) / 1e9)
}
