//! What the sampler must survive, each in a process of its own at 1 kHz: `torture NAME seconds=… key=value…`.
//!
//! In: what to do and for how long, on the command line; where profiles go, in `OTEL_*` and `PROFILER_*`. Out: one line of
//! JSON: the account after all of it, and what the torture itself counted. The tests in `suite/torture` start these, a few
//! seconds each in `make test`, a minute each in `make torture`.

mod allocations;
mod bench;
mod cardinality;
mod children;
mod deep;
mod exec;
mod goroutines;
mod hole;
mod leaks;
mod libraries;
mod others;
mod proof;
mod storms;
mod swaps;
mod threads;
mod waits;

use std::io::{self, Write};
use std::process::ExitCode;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use serde_json::{Value, json};

fn main() -> ExitCode {
    let (line, code) = match run() {
        Ok(value) => (value, ExitCode::SUCCESS),
        Err(error) => (json!({ "error": error.to_string() }), ExitCode::FAILURE),
    };
    let mut stdout = io::stdout().lock();
    // Nobody is left to be told when standard output is gone.
    let _written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    code
}

fn run() -> Result<Value> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which torture?")?;
    let options = Options::parse(arguments)?;
    match name.as_str() {
        "threads" => threads::threads(&options),
        "libraries" => libraries::libraries(&options),
        "swaps" => swaps::swaps(&options),
        "spawn" => children::spawn(&options),
        "offspring" => children::offspring(&options),
        "exec" => exec::exec(&options),
        "cardinality" => cardinality::cardinality(&options),
        "cardinality_sent" => cardinality::cardinality_sent(&options),
        "malloc" => storms::malloc(&options),
        "panics" => storms::panics(&options),
        "deep" => deep::deep(&options),
        "hole" => hole::hole(&options),
        "others" => others::others(&options),
        "goroutines" => goroutines::goroutines(&options),
        "handler" => proof::handler(&options),
        "handler_stack" => proof::stack(&options),
        "waits" => waits::waits(&options),
        other => Err(format!("there is no torture {other:?}").into()),
    }
}
