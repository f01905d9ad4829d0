//! The cost of one sample: CPU time that the signal handler takes from the thread it interrupts, at stacks 20 and 60 deep.
//!
//! The profiler's own signal is recorded once and then sent to the busy thread again and again (`signal`), in batches that
//! alternate with batches for a handler that does nothing; the row is the median of the former less that of the latter.
//! So the kernel's work of delivery, the same for everybody, is not in it. Once with the same stack each time, which is the
//! best case of whoever remembers anything, and once with stacks that differ in every frame, which is the worst. *Kept* is the share of the samples that were
//! taken for good: a handler that gives up is cheap.

use profiler_tests::Result;
use profiler_tests::statistics::median;
use serde_json::Value;

use super::Row;
use crate::lab::{Lab, Outcome};
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "cost", what: "CPU time of one sample in the handler", measure };

/// The features by which `pprof` unwinds otherwise than by its default, libgcc.
const PPROF_UNWINDERS: [&str; 2] = ["frame-pointer", "framehop-unwinder"];

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    for depth in [20, 60] {
        for (stack, described) in [("same", "the same stack"), ("new", "a new stack")] {
            one(lab, report, depth, stack, &format!("{described} of {depth} frames"))?;
        }
    }
    Ok(())
}

fn one(lab: &Lab, report: &mut Report, depth: u32, stack: &str, described: &str) -> Result<()> {
    let batches = if lab.quick { 20 } else { 100 };
    let options = [format!("depth={depth}"), format!("batches={batches}"), format!("stack={stack}")];
    let task = [&["task=cost".into(), "size=200".into()], &options[..]].concat();
    let (mut handler, mut kept) = (Vec::new(), Vec::new());
    for who in Who::PROFILERS {
        let outcome = lab.run(who, &task)?;
        handler.push((who, micros(&outcome)));
        let sent = outcome.figure("sent")?;
        let stacks = outcome.said["stacks"].as_f64().or(outcome.stacks);
        kept.extend(stacks.map(|stacks| (who, stacks / sent)));
    }
    report.add(Line { row: ROW.name, what: described.into(), unit: "µs", digits: 2, values: handler });
    report.add(Line { row: ROW.name, what: format!("kept, {described}"), unit: "", digits: 3, values: kept });
    for unwinder in PPROF_UNWINDERS {
        let values = vec![(Who::Pprof, micros(&lab.run_pprof(unwinder, &task)?))];
        let what = format!("{described}, {unwinder}");
        report.add(Line { row: ROW.name, what, unit: "µs", digits: 2, values });
    }
    Ok(())
}

/// What one signal costs beyond an empty handler.
fn micros(outcome: &Outcome) -> f64 {
    (median(&numbers(&outcome.said["full_ns"])) - median(&numbers(&outcome.said["empty_ns"]))) / 1e3
}

/// An array of numbers.
pub(super) fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}
