//! What the sidecar costs and how soon it knows: the rows `sidecar-*`, one a file.
//!
//! All are of the agent as `cargo build --release` makes it, run as root beside real Go programs (`sidecar/tests/go`), and nothing else. Its
//! peer would be the OpenTelemetry eBPF profiler, which cannot be had here with its checksum verified; measured on such a machine at 99 Hz before
//! (`reference/sidecar.md`, and the issue), it took 20 µs in the kernel for a sample, 1.0 % of a core in user space, 61 MB resident and 36 to
//! 43 MB of maps, 543 KB of gzip for 10,000 samples, 3.6 s until the first sample of a process arrived, and left 0.990 of the target's work.

pub(crate) mod cpu;
pub(crate) mod first;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod payload;
pub(crate) mod tables;
pub(crate) mod work;

use std::thread::sleep;
use std::time::Duration;

use crate::lab::Lab;
use crate::report::{Line, Report};
use crate::who::Who;

/// What all names of these rows begin with.
pub(crate) const PREFIX: &str = "sidecar-";

/// Adds a figure of the agent's.
fn say(report: &mut Report, row: &'static str, what: impl Into<String>, unit: &'static str, digits: usize, value: f64) {
    report.add(Line { row, what: what.into(), unit, digits, values: vec![(Who::Ours, value)] });
}

/// Lets what is done once be over.
fn settle(lab: &Lab) {
    sleep(Duration::from_secs(if lab.quick { 3 } else { 15 }));
}
