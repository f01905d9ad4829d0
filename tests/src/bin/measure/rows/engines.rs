//! Completeness by engine: stacks and weight ÷ (CPU seconds × rate) of this profiler with each of its engines, on two busy
//! threads at 100 Hz and 1 kHz, and at 1 kHz on two threads that nap for 200 µs after each millisecond. 1 is right.

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "engines", what: "the same under each engine of ours", measure };

const ENGINES: [&str; 4] = ["perf", "timer", "process_timer", "setitimer"];
/// Rate and naps in microseconds.
const LOADS: [(u32, u32); 3] = [(100, 0), (1000, 0), (1000, 200)];

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 3 } else { 10 };
    for engine in ENGINES {
        for (rate, nap) in LOADS {
            let options = [format!("seconds={seconds}"), format!("rate={rate}"), format!("nap_micros={nap}")];
            let task = [&["task=spin".into(), "threads=2".into()], &options[..]].concat();
            let outcome = lab.run_engine(engine, &task)?;
            let due = outcome.figure("cpu_seconds")? * f64::from(rate);
            let described = if nap == 0 { "busy" } else { "with naps" };
            for (of, figure) in [("stacks", outcome.stacks), ("weight", outcome.weight)] {
                let values = figure.map(|figure| (Who::Ours, figure / due)).into_iter().collect();
                let what = format!("{of}, {engine}, 2 {described}, {rate} Hz");
                report.add(Line { row: ROW.name, what, unit: "", digits: 3, values });
            }
        }
    }
    Ok(())
}
