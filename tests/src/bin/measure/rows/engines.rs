//! Completeness by engine: stacks and weight ÷ (CPU seconds × rate) of this profiler with each of its engines, on two busy
//! threads at 100 Hz and 1 kHz, at 1 kHz on two threads that nap for 200 µs after each millisecond, and on threads that are
//! in and out of the kernel (they read their CPU clock every 10 µs). 1 is right.

use profiler_tests::Result;

use super::Row;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "engines", what: "the same under each engine of ours", measure };

const ENGINES: [&str; 4] = ["perf", "timer", "process_timer", "setitimer"];
/// What is done, by how many threads, at which rate, and what that is for the subject.
const LOADS: [(&str, u32, u32, &str); 5] = [
    ("busy", 2, 100, "nap_micros=0"),
    ("busy", 2, 1000, "nap_micros=0"),
    ("with naps", 2, 1000, "nap_micros=200"),
    ("with system calls", 64, 100, "calls=1"),
    ("with system calls", 2, 1000, "calls=1"),
];

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 3 } else { 10 };
    for engine in ENGINES {
        for (described, threads, rate, option) in LOADS {
            let numbers = [format!("threads={threads}"), format!("seconds={seconds}"), format!("rate={rate}")];
            let task = [&["task=spin".into(), option.into()], &numbers[..]].concat();
            let outcome = lab.run_engine(engine, &task)?;
            let due = outcome.figure("cpu_seconds")? * f64::from(rate);
            for (of, figure) in [("stacks", outcome.stacks), ("weight", outcome.weight)] {
                let values = figure.map(|figure| (Who::Ours, figure / due)).into_iter().collect();
                let what = format!("{of}, {engine}, {threads} {described}, {rate} Hz");
                report.add(Line { row: ROW.name, what, unit: "", digits: 3, values });
            }
        }
    }
    Ok(())
}
