//! What the sidecar costs and how soon it knows: the rows `sidecar-*`, one a file.
//!
//! All are of the agent as `deploy/Dockerfile` makes it (`--profile dist`), run as root beside real Go programs (`sidecar/tests/go`), and nothing else. Its peer is the
//! OpenTelemetry eBPF profiler, which `cost::peer` runs on the same work.
//!
//! Where something is missing that a row needs, the report says NOT RUN, and what.

pub(crate) mod cost;
pub(crate) mod runtime;
pub(crate) mod symbols;
pub(crate) mod target;

use std::thread::sleep;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::statistics::{median, median_bounds, quantile};

use crate::lab::Lab;
use crate::pod::Pod;
use crate::report::{Line, Report};
use crate::who::Who;

/// What all names of these rows begin with.
pub(crate) const PREFIX: &str = "sidecar-";

/// What a row needs besides root and Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Ebpf,
    Nothing,
}

/// Measures where that can be done.
fn on_pod(
    lab: &Lab,
    report: &mut Report,
    row: &'static str,
    needs: Needs,
    measure: fn(&Pod, &Lab, &mut Report) -> Result<()>,
) -> Result<()> {
    if let Some(lacks) = Pod::lacks() {
        report.not_run(row, lacks);
        return Ok(());
    }
    let pod = Pod::of(lab)?;
    match pod.lacks_ebpf()? {
        Some(lacks) if needs == Needs::Ebpf => report.not_run(row, lacks),
        _ => measure(pod, lab, report)?,
    }
    Ok(())
}

/// Adds a figure of the agent's.
fn say(report: &mut Report, row: &'static str, what: impl Into<String>, unit: &'static str, digits: usize, value: f64) {
    report.add(Line { row, what: what.into(), unit, digits, values: vec![(Who::Ours, value)] });
}

/// Adds the middle of several figures, and between which they were.
fn spread(report: &mut Report, row: &'static str, what: &str, unit: &'static str, digits: usize, values: &[f64]) {
    say(report, row, format!("{what}, median of {}", values.len()), unit, digits, median(values));
    say(report, row, format!("{what}, lowest"), unit, digits, quantile(values, 0.0));
    say(report, row, format!("{what}, highest"), unit, digits, quantile(values, 1.0));
}

/// Adds the middle of ratios, and where the true one is, as far as they can tell.
fn paired(report: &mut Report, row: &'static str, what: &str, ratios: &[f64]) {
    let (lower, upper) = median_bounds(ratios);
    say(report, row, format!("{what}, median of {} pairs", ratios.len()), "", 4, median(ratios));
    say(report, row, format!("{what}, lower 95 % bound of that"), "", 4, lower);
    say(report, row, format!("{what}, upper 95 % bound of that"), "", 4, upper);
}

/// Lets what is done once be over.
fn settle(lab: &Lab) {
    sleep(Duration::from_secs(if lab.quick { 2 } else { 5 }));
}
