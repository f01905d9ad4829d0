//! Completeness: samples ÷ (CPU seconds × rate) on a spin loop with 1, 2 and 8 threads at 100 Hz. 1 is right.
//!
//! Two figures. *Stacks* are the stacks that arrived; *weight* is the CPU time that they say they stand for, in sampling
//! periods: kernels whose tick is coarser than the period merge several expiries into one signal, and only a profiler that
//! reads how many (`si_overrun`, timer_getoverrun(2)) gets the second figure right. CPU seconds are the whole process's
//! while the profiler ran, its own threads included. Every other thread was there before the profiler.

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "completeness", what: "what share of the CPU time is in the profile", measure };

const RATE_HZ: u32 = 100;

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    for threads in [1, 2, 8] {
        let seconds = if lab.quick { 3 } else { 15 };
        let task = ["task=spin".into(), format!("threads={threads}"), format!("seconds={seconds}")];
        let (mut stacks, mut weight) = (Vec::new(), Vec::new());
        for who in Who::PROFILERS {
            let outcome = lab.run(who, &[&task[..], &[format!("rate={RATE_HZ}")]].concat())?;
            let due = outcome.said["cpu_seconds"].as_f64().ok_or("no CPU seconds")? * f64::from(RATE_HZ);
            stacks.extend(outcome.stacks.map(|stacks| (who, stacks / due)));
            weight.extend(outcome.weight.map(|weight| (who, weight / due)));
        }
        let mut add = |of: &str, values| {
            let what = format!("{of}, spin loop, {threads} threads, {RATE_HZ} Hz");
            report.add(Line { row: ROW.name, what, unit: "", digits: 3, values });
        };
        add("stacks", stacks);
        add("weight", weight);
    }
    Ok(())
}
