//! What a profiler costs the shop at 100 Hz, twice.
//!
//! *Computed*, for this one: (samples × (handler + delivery of the signal) + CPU time of its own threads) ÷ CPU time of the
//! process, all from counters: the samples and the threads' clocks in the shop under load, handler and delivery from the cost
//! of one signal at stacks of 60 frames. What is done once (the first search for names above all) is told by itself. *Paired*: CPU time per request with the profiler ÷ without, of shops that serve in turn,
//! a second each, so that what else happens on the machine happens to all; the geometric mean and the upper end of its 95 % interval (Student's t). What is
//! done once, the start and the first search for names, is over before it is counted; what is done at each interval falls into the
//! turns as often as into the time between.
//! Ours is compared with its own program turned off, too: two programs differ in where their common code lies, and both have tags. And with itself paused
//! and requests without tags, or one of both, or as it is, a quarter of a second each in turn within one process: two processes differ in where their memory lies, by more than what is
//! looked for here. What it does at each interval counts to both then, as does the look at the current span; they are in the computed figure.
//!
//! Once as it is and once more with a span for each request on either side, and under this profiler with tags, too: then
//! what the row `tags` measures belongs to the computed figure.

use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::statistics::{geometric, median};

use super::Row;
use super::cost::numbers;
use super::tags::nanos;
use crate::lab::{Lab, WARM};
use crate::report::{Line, Report};
use crate::shop::Serving;
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "overhead", what: "what it costs the shop", measure: plain };
/// The same with tags and spans.
pub(crate) const TOLD: Row =
    Row { name: "overhead-told", what: "the same with tags and a span per request", measure: told };
/// The same against itself with less of it.
pub(crate) const ITSELF: Row =
    Row { name: "overhead-itself", what: "that in turn with less of it, within one process", measure: to_itself };

const RATE_HZ: u32 = 100;
/// With a span for each request and, under our profiler, tags.
const TOLD_SERVING: (Serving, &str) = (Serving { rate_hz: RATE_HZ, spans: true }, ", tags and a span per request");

fn plain(lab: &Lab, report: &mut Report) -> Result<()> {
    both(lab, report, &Who::PROFILERS, Serving { rate_hz: RATE_HZ, spans: false }, "")
}

fn told(lab: &Lab, report: &mut Report) -> Result<()> {
    let (serving, described) = TOLD_SERVING;
    both(lab, report, &[Who::Ours], serving, described)
}

/// Both figures, of `all`; the one that is soon known first.
fn both(lab: &Lab, report: &mut Report, all: &[Who], serving: Serving, described: &str) -> Result<()> {
    let seconds = if lab.quick { 3 } else { 60 };
    let (parts, once) = computed(lab, seconds, serving)?;
    let whole = ("in all", parts.iter().map(|(_, share)| share).sum());
    for (part, share) in parts.into_iter().chain([whole]) {
        let what = format!("of the process in {seconds} s, computed, {RATE_HZ} Hz{described}: {part}");
        report.add(Line { row: ROW.name, what, unit: "%", digits: 3, values: vec![(Who::Ours, 100.0 * share)] });
    }
    let what = format!("once, before these {seconds} s, by its threads{described}");
    report.add(Line { row: ROW.name, what, unit: "ms", digits: 1, values: vec![(Who::Ours, 1e3 * once)] });
    paired(lab, report, all, serving, described)
}

fn paired(lab: &Lab, report: &mut Report, all: &[Who], serving: Serving, described: &str) -> Result<()> {
    // Runs differ more than what passes within one: many of them. Ours must be told from nothing, the peers' need not.
    let (runs, of_peers) = if lab.quick { (3, 3) } else { (20, 4) };
    let (mut to_none, mut to_itself) = (Vec::new(), Vec::new());
    for &who in all {
        let is_ours = who == Who::Ours;
        let beside = if is_ours { &[Who::Nobody, Who::Ours, Who::Off][..] } else { &[Who::Nobody, who] };
        let runs = 0..if is_ours { runs } else { of_peers };
        let spent = runs.map(|run| spent(lab, beside, serving, run)).collect::<Result<Vec<_>>>()?;
        to_none.push((who, spent.iter().map(|each| each[1] / each[0]).collect::<Vec<_>>()));
        if is_ours {
            to_itself.push((who, spent.iter().map(|each| each[1] / each[2]).collect()));
        }
    }
    for (ratios, name) in [(to_none, "none"), (to_itself, "itself turned off")] {
        let peers = if ratios.len() > 1 { format!(" (peers {of_peers})") } else { String::new() };
        let means: Vec<_> = ratios.iter().map(|(who, ratios)| (*who, geometric(ratios))).collect();
        let described = format!("of {runs} runs{peers}{described}");
        report.add(line(&format!("{name}, mean {described}"), means.iter().map(|(who, (mean, _))| (*who, *mean))));
        report.add(line(
            &format!("{name}, upper 95 % bound {described}"),
            means.iter().map(|(who, (_, upper))| (*who, *upper)),
        ));
    }
    Ok(())
}

