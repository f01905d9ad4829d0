//! The command `doctor`: what works here, what is missing and what to do about it, which processes are seen, and why each is or is not
//! profiled.
//!
//! In: the kernel's own words ([`system`]), attempts to sample ([`sampling`]) and to read memory ([`reading`]), the processes ([`processes`]). Out: a table for a person, or
//! JSON for a program, on standard output. Main thread; changes nothing and ends in seconds.

mod check;
mod processes;
mod reading;
mod sampling;
mod show;
mod system;

use std::io::{self, Write};
use std::process::ExitCode;

pub use check::{Check, Verdict};
pub use processes::Row;
use processes::Works;
pub use system::System;

use crate::discover;
use crate::error::Error;
use crate::target::numbers;

/// What was asked for.
#[derive(Debug, Default)]
pub struct Arguments {
    /// JSON instead of a table.
    pub json: bool,
    /// Which processes the settings choose.
    pub discovery: discover::Options,
    /// Settings that have no effect, each with why, as [`Config::idle`](crate::config::Config::idle) has them.
    pub idle: Vec<String>,
}

/// All that there is to say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What works and what does not.
    pub checks: Vec<Check>,
    /// The processes that are seen, by pid.
    pub processes: Vec<Row>,
}

/// Looks and tells. Success: CPU time is sampled here; failure, with the same words: it is not.
///
/// # Errors
/// When standard output cannot be written to.
pub fn main(arguments: Arguments) -> Result<ExitCode, Error> {
    let Arguments { json, discovery, idle } = arguments;
    let mut report = examine(discovery);
    report.checks.push(settings(&idle));
    let text = if json { show::json(&report) } else { show::table(&report) };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new("standard output", error.to_string(), "give it a place to write to"))
        }
        _ if report.checks.iter().any(|check| check.verdict == Verdict::Fails) => Ok(ExitCode::FAILURE),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn settings(idle: &[String]) -> Check {
    const NAME: &str = "settings";
    match idle {
        [] => Check::works(NAME, "each has an effect"),
        _ => Check::lacks(NAME, idle.join("; "), "`profiler-sidecar run --help` has the names"),
    }
}

/// Looks at processes and at what may be done with them.
#[must_use]
pub fn examine(discovery: discover::Options) -> Report {
    let mut checks = System::here().checks();
    let (sampling, reading) = (sampling::attempt(), reading::attempt());
    let works = Works { sampling: sampling.verdict != Verdict::Fails, reading: reading.verdict == Verdict::Works };
    checks.extend([sampling, reading]);
    // Where the numbers are others', nothing that is said of them would be true.
    let processes = numbers::check().map_or_else(|_| Vec::new(), |()| processes::rows(discovery, works));
    checks.extend(processes::sight(&processes));
    Report { checks, processes }
}

#[cfg(test)]
mod tests;
