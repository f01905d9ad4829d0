//! Idle cost: CPU of a process at rest with profiling on, as a share of one core.
//!
//! Eight threads that wait, for 15 s, after a first second that is not counted. The column of nobody is the same without
//! a profiler. A profiler whose timers run on CPU clocks takes no sample here; what is left are its own threads.

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "rest", what: "CPU of a process at rest", measure };

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 4 } else { 15 };
    let task = ["task=rest".into(), "threads=8".into(), format!("seconds={seconds}")];
    let mut values = Vec::new();
    for who in Who::ALL {
        let said = lab.run(who, &task)?.said;
        let (cpu, time) = (said["cpu_seconds"].as_f64(), said["seconds"].as_f64());
        values.extend(cpu.zip(time).map(|(cpu, time)| (who, 100.0 * cpu / time)));
    }
    let what = format!("of a core, 8 waiting threads, {seconds} s");
    report.add(Line { row: ROW.name, what, unit: "%", digits: 4, values });
    Ok(())
}
