//! The cost of one sample: CPU time that the signal handler takes from the thread it interrupts, at stacks 20 and 60 deep.
//!
//! The profiler's own signal is recorded once and then sent to the busy thread again and again (`signal`), in batches that
//! alternate with batches for a handler that does nothing; the row is the median of the former less that of the latter.
//! So the kernel's work of delivery, the same for everybody, is not in it. *Kept* is the share of the samples that were
//! taken for good: a handler that gives up is cheap.

use profiler_tests::Result;
use profiler_tests::statistics::median;
use serde_json::Value;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "cost", what: "CPU time of one sample in the handler", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let batches = if lab.quick { 20 } else { 100 };
    for depth in [20, 60] {
        let task = ["task=cost".into(), format!("depth={depth}"), format!("batches={batches}"), "size=200".into()];
        let (mut handler, mut kept) = (Vec::new(), Vec::new());
        for who in Who::PROFILERS {
            let outcome = lab.run(who, &task)?;
            let (full, empty) = (numbers(&outcome.said["full_ns"]), numbers(&outcome.said["empty_ns"]));
            handler.push((who, (median(&full) - median(&empty)) / 1e3));
            let sent = outcome.said["sent"].as_f64().ok_or("it did not say how many signals it sent")?;
            let stacks = outcome.said["stacks"].as_f64().or(outcome.stacks);
            kept.extend(stacks.map(|stacks| (who, stacks / sent)));
        }
        let what = format!("one sample, {depth} frames of recursion");
        report.add(Line { row: ROW.name, what, unit: "µs", digits: 2, values: handler });
        let what = format!("kept of them, {depth} frames");
        report.add(Line { row: ROW.name, what, unit: "", digits: 3, values: kept });
    }
    Ok(())
}

fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}
