//! What requests pay that allocate 64 to 512 KiB each in small pieces, and what the shop's pay, which are ordinary.
//!
//! *Paired*: CPU time per request ÷ that on jemalloc without profiling, of two programs side by side; the mean and the upper end of its
//! 95 % interval (Student's t). Each has made its first profile before anything counts, and makes one more meanwhile. *Computed*, for ours:
//! (samples × what one costs at 60 frames + CPU time of its own threads) ÷ CPU time of the process, from counters.

use profiler_tests::Result;
use profiler_tests::statistics::{mean, upper_bound};
use serde_json::Value;

use super::{ROW, options};
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// Threads of each program.
const THREADS: u32 = 2;
/// CPU samples a second where they belong to what is measured: the default.
const RATE_HZ: u32 = 100;
/// The default of jemalloc, half of ours.
const LG_INTERVAL: u32 = 19;

/// Adds the lines; `cost` is that of a sample, in nanoseconds.
pub(super) fn measure(lab: &Lab, report: &mut Report, cost: f64) -> Result<()> {
    let (pairs, others) = if lab.quick { (3, 3) } else { (40, 15) };
    let line = |of: &str, described: &str, values| {
        let what = format!("CPU per request ÷ without, {of}{described}");
        Line { row: ROW.name, what, unit: "", digits: 3, values }
    };
    let (mut means, mut bounds) = (Vec::new(), Vec::new());
    let all = [(Who::Ours, pairs), (Who::BareHooks, others), (Who::Jemalloc, others), (Who::JemallocPprof, others)];
    for (who, pairs) in all {
        let ratios = ratios(lab, who, &options(who, LG_INTERVAL), 1, pairs)?;
        means.push((who, mean(&ratios)));
        bounds.push((who, upper_bound(&ratios)));
    }
    report.add(line(&format!("mean of {pairs} pairs (the others {others})"), ", each at its default", means));
    report.add(line("upper 95 % bound", ", each at its default", bounds));
    let as_often = format!("lg_prof_sample:{LG_INTERVAL}");
    let with_cpu = format!(", with CPU samples at {RATE_HZ} Hz");
    for (described, options, rate_hz) in
        [(", as often as jemalloc", as_often.as_str(), 1), (with_cpu.as_str(), "", RATE_HZ)]
    {
        let ratios = ratios(lab, Who::Ours, options, rate_hz, others)?;
        report.add(line(&format!("mean of {others}"), described, vec![(Who::Ours, mean(&ratios))]));
        report.add(line("upper 95 % bound", described, vec![(Who::Ours, upper_bound(&ratios))]));
    }
    let seconds = if lab.quick { 5 } else { 30 };
    for (what, said) in [("such requests", one(lab, Who::Ours, "", 1)?), ("the shop", lab.serve_heap(seconds)?)] {
        let values = vec![(Who::Ours, 100.0 * computed(&said, cost)?)];
        report.add(Line { row: ROW.name, what: format!("computed, {what}"), unit: "%", digits: 3, values });
        let each = figure(&said, "sampled")? / figure(&said, "cpu_seconds")?;
        let what = format!("samples per CPU second, {what}");
        report.add(Line { row: ROW.name, what, unit: "1/s", digits: 0, values: vec![(Who::Ours, each)] });
    }
    Ok(())
}

/// CPU time per request under `who` ÷ that without a profiler, at the same time; so many.
fn ratios(lab: &Lab, who: Who, options_of_who: &str, rate_hz: u32, pairs: u32) -> Result<Vec<f64>> {
    let each = |who: Who, options: &str| -> Result<f64> {
        let said = one(lab, who, options, rate_hz)?;
        Ok(figure(&said, "cpu_seconds")? / figure(&said, "requests")?)
    };
    let ratio = |_| {
        std::thread::scope(|scope| {
            let with = scope.spawn(|| each(who, options_of_who).map_err(|error| error.to_string()));
            let without = each(Who::Nobody, &options(Who::Nobody, LG_INTERVAL))?;
            Ok(with.join().map_err(|_| "a run panicked")?? / without)
        })
    };
    (0..pairs).map(ratio).collect()
}

/// One run. It lasts so long that one profile is due within it.
fn one(lab: &Lab, who: Who, options: &str, rate_hz: u32) -> Result<Value> {
    let (interval, seconds) = if lab.quick { (2.0, 2.2) } else { (10.0, 10.5) };
    let task = ["task=requests".to_owned(), format!("threads={THREADS}"), format!("rate={rate_hz}")];
    let times = [format!("interval={interval}"), format!("seconds={seconds}")];
    lab.run_heap(who, options, &[&task[..], &times[..]].concat())
}

fn computed(said: &Value, cost: f64) -> Result<f64> {
    let spent = figure(said, "sampled")? * cost / 1e9 + figure(said, "own_cpu_seconds")?;
    Ok(spent / figure(said, "cpu_seconds")?)
}

/// A figure that the program said.
fn figure(said: &Value, name: &str) -> Result<f64> {
    said[name].as_f64().ok_or_else(|| format!("the program did not say {name}").into())
}
