//! What requests pay that allocate 64 to 512 KiB each in small pieces, and what the shop's pay, which are ordinary.
//!
//! *Paired*: CPU time per request ÷ that on jemalloc without profiling; the geometric mean and the upper end of its 95 % interval (Student's t). It has
//! two parts, for they vary differently. What the threads that answer pay, which hangs on where the linker and the kernel put things, is compared in many
//! short pairs of fresh programs side by side, each behind its first profile. What the profiler's own threads take, which counters
//! tell exactly, is added from one run that is so long that a profile is due within it. *Computed*, for ours: (samples × what one costs at 60
//! frames + CPU time of its own threads) ÷ CPU time of the process, from counters; what these do once, the first search for names above all, is told by itself.

use profiler_tests::Result;
use profiler_tests::statistics::geometric;
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

/// A profiler with its settings.
struct Setting<'a> {
    who: Who,
    options: &'a str,
    rate_hz: u32,
}

/// Adds the lines; `cost` is that of a sample, in nanoseconds.
pub(super) fn measure(lab: &Lab, report: &mut Report, cost: f64) -> Result<()> {
    let such = defaults(lab, report)?;
    variants(lab, report)?;
    let shop = lab.serve_heap(if lab.quick { 5 } else { 30 })?;
    let values = vec![(Who::Ours, 1e3 * figure(&shop, "own_seconds_once")?)];
    report.add(Line { row: ROW.name, what: "once, by its threads, the shop".into(), unit: "ms", digits: 1, values });
    // Behind the first profile, both.
    let of_such = figure(&such, "own_cpu_seconds")? / figure(&such, "cpu_seconds")?;
    let of_shop = figure(&shop, "own_share")?;
    for (what, said, own) in [("such requests", such, of_such), ("the shop", shop, of_shop)] {
        let spent = figure(&said, "sampled")? * cost / 1e9;
        let values = vec![(Who::Ours, 100.0 * (spent / figure(&said, "cpu_seconds")? + own))];
        report.add(Line { row: ROW.name, what: format!("computed, {what}"), unit: "%", digits: 3, values });
        let each = figure(&said, "sampled")? / figure(&said, "cpu_seconds")?;
        let what = format!("samples per CPU second, {what}");
        report.add(Line { row: ROW.name, what, unit: "1/s", digits: 0, values: vec![(Who::Ours, each)] });
    }
    Ok(())
}

/// All of them as they are by default; what the long run of ours said.
fn defaults(lab: &Lab, report: &mut Report) -> Result<Value> {
    let (pairs, others) = if lab.quick { (3, 2) } else { (20, 6) };
    let (mut means, mut bounds, mut such) = (Vec::new(), Vec::new(), Value::Null);
    let all = [(Who::Ours, pairs), (Who::BareHooks, others), (Who::Jemalloc, others), (Who::JemallocPprof, others)];
    for (who, pairs) in all {
        let setting = Setting { who, options: &options(who, LG_INTERVAL), rate_hz: 1 };
        let long = long(lab, &setting)?;
        let ratios = ratios(lab, &setting, pairs, own(&long)?)?;
        let (mean, upper) = geometric(&ratios);
        means.push((who, mean));
        bounds.push((who, upper));
        if who == Who::Ours {
            such = long;
        }
    }
    report.add(line(&format!("mean of {pairs} pairs (the others {others}), each at its default"), means));
    report.add(line("upper 95 % bound, each at its default", bounds));
    Ok(such)
}

/// Ours with other settings than those of the comparison.
fn variants(lab: &Lab, report: &mut Report) -> Result<()> {
    let pairs = if lab.quick { 2 } else { 5 };
    let as_often = format!("lg_prof_sample:{LG_INTERVAL}");
    let with_cpu = format!("with CPU samples at {RATE_HZ} Hz");
    for (described, options, rate_hz) in
        [("as often as jemalloc", as_often.as_str(), 1), (with_cpu.as_str(), "", RATE_HZ)]
    {
        let setting = Setting { who: Who::Ours, options, rate_hz };
        let own = own(&long(lab, &setting)?)?;
        let ratios = ratios(lab, &setting, pairs, own)?;
        let (mean, upper) = geometric(&ratios);
        report.add(line(&format!("mean of {pairs}, {described}"), vec![(Who::Ours, mean)]));
        report.add(line(&format!("upper 95 % bound, {described}"), vec![(Who::Ours, upper)]));
    }
    Ok(())
}

fn line(of: &str, values: Vec<(Who, f64)>) -> Line {
    Line { row: ROW.name, what: format!("CPU per request ÷ without, {of}"), unit: "", digits: 3, values }
}

/// CPU time per request with `setting` ÷ that without a profiler, at the same time; so many. `own` is what its threads take beside, of one.
fn ratios(lab: &Lab, setting: &Setting<'_>, pairs: u32, own: f64) -> Result<Vec<f64>> {
    let nobody = options(Who::Nobody, LG_INTERVAL);
    let without = Setting { who: Who::Nobody, options: &nobody, rate_hz: 1 };
    let ratio = |_| {
        std::thread::scope(|scope| {
            let with = scope.spawn(|| answering(lab, setting).map_err(|error| error.to_string()));
            let without = answering(lab, &without)?;
            Ok(with.join().map_err(|_| "a run panicked")?? / without * (1.0 + own))
        })
    };
    (0..pairs).map(ratio).collect()
}

/// CPU time per request of the threads that answer, in a short run.
fn answering(lab: &Lab, setting: &Setting<'_>) -> Result<f64> {
    let said = one(lab, setting, 10.0, if lab.quick { 1.0 } else { 3.0 })?;
    Ok((figure(&said, "cpu_seconds")? - figure(&said, "own_cpu_seconds")?) / figure(&said, "requests")?)
}

/// A run within which one profile is due.
fn long(lab: &Lab, setting: &Setting<'_>) -> Result<Value> {
    let (interval, seconds) = if lab.quick { (2.0, 2.2) } else { (10.0, 10.5) };
    one(lab, setting, interval, seconds)
}

/// CPU time of the profiler's threads ÷ that of all others.
fn own(said: &Value) -> Result<f64> {
    let own = figure(said, "own_cpu_seconds")?;
    Ok(own / (figure(said, "cpu_seconds")? - own))
}

fn one(lab: &Lab, setting: &Setting<'_>, interval: f64, seconds: f64) -> Result<Value> {
    let Setting { who, options, rate_hz } = *setting;
    let task = ["task=requests".to_owned(), format!("threads={THREADS}"), format!("rate={rate_hz}")];
    let times = [format!("interval={interval}"), format!("seconds={seconds}")];
    lab.run_heap(who, options, &[&task[..], &times[..]].concat())
}

/// A figure that the program said.
fn figure(said: &Value, name: &str) -> Result<f64> {
    said[name].as_f64().ok_or_else(|| format!("the program did not say {name}").into())
}
