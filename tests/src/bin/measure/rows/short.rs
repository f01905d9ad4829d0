//! Work that sampling is easily unfair to: threads that live for 5 ms of CPU time each, and threads that work for 3 ms and
//! rest for 7, in step with the period. Weight ÷ (CPU seconds × rate) at 100 Hz; 1 is right.

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "short", what: "threads that live shortly, and that work in bursts", measure };

const RATE_HZ: u32 = 100;

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 3 } else { 15 };
    for (task, described) in [("short", "threads of 5 ms"), ("bursts", "bursts of 3 ms")] {
        let task = [format!("task={task}"), format!("seconds={seconds}"), format!("rate={RATE_HZ}")];
        let mut values = Vec::new();
        for who in Who::PROFILERS {
            let outcome = lab.run(who, &task)?;
            let due = outcome.figure("cpu_seconds")? * f64::from(RATE_HZ);
            values.extend(outcome.weight.map(|weight| (who, weight / due)));
        }
        report.add(Line { row: ROW.name, what: format!("weight, {described}"), unit: "", digits: 3, values });
    }
    Ok(())
}
