//! CPU time beside two busy goroutines on as many processors at 99 Hz, stacks of 32 frames, two labels: of the agent's threads as a share of one
//! core, and in the kernel for each sample.
//!
//! *Of its threads*: draining, naming, aggregating, exporting, with what they do in system calls; intervals of 10 s sent over gRPC to a receiver
//! that takes them. *In the kernel*: by the kernel's own account (`bpf_stats`); ticks are of kinds, which the program counts, and a sample's cost is
//! what is left of the whole once the others' is taken off, which is measured by itself. Another program, of many functions, shows what
//! naming and many stacks add.

use std::thread::sleep;
use std::time::{Duration, Instant};

use profiler_tests::Result;
use profiler_tests::receiver::Receiver;

use super::super::{say, settle, spread};
use super::NAME;
use super::ticks::{self, Ticks};
use crate::lab::Lab;
use crate::pod::{Agent, BpfStats, Busy, NO_CAPTURES, Pod};
use crate::report::Report;

pub(super) fn measure(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let _stats = BpfStats::on()?;
    let target = pod.steady(Busy::TWO)?;
    let left_out = ticks::left_out(pod, lab)?;
    let outside = ticks::outside(pod, lab)?;
    let receiver = Receiver::start()?;
    let agent = pod.agent(&["--pid", &target.pid(), NO_CAPTURES], Some(&receiver.endpoint()))?;
    settle(lab);
    let (mut shares, mut costs, mut sampled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..windows(lab) {
        let (share, ticks) = window(lab, &agent)?;
        shares.push(share);
        costs.push((ticks.mean - (1.0 - ticks.sampled) * left_out) / ticks.sampled / 1e3);
        sampled.push(ticks.sampled);
    }
    let mut add = |what: &str, unit, digits, values: &[f64]| spread(report, NAME, what, unit, digits, values);
    add("CPU of its threads, of a core, 99 Hz, 2 busy goroutines (goal ≤ 0.3)", "%", 3, &shares);
    add("in the kernel, a sample of 32 frames, 2 labels (goal ≤ 4)", "µs", 2, &costs);
    add("part of the ticks that were samples", "", 3, &sampled);
    say(report, NAME, "in the kernel, a tick in a process that is left out", "ns", 0, left_out);
    say(report, NAME, "in the kernel, a tick outside of the pod", "ns", 0, outside);
    drop((agent, target));
    of_many_functions(pod, lab, report)
}

fn of_many_functions(pod: &Pod, lab: &Lab, report: &mut Report) -> Result<()> {
    let receiver = Receiver::start()?;
    let target = pod.busy("cost", 4)?;
    let agent = pod.agent(&["--pid", &target.id().to_string(), NO_CAPTURES], Some(&receiver.endpoint()))?;
    settle(lab);
    let shares = (0..windows(lab) / 2).map(|_| Ok(window(lab, &agent)?.0)).collect::<Result<Vec<_>>>()?;
    spread(report, NAME, "CPU of its threads, of a core, 99 Hz, 4 goroutines of many functions", "%", 3, &shares);
    Ok(())
}

fn windows(lab: &Lab) -> u32 {
    if lab.quick { 2 } else { 4 }
}

/// One interval of profiles: the hundredths of a core that the agent's threads had, and the ticks.
fn window(lab: &Lab, agent: &Agent) -> Result<(f64, Ticks)> {
    let (began, before) = (Instant::now(), agent.watched().cpu()?);
    let ticks = ticks::during(agent, || sleep(Duration::from_secs(if lab.quick { 5 } else { 10 })))?;
    let share = agent.watched().cpu()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    Ok((100.0 * share, ticks))
}