/// CPU per request, divided by what `of` names.
fn line(of: &str, values: impl Iterator<Item = (Who, f64)>) -> Line {
    Line { row: ROW.name, what: format!("CPU per request ÷ {of}"), unit: "", digits: 3, values: values.collect() }
}

/// Against itself paused, untagged, and both, within one process; some processes, for one may lie well or badly. And against itself as it is: what
/// the comparison finds where there is nothing to be found.
fn to_itself(lab: &Lab, report: &mut Report) -> Result<()> {
    let (serving, told) = TOLD_SERVING;
    for (what, name, processes) in [
        ("both", "itself paused and untagged", 4),
        ("tags", "itself untagged", 2),
        ("samples", "itself paused", 2),
        ("nothing", "itself", 2),
    ] {
        let (processes, pairs) = if lab.quick { (1, 10) } else { (processes, 100) };
        let each = (0..processes).map(|_| lab.serve_without(what, serving, Duration::from_millis(250), pairs));
        let ratios = each.collect::<Result<Vec<_>>>()?.concat();
        let (mean, upper) = geometric(&ratios);
        let described = format!("of {} pairs in {processes} processes{told}", ratios.len());
        for (of, value) in [("mean", mean), ("median", median(&ratios)), ("upper 95 % bound of the mean", upper)] {
            report.add(line(&format!("{name}, {of} {described}"), [(Who::Ours, value)].into_iter()));
        }
    }
    Ok(())
}

/// CPU time per request under each of `all`, in turn.
fn spent(lab: &Lab, all: &[Who], serving: Serving, run: usize) -> Result<Vec<f64>> {
    // Longer than one interval of each profiler; then turns so short that what else happens on the machine happens to all.
    let (warm, rounds) = if lab.quick { (Duration::from_secs(1), 3) } else { (WARM, 5) };
    let turn = Duration::from_secs(1);
    // Each is the first to start as often as the others.
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.rotate_left(run % all.len());
    let in_order: Vec<Who> = order.iter().map(|place| all[*place]).collect();
    let in_turn = lab.serve_in_turn(&in_order, serving, warm, turn, rounds)?;
    let mut each = vec![0.0; all.len()];
    order.iter().zip(in_turn).for_each(|(place, spent)| each[*place] = spent);
    Ok(each)
}

/// What it takes of the process's CPU time, by what takes it, and the seconds that its threads took before that.
fn computed(lab: &Lab, seconds: u64, serving: Serving) -> Result<([(&'static str, f64); 3], f64)> {
    let cost = ["task=cost", "depth=60", "batches=30", "size=200", "stack=same"].map(String::from);
    let full = lab.run(Who::Ours, &cost)?;
    let signal = median(&numbers(&full.said["full_ns"])) / 1e9;
    let shop = lab.serve(Who::Ours, serving, seconds)?;
    let told = if serving.spans { telling(lab, shop.figure("requests")?, shop.figure("polls")?)? } else { 0.0 };
    let (samples, whole) = (shop.stacks.ok_or("no stacks arrived")?, shop.figure("cpu_seconds")?);
    let shares = [
        ("samples", samples * signal / whole),
        ("its threads", shop.figure("own_share")?),
        ("tags and spans", told / whole),
    ];
    Ok((shares, shop.figure("own_seconds_once")?))
}

/// What it takes to tell the profiler of so many requests, in seconds: of each whose future is polled once as the row `tags` has it, and
/// of the other polls.
fn telling(lab: &Lab, requests: f64, polls: f64) -> Result<f64> {
    let task = ["task=tags", "threads=1", "rounds=100000"].map(String::from);
    let (with, without) = (lab.run(Who::Ours, &task)?, lab.run(Who::Nobody, &task)?);
    let of = |outcome, name| nanos(outcome, name).ok_or_else(|| format!("no figure for {name}"));
    let added = |name| Ok::<_, String>(of(&with, name)? - of(&without, name)?);
    let poll = of(&with, "poll")? - of(&with, "bare poll")? + added("span")?;
    Ok((requests * added("request")? + (polls - requests).max(0.0) * poll) / 1e9)
}
