//! What is left of the target's work: units done per CPU second with the agent ÷ without, two busy goroutines, 99 Hz.
//!
//! Three times. *Computed*: one less what a second of ticks takes by the kernel's own account. *By pairs*: one program and one agent all the time; the agent's perf
//! events are turned on and off, so that each stretch with ticks stands between two without, and what else happens on the machine happens to both. The stretches
//! are short, for machines grow slower and faster within seconds; many, for what is looked for is a thousandth; the median, for some are hit by others' work. *By
//! pairs, of ticks that do nothing*: the same of events without a program, between these. That is the timer's interrupt, which on a virtual machine takes far more than
//! all else; whoever samples by a clock has it.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;

use super::super::Row;
use super::{Needs, on_pod, paired, say, settle};
use crate::lab::Lab;
use crate::pod::{BpfStats, Busy, NO_CAPTURES, Pod, Ticks};
use crate::report::Report;

const NAME: &str = "sidecar-target";

/// The row.
pub(crate) const ROW: Row = Row {
    name: NAME,
    what: "the target's work beside the sidecar",
    measure: |lab, report| on_pod(lab, report, NAME, Needs::Ebpf, measure),
};

const RATE_HZ: u64 = 99;
/// Some forty ticks on both processors.
const STRETCH: Duration = Duration::from_millis(200);

fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let mut target = pod.steady(Busy::TWO)?;
    let pid = target.pid();
    let share = computed(pod, lab, &pid)?;
    say(report, NAME, "work per CPU second ÷ without, computed (goal ≥ 0.999)", "", 5, share);
    let agent = pod.agent(&["--pid", &pid, NO_CAPTURES], None)?;
    settle(lab);
    let of_agent = agent.ticks()?;
    let kinds = [
        ("work per CPU second ÷ without (goal ≥ 0.999)", of_agent),
        ("of ticks that do nothing: the same", Ticks::bare(RATE_HZ)?),
    ];
    kinds[0].1.turn(false)?;
    let mut ratios = [Vec::new(), Vec::new()];
    let mut before = target.rate(STRETCH)?;
    for _ in 0..if lab.quick { 20 } else { 600 } {
        for ((_, ticks), ratios) in kinds.iter().zip(&mut ratios) {
            ticks.turn(true)?;
            let with = target.rate(STRETCH)?;
            ticks.turn(false)?;
            let after = target.rate(STRETCH)?;
            ratios.push(2.0 * with / (before + after));
            before = after;
        }
    }
    for ((what, _), ratios) in kinds.iter().zip(&ratios) {
        paired(report, NAME, what, ratios);
    }
    Ok(())
}

/// One less the share of a processor that the kernel's program takes there.
fn computed(pod: &Pod, lab: &Lab, pid: &str) -> Result<f64> {
    let _stats = BpfStats::on()?;
    let agent = pod.agent(&["--pid", pid, NO_CAPTURES], None)?;
    settle(lab);
    let before = agent.watched().runs()?;
    sleep(Duration::from_secs(if lab.quick { 3 } else { 10 }));
    Ok(1.0 - RATE_HZ as f64 * agent.watched().runs()?.mean_since(before)? / 1e9)
}
