//! The sampler's lock-free parts under a model checker: the ring, the pool, the bounds of stacks and the heap's entries, in every order in which their threads can
//! meet, with every value that the memory model lets them see.
//!
//! In: `preemptions=…`, how often a thread is stopped in the middle at most, and `seconds=…`, how long each model may go
//! on. The very source files of the SDK are compiled in here, with the checker's atomics in place of the standard
//! library's. Out: a line of JSON with the number of orders that each model was run in; a panic where one breaks a rule.

mod array;
mod atomic;
#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../../../../sdk/src/heap/block.rs"]
mod block;
#[path = "../../../../sdk/src/cpu/bounds.rs"]
mod bounds;
mod copies;
#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../../../../sdk/src/heap/entries.rs"]
mod entries;
mod epochs;
#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../../../../sdk/src/cpu/pool.rs"]
mod pool;
mod ranges;
mod records;
#[expect(dead_code, reason = "the models use a part of it")]
#[path = "../../../../sdk/src/cpu/ring.rs"]
mod ring;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use serde_json::{Map, json};

/// The models by name.
const MODELS: [(&str, fn()); 7] = [
    ("two writers, one reader", records::two_writers),
    ("a ring that is full", records::a_full_ring),
    ("a scratch has one holder", epochs::one_holder),
    ("taken is what was written or lost", epochs::account),
    ("what was replaced is freed when nobody uses it", epochs::replacement),
    ("bounds of two stacks are not mixed", ranges::replaced),
    ("a copy has what stays, once, and nothing by halves", copies::while_a_hook_writes),
];

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            let _written = writeln!(std::io::stdout(), "{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _written = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String> {
    let options = Options::parse(std::env::args().skip(1))?;
    let (preemptions, seconds) = (options.value("preemptions")?, options.value("seconds")?);
    let mut orders = Map::new();
    for (name, model) in MODELS {
        orders.insert(name.into(), json!(explored(model, preemptions, Duration::from_secs_f64(seconds))));
    }
    Ok(json!(orders).to_string())
}

/// Runs a model in all orders, as far as the bounds let it; how many there were.
fn explored(model: fn(), preemptions: usize, time: Duration) -> u64 {
    let orders = Arc::new(AtomicU64::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_duration = Some(time);
    builder.max_branches = 10_000;
    let counter = Arc::clone(&orders);
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    orders.load(Ordering::Relaxed)
}
