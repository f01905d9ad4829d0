//! Completeness: samples ÷ (CPU seconds × rate), at 100 Hz on a spin loop with 1, 2, 8 and 64 threads, at 1 kHz on one with
//! 2, and in the shop under load at both. 1 is right.
//!
//! Three figures. *Stacks* are the stacks that arrived; *weight* is the CPU time that they say they stand for, in sampling
//! periods: kernels whose tick is coarser than the period merge several expiries into one signal, and only a profiler that
//! reads how many (`si_overrun`, timer_getoverrun(2)) gets the second figure right. *Whole stacks*, of ours: the share of the weight whose
//! stack reaches the first function of its thread. CPU seconds are the whole process's
//! while the profiler ran, its own threads included. In the spin loop, every other
//! thread was there before the profiler.

use profiler_tests::Result;

use super::Row;
use crate::lab::{Lab, Outcome};
use crate::report::{Line, Report};
use crate::shop::Serving;
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "completeness", what: "what share of the CPU time is in the profile", measure };

/// Threads and rate of a spin loop.
const LOOPS: [(u32, u32); 5] = [(1, 100), (2, 100), (8, 100), (64, 100), (2, 1000)];
const SHOP_RATES: [u32; 2] = [100, 1000];

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 3 } else { 15 };
    for (threads, rate) in LOOPS {
        let task =
            ["task=spin".into(), format!("threads={threads}"), format!("seconds={seconds}"), format!("rate={rate}")];
        add(report, &format!("spin loop, {threads} busy, {rate} Hz"), rate, &|who| lab.run(who, &task))?;
    }
    for rate in SHOP_RATES {
        add(report, &format!("shop under load, {rate} Hz"), rate, &|who| {
            lab.serve(who, Serving { rate_hz: rate, spans: false }, seconds)
        })?;
    }
    Ok(())
}

fn add(report: &mut Report, what: &str, rate: u32, outcome: &dyn Fn(Who) -> Result<Outcome>) -> Result<()> {
    let (mut stacks, mut weight, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for who in Who::PROFILERS {
        let outcome = outcome(who)?;
        let due = outcome.figure("cpu_seconds")? * f64::from(rate);
        stacks.extend(outcome.stacks.map(|stacks| (who, stacks / due)));
        weight.extend(outcome.weight.map(|weight| (who, weight / due)));
        whole.extend(outcome.whole.map(|whole| (who, whole)));
    }
    for (of, digits, values) in [("stacks", 3, stacks), ("weight", 3, weight), ("whole stacks", 4, whole)] {
        report.add(Line { row: ROW.name, what: format!("{of}, {what}"), unit: "", digits, values });
    }
    Ok(())
}
