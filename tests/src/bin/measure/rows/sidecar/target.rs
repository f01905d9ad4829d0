//! What is left of the target's work: units done per CPU second with the agent ÷ without, two busy goroutines, 99 Hz.
//!
//! Twice. *Computed*: one less what a second of ticks takes by the kernel's own account. *By pairs*: one program all the time; the agent comes and
//! goes, so that each stretch with it stands between two without, and what else happens on the machine happens to both; the median, for some
//! stretches are hit by others' work. The interrupt of the clock itself is in the pairs alone.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;

use super::super::Row;
use super::{Needs, on_pod, paired, say, settle};
use crate::lab::Lab;
use crate::pod::{BpfStats, Busy, NO_CAPTURES, Pod};
use crate::report::Report;

const NAME: &str = "sidecar-target";

/// The row.
pub(crate) const ROW: Row = Row {
    name: NAME,
    what: "the target's work beside the sidecar",
    measure: |lab, report| on_pod(lab, report, NAME, Needs::Ebpf, measure),
};

const RATE_HZ: f64 = 99.0;

fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let mut target = pod.steady(Busy::TWO)?;
    let pid = target.pid();
    let share = computed(pod, lab, &pid)?;
    say(report, NAME, "work per CPU second ÷ without, computed (goal ≥ 0.999)", "", 5, share);
    let pairs = if lab.quick { 4 } else { 40 };
    let stretch = Duration::from_secs(if lab.quick { 1 } else { 2 });
    let mut ratios = Vec::new();
    let mut before = target.rate(stretch)?;
    for _ in 0..pairs {
        let agent = pod.agent(&["--pid", &pid, NO_CAPTURES], None)?;
        sleep(Duration::from_secs(1));
        let with = target.rate(stretch)?;
        drop(agent);
        let after = target.rate(stretch)?;
        ratios.push(2.0 * with / (before + after));
        before = after;
    }
    paired(report, NAME, "work per CPU second ÷ without", &ratios);
    Ok(())
}

/// One less the share of a processor that the kernel's program takes there.
fn computed(pod: &Pod, lab: &Lab, pid: &str) -> Result<f64> {
    let _stats = BpfStats::on()?;
    let agent = pod.agent(&["--pid", pid, NO_CAPTURES], None)?;
    settle(lab);
    let before = agent.watched().runs()?;
    sleep(Duration::from_secs(if lab.quick { 3 } else { 10 }));
    Ok(1.0 - RATE_HZ * agent.watched().runs()?.mean_since(before)? / 1e9)
}
