//! Completeness: samples ÷ (CPU seconds × rate) at 100 Hz, on a spin loop with 1, 2 and 8 threads and in the shop under
//! load. 1 is right.
//!
//! Two figures. *Stacks* are the stacks that arrived; *weight* is the CPU time that they say they stand for, in sampling
//! periods: kernels whose tick is coarser than the period merge several expiries into one signal, and only a profiler that
//! reads how many (`si_overrun`, timer_getoverrun(2)) gets the second figure right. CPU seconds are the whole process's
//! while the profiler ran, its own threads included. In the spin loop, every other
//! thread was there before the profiler.

use profiler_tests::Result;

use super::Row;
use crate::lab::{Lab, Outcome};
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "completeness", what: "what share of the CPU time is in the profile", measure };

const RATE_HZ: u32 = 100;

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 3 } else { 15 };
    for threads in [1, 2, 8] {
        let task =
            ["task=spin".into(), format!("threads={threads}"), format!("seconds={seconds}"), format!("rate={RATE_HZ}")];
        let what = format!("spin loop, {threads} busy, {RATE_HZ} Hz");
        add(report, &what, &|who| lab.run(who, &task))?;
    }
    add(report, &format!("shop under load, {RATE_HZ} Hz"), &|who| lab.serve(who, RATE_HZ, seconds))
}

fn add(report: &mut Report, what: &str, outcome: &dyn Fn(Who) -> Result<Outcome>) -> Result<()> {
    let (mut stacks, mut weight) = (Vec::new(), Vec::new());
    for who in Who::PROFILERS {
        let outcome = outcome(who)?;
        let due = outcome.said["cpu_seconds"].as_f64().ok_or("no CPU seconds")? * f64::from(RATE_HZ);
        stacks.extend(outcome.stacks.map(|stacks| (who, stacks / due)));
        weight.extend(outcome.weight.map(|weight| (who, weight / due)));
    }
    for (of, values) in [("stacks", stacks), ("weight", weight)] {
        report.add(Line { row: ROW.name, what: format!("{of}, {what}"), unit: "", digits: 3, values });
    }
    Ok(())
}
