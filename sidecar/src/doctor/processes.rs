//! The processes that are seen: what each is, and why it is or is not profiled.
//!
//! In: one whole sweep of a [`Table`] of its own, and what of a process can be profiled here at all. Out: a [`Row`] for each process.

use std::time::Instant;

use super::check::Check;
use crate::capture;
use crate::discover::{BELOW, Kind, Options, Table, Target, WhyNot};
use crate::go::{Version, offsets};

/// Processes looked at in one part of the sweep.
const PART: usize = 1024;
/// Most parts, so that a machine that forks without end does not keep us.
const MOST_PARTS: usize = 256;

/// Why a process has no CPU samples where none has.
const NONE_HAS: &str = "CPU time is not sampled here, as the checks above say";

/// What works here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Works {
    /// CPU time is sampled.
    pub(super) sampling: bool,
    /// The memory of Go programs can be read.
    pub(super) reading: bool,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub pid: u32,
    /// What it runs: `Go 1.26.1`, `SDK`, `native`; `unknown` where its program cannot be read.
    pub kind: String,
    /// `service.name`.
    pub service: String,
    /// The path of its program; its name in brackets where the path cannot be read.
    pub exe: String,
    /// Its container, where that is seen.
    pub container: Option<String>,
    /// Why it is not profiled; `None`: it is.
    pub why_not: Option<String>,
    /// What is profiled of it, and why the rest is not; `None`: all is.
    pub but: Option<String>,
    /// It is the sidecar.
    pub is_own: bool,
}

pub(super) fn rows(options: Options, works: Works) -> Vec<Row> {
    let mut table = Table::new(options);
    for _ in 0..MOST_PARTS {
        if table.sweep(PART, Instant::now()).is_whole {
            break;
        }
    }
    table.targets().iter().map(|target| row(target, works)).collect()
}

pub(super) fn row(target: &Target, works: Works) -> Row {
    let path = target.exe.path.display().to_string();
    let unsampled = match works.sampling {
        true => target.is_below.then_some(BELOW),
        false => Some(NONE_HAS),
    };
    let (why_not, but) = match (&target.profiled, unsampled, runtime(&target.kind, works)) {
        (Err(why), ..) => (Some(why.to_string()), None),
        // Without samples there is what a Go runtime keeps, or nothing.
        (Ok(()), Some(why), Ok(true)) => (None, Some(format!("heap and goroutines: {why}"))),
        (Ok(()), Some(why), _) => (Some(why.to_owned()), None),
        (Ok(()), None, Ok(_)) => (None, None),
        (Ok(()), None, Err(why)) => (None, Some(format!("CPU time{}: {why}", labels(&target.kind)))),
    };
    Row {
        pid: target.process.pid(),
        kind: match (&target.kind, &target.exe.program) {
            (Kind::Native, None) => "unknown".to_owned(),
            (kind, _) => kind.to_string(),
        },
        service: target.service.clone(),
        exe: if path.is_empty() { format!("[{}]", target.comm) } else { path },
        container: target.container_id.clone(),
        why_not,
        but,
        is_own: target.profiled == Err(WhyNot::Ourselves),
    }
}

/// Whether there is a Go runtime whose heap and goroutines are read; why they are not, where there is one.
fn runtime(kind: &Kind, works: Works) -> Result<bool, String> {
    let Kind::Go(text) = kind else { return Ok(false) };
    match capture::unreadable(&Version::parse(text)) {
        Some(why) => Err(format!("no heap and goroutines, as it was {why}")),
        None if !works.reading => Err("no heap and goroutines, as memory is not read here".into()),
        None => Ok(true),
    }
}

/// What samples of a Go program lack.
fn labels(kind: &Kind) -> &'static str {
    match kind {
        Kind::Go(text) if offsets::of_version(&Version::parse(text)).is_none() => " without labels and spans",
        _ => "",
    }
}

/// Whether there is anything to profile.
pub(super) fn sight(rows: &[Row]) -> Option<Check> {
    const NAME: &str = "processes";
    let others = rows.iter().filter(|row| !row.is_own).count();
    let profiled = rows.iter().filter(|row| row.why_not.is_none()).count();
    let mut found = format!("{others} seen beside the sidecar, {profiled} of them profiled");
    match rows.iter().filter(|row| row.but.is_some()).count() {
        0 => {}
        in_part => found += &format!(", {in_part} of them only in part"),
    }
    Some(match (others, profiled) {
        (0, _) => {
            Check::lacks(NAME, "none is seen but the sidecar", "set shareProcessNamespace: true in the pod's spec")
        }
        (_, 0) => Check::lacks(NAME, found, "the table says why, process by process"),
        _ => Check::works(NAME, found),
    })
}
