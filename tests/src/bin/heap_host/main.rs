//! A host of its own mind: its allocator stands around jemalloc, its hooks are there first or come later, it turns samples on and off.
//!
//! In: which scenario, on the command line. Out: a line of JSON on standard output. Its options are a static of its own, as in a program
//! that does not use `profiler::jemalloc!()`.

mod allocator;
mod amid;
mod foreign;
mod late;
mod locked;
mod refusal;
mod toggled;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_tests::Result;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: allocator::Around = allocator::Around;

/// jemalloc reads one pointer to characters (jemalloc(3), `malloc_conf`).
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
pub static OPTIONS: &[u8; 46] = b"prof:true,prof_active:false,lg_prof_sample:19\0";

fn main() -> ExitCode {
    let (answer, code) = match run() {
        Ok(value) => (value, ExitCode::SUCCESS),
        Err(error) => (json!({ "error": error.to_string() }), ExitCode::FAILURE),
    };
    let mut stdout = io::stdout().lock();
    // Nobody is left to be told when standard output is gone.
    let _written = writeln!(stdout, "{answer}").and_then(|()| stdout.flush());
    code
}

fn run() -> Result<Value> {
    match std::env::args().nth(1).as_deref() {
        Some("first") => foreign::first(),
        Some("between") => foreign::between(),
        Some("third") => foreign::third(),
        Some("later") => foreign::later(),
        Some("interim") => foreign::interim(),
        Some("stacks") => foreign::stacks(),
        Some("child") => foreign::child(),
        Some("amid") => amid::amid(),
        Some("late") => late::late(late::MANY),
        Some("late_alone") => late::late(0),
        Some("locked") => locked::locked(),
        Some("refused") => foreign::refused(),
        Some("refusal") => refusal::refusal(),
        Some("toggled") => toggled::toggled(),
        Some("dumped") => toggled::dumped(),
        Some("changed") => toggled::changed(),
        Some("asked") => toggled::asked(),
        Some("resumed") => toggled::resumed(),
        other => Err(format!("there is no scenario {other:?}").into()),
    }
}

/// A profiler that samples every allocation.
fn start() -> Result<Profiler> {
    Ok(profiler::start(Config::new("host").heap(true).heap_interval(1))?)
}

/// Waits until `done`, which a look of the profiler's brings about.
fn wait_for(done: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        if Instant::now() > end {
            return Err("the profiler has not looked within a minute".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// So many blocks.
#[inline(never)]
fn blocks(count: usize) -> Vec<Vec<u8>> {
    let blocks = (0..count).map(|_| Vec::with_capacity(100)).collect();
    std::hint::black_box("blocks");
    blocks
}
