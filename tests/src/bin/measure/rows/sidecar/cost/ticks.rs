//! Ticks of the agent's clock on busy processors: what each takes in the kernel, and which were samples.
//!
//! Those that hit nothing of ours are of two kinds: in processes that are left out, and, for an agent that is alone in its pid namespace, in
//! those outside of it: what fifty sidecars on a node pay for each other.

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;

use super::super::settle;
use crate::lab::Lab;
use crate::pod::{Agent, NO_CAPTURES, Pod};

/// Ticks of a while.
pub(super) struct Ticks {
    /// Nanoseconds in the kernel's program.
    pub(super) mean: f64,
    /// The part that were samples.
    pub(super) sampled: f64,
}

/// Nanoseconds of a tick in a process that is left out.
pub(super) fn left_out(pod: &Pod, lab: &Lab) -> Result<f64> {
    // This process, which sleeps: all others are left out.
    let own = std::process::id().to_string();
    of_nothing(lab, &pod.agent(&["--pid", &own, NO_CAPTURES], None)?)
}

/// Nanoseconds of a tick in a process outside of the agent's pid namespace.
pub(super) fn outside(pod: &Pod, lab: &Lab) -> Result<f64> {
    of_nothing(lab, &pod.agent_alone(&[NO_CAPTURES])?)
}

fn of_nothing(lab: &Lab, agent: &Agent) -> Result<f64> {
    settle(lab);
    let ticks = during(agent, || sleep(Duration::from_secs(if lab.quick { 3 } else { 10 })))?;
    Ok(ticks.mean)
}

/// The ticks while `work` is done.
pub(super) fn during(agent: &Agent, work: impl FnOnce()) -> Result<Ticks> {
    let (before, kinds_before) = (agent.watched().runs()?, kinds(agent)?);
    work();
    let (after, kinds) = (agent.watched().runs()?, kinds(agent)?);
    let all: f64 = kinds.iter().zip(kinds_before).map(|(after, before)| after - before).sum();
    match all > 0.0 {
        true => Ok(Ticks { mean: after.mean_since(before)?, sampled: (kinds[0] - kinds_before[0]) / all }),
        false => Err("no tick hit a process".into()),
    }
}

/// Samples, and ticks that were none.
fn kinds(agent: &Agent) -> Result<[f64; 4]> {
    let figure = |name: &str| agent.figure(&format!("/kernel/{name}"));
    Ok([figure("seen")?, figure("excluded")?, figure("outside")?, figure("foreign_pid_namespace")?])
}
