//! What a profiler costs the shop at 100 Hz, twice.
//!
//! *Computed*, for this one: (samples × (handler + delivery of the signal) + CPU time of its own threads) ÷ CPU time of the
//! process, all from counters: the samples and the threads' clocks in the shop under load, handler and delivery from the cost
//! of one signal at stacks of 60 frames. *Paired*: CPU time per request with the profiler ÷ without, of two shops side by side, so that
//! what else happens on the machine happens to both; the mean and the upper end of its 95 % interval (Student's t). This one
//! also by its own program turned off: two programs differ in where their common code lies, too.
//!
//! Once as it is and once more with a span for each request on either side, and under this profiler with tags, too: then
//! what the row `tags` measures belongs to the computed figure.

use profiler_tests::Result;
use profiler_tests::statistics::{mean, median, upper_bound};

use super::Row;
use super::cost::numbers;
use super::tags::nanos;
use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "overhead", what: "what it costs the shop", measure };

const RATE_HZ: u32 = 100;
fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    both(lab, report, &Who::PROFILERS, false, "")?;
    both(lab, report, &[Who::Ours], true, ", tags and a span per request")
}

/// Both figures, of `all`.
fn both(lab: &Lab, report: &mut Report, all: &[Who], spans: bool, described: &str) -> Result<()> {
    // Runs differ more than what passes within one: many short ones. Ours must be told from nothing, the peers' need not.
    let (pairs, peers, seconds) = if lab.quick { (3, 3, 3) } else { (60, 20, 5) };
    for (base, all, name) in [(Who::Nobody, all, "none"), (Who::Off, &[Who::Ours], "itself turned off")] {
        let ratios = all.iter().map(|&who| {
            let pairs = if who == Who::Ours { pairs } else { peers };
            Ok((who, (0..pairs).map(|_| ratio(lab, who, base, seconds, spans)).collect::<Result<Vec<_>>>()?))
        });
        let ratios = ratios.collect::<Result<Vec<_>>>()?;
        let peers = if all.len() > 1 { format!(" (peers {peers})") } else { String::new() };
        for (of, figure) in [("mean", mean as fn(&[f64]) -> f64), ("upper 95 % bound", upper_bound)] {
            let values = ratios.iter().map(|(who, ratios)| (*who, figure(ratios))).collect();
            let what = format!("CPU per request ÷ {name}, {of} of {pairs} pairs{peers}{described}");
            report.add(Line { row: ROW.name, what, unit: "", digits: 3, values });
        }
    }
    // Over two windows at least: what is done once, the first search for names above all, is not what a service pays for.
    let seconds = if lab.quick { seconds } else { 60 };
    let share = 100.0 * computed(lab, seconds, spans)?;
    let what = format!("of the process in {seconds} s, computed, {RATE_HZ} Hz{described}");
    report.add(Line { row: ROW.name, what, unit: "%", digits: 3, values: vec![(Who::Ours, share)] });
    Ok(())
}

/// CPU time per request under `who` ÷ that of `base`, at the same time.
fn ratio(lab: &Lab, who: Who, base: Who, seconds: u64, spans: bool) -> Result<f64> {
    let each = |who: Who| -> Result<f64> {
        let outcome = lab.serve(who, RATE_HZ, seconds, spans)?;
        Ok(outcome.figure("cpu_seconds")? / outcome.figure("requests")?)
    };
    std::thread::scope(|scope| {
        let with = scope.spawn(|| each(who).map_err(|error| error.to_string()));
        let without = each(base)?;
        Ok(with.join().map_err(|_| "a run panicked")?? / without)
    })
}

fn computed(lab: &Lab, seconds: u64, spans: bool) -> Result<f64> {
    let cost = ["task=cost", "depth=60", "batches=30", "size=200", "stack=same"].map(String::from);
    let full = lab.run(Who::Ours, &cost)?;
    let signal = median(&numbers(&full.said["full_ns"])) / 1e9;
    let shop = lab.serve(Who::Ours, RATE_HZ, seconds, spans)?;
    let told = if spans { told(lab, shop.figure("requests")?, shop.figure("polls")?)? } else { 0.0 };
    let samples = shop.stacks.ok_or("no stacks arrived")?;
    Ok((samples * signal + shop.figure("own_cpu_seconds")? + told) / shop.figure("cpu_seconds")?)
}

/// What it takes to tell the profiler of so many requests, in seconds: of each whose future is polled once as the row `tags` has it, and
/// of the other polls.
fn told(lab: &Lab, requests: f64, polls: f64) -> Result<f64> {
    let task = ["task=tags", "threads=1", "rounds=100000"].map(String::from);
    let (with, without) = (lab.run(Who::Ours, &task)?, lab.run(Who::Nobody, &task)?);
    let of = |outcome, name| nanos(outcome, name).ok_or_else(|| format!("no figure for {name}"));
    let added = |name| Ok::<_, String>(of(&with, name)? - of(&without, name)?);
    let poll = of(&with, "poll")? - of(&with, "bare poll")? + added("span")?;
    Ok((requests * added("request")? + (polls - requests).max(0.0) * poll) / 1e9)
}
