//! Scenarios of the heap, in a program on jemalloc: `heap NAME key=value…`.
//!
//! In: what to do, on the command line; `PROFILER_*`, `OTEL_*` and jemalloc's own variable as for any user. Out: a line of JSON
//! on standard output. An allocator belongs to a program, so these are no part of `scenario`.

mod crowd;
mod deep;
mod edges;
mod exact;
mod figures;
mod fork;
mod leader;
mod leak;
mod leaves;
mod pace;
mod pull;
mod rates;
mod restart;
mod sent;
mod sums;
mod swaps;
mod truth;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use profiler::{Config, Profiler};
use profiler_tests::stats::{self, heap_to_json};
use profiler_tests::subject::Options;
use profiler_tests::{Result, capture};
use serde_json::{Value, json};

use self::sums::Sums;

/// How long a last flush may take where the machine is busy with other things, and slow to find the names of a debug build.
const FLUSH: Duration = Duration::from_secs(200);

profiler::jemalloc!();

fn main() -> ExitCode {
    let (answer, code) = match run() {
        Ok(value) => (value, ExitCode::SUCCESS),
        Err(error) => (json!({ "error": error.to_string() }), ExitCode::FAILURE),
    };
    say(&answer);
    code
}

/// Writes a line for whoever started this.
fn say(value: &Value) {
    let mut stdout = io::stdout().lock();
    // Nobody is left to be told when standard output is gone.
    let _written = writeln!(stdout, "{value}").and_then(|()| stdout.flush());
}

/// Waits for a line on standard input, or its end.
fn wait_for_word() -> Result<()> {
    io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn run() -> Result<Value> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which scenario?")?;
    let options = Options::parse(arguments)?;
    match name.as_str() {
        "options" => in_force(&options),
        "exact" => exact::exact(),
        "full" => exact::full(),
        "figures" => figures::figures(),
        "truth" => truth::truth(&options),
        "edges" => edges::edges(),
        "deep" => deep::deep(),
        "crowd" => crowd::crowd(&options),
        "fork" => fork::fork(&options),
        "leader" => leader::leader(),
        "leak" => leak::leak(&options),
        "leaves" => leaves::leaves(),
        "pace" => pace::pace(),
        "pull" => pull::pull(),
        "rates" => rates::rates(&options),
        "restart" => restart::restart(),
        "resized" => restart::resized(),
        "sent" => sent::sent(&options),
        "swaps" => swaps::swaps(&options),
        other => Err(format!("there is no scenario {other:?}").into()),
    }
}

/// A profiler of the heap of this program, at one sample per `2^lg` bytes.
fn start(lg: u32) -> Result<Profiler> {
    Ok(profiler::start(Config::new("heap").heap(true).heap_interval(1 << lg))?)
}

/// What is known of the heap since the start.
fn sums(profiler: &Profiler) -> Result<Sums> {
    Ok(Sums::of(&capture::heap(profiler)?))
}

/// What is in force with the settings of the environment, before and after another interval is set.
fn in_force(options: &Options) -> Result<Value> {
    let profiler = profiler::start(Config::new("heap"))?;
    let kept: Vec<Vec<u8>> = (0..options.value_or("blocks", 0)?).map(|_| Vec::with_capacity(1 << 20)).collect();
    let sums = sums(&profiler).map(|sums| sums.to_json()).unwrap_or_default();
    let before = heap_to_json(&profiler.stats().heap);
    let set = profiler.set_heap_interval(1 << 16).map_err(|error| error.to_string()).err();
    let after = heap_to_json(&profiler.stats().heap);
    profiler.pause();
    let paused = profiler.stats().heap.on;
    profiler.resume()?;
    let resumed = profiler.stats().heap.on;
    // While something is in use, which the profile tells.
    let flushed = profiler.flush(FLUSH);
    let stats = stats::to_json(&profiler.stats());
    drop(kept);
    Ok(json!({
        "before": before, "set": set, "after": after, "paused": paused, "resumed": resumed, "sums": sums, "flushed": flushed,
        "stats": stats,
    }))
}
