//! `measure`: this profiler and the crates `pprof` and `pyroscope` on the same work, in one run.
//!
//! In: `--quick` (shorter, for a look), `--only ROW` (repeatable). Out: a table with ratios on standard output, and the same
//! as JSON in `target/measure/`. It builds each profiler's program (`bin/subject_*`) as a user would, with `--release`,
//! runs each task in a fresh process, one at a time, and counts what arrives in the collector or server that it plays for
//! them. No figure is written down anywhere but here. What a row means, and how it is measured, stands in its file.

mod allocated;
mod cli;
mod lab;
mod pod;
mod push;
mod report;
mod rows;
mod shop;
mod sink;
mod who;

use std::io::{self, Write};
use std::process::ExitCode;

use profiler_tests::Result;

use allocated::Counting;
use cli::Cli;
use lab::Lab;
use report::Report;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told when standard error is gone.
            let _written = writeln!(io::stderr(), "measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let cli = Cli::parse(std::env::args().skip(1))?;
    let lab = if cli.wants_subjects() { Lab::build(cli.quick)? } else { Lab::bare(cli.quick) };
    let (mut report, mut failed) = (Report::new(&lab)?, Vec::new());
    for row in rows::ALL.iter().filter(|row| cli.wants(row.name)) {
        writeln!(io::stderr(), "measuring {}: {}", row.name, row.what)?;
        // What the others measure stands in the report all the same.
        if let Err(error) = (row.measure)(&lab, &mut report) {
            writeln!(io::stderr(), "{} FAILED: {error}", row.name)?;
            failed.push(row.name);
        }
    }
    writeln!(io::stdout(), "{report}")?;
    let path = report.write(lab.target())?;
    writeln!(io::stdout(), "{}", path.display())?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}
