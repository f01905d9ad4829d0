//! The longest call of a thread that allocates and frees sampled blocks all the time, while nobody asks for a profile and while one is made
//! after the other, with 100,000 and with a million live samples of 4,096 sites.
//!
//! *Running* is without the time for which the thread waited for a processor: that is what a profile is to blame for. What a hypervisor takes away, the kernel does not
//! count so, and some milliseconds of it come at any time, profile or not. What profiles do, each of hundreds does, so that it is in each run: of several, the least
//! counts, and the greatest is beside it. It is to be a millisecond at most while profiles are made; where it is more, its line says so, and the row fails behind its last line.

use profiler_tests::Result;
use serde_json::Value;

use super::{ROW, options};
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

const LIVE: [u32; 2] = [100_000, 1_000_000];
/// Microseconds that no call may take longer for a profile.
const GOAL: f64 = 1_000.0;
/// Runs of which the least longest call counts.
const RUNS: usize = 3;

/// Adds the lines.
pub(super) fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let seconds = if lab.quick { 2 } else { 10 };
    let mut too_long = Vec::new();
    for live in LIVE {
        let task = ["task=pause".into(), "lg=0".into(), format!("live={live}"), format!("seconds={seconds}")];
        let runs = (0..RUNS).map(|_| run(lab, live, &task)).collect::<Result<Vec<_>>>()?;
        let captures: u64 = runs.iter().filter_map(|said| said["captures"].as_u64()).sum();
        for (phase, described) in [("quiet", "no profile".to_owned()), ("asked", format!("{captures} profiles"))] {
            for (of, name) in [("running", "running_micros"), ("by the clock", "all_micros")] {
                let micros =
                    |said: &Value| said[phase][name].as_f64().ok_or_else(|| format!("no {name} of {phase}: {said}"));
                let all = runs.iter().map(micros).collect::<Result<Vec<_>, _>>()?;
                let micros = all.iter().copied().fold(f64::MAX, f64::min);
                let greatest = all.iter().copied().fold(0.0, f64::max);
                let is_too_long = phase == "asked" && of == "running" && micros > GOAL;
                let verdict = if is_too_long { ", NOT REACHED" } else { "" };
                let what = format!(
                    "longest call, {of}, least of {RUNS} runs (greatest {greatest:.0}), {live} live, {described}{verdict}"
                );
                if is_too_long {
                    too_long.push(what.clone());
                }
                report.add(Line { row: ROW.name, what, unit: "µs", digits: 0, values: vec![(Who::Ours, micros)] });
            }
        }
    }
    if too_long.is_empty() { Ok(()) } else { Err(format!("above {GOAL} µs: {too_long:?}").into()) }
}

/// What one run says, in which so many samples live and a profile was made at least.
fn run(lab: &Lab, live: u32, task: &[String]) -> Result<Value> {
    let said = lab.run_heap(Who::Ours, &options(Who::Ours, 0), task)?;
    if said["captures"].as_u64().unwrap_or(0) == 0 || said["live"].as_u64().unwrap_or(0) < u64::from(live) {
        return Err(format!("too few samples live, or no profile was made: {said}").into());
    }
    Ok(said)
}
