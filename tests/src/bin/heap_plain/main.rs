//! A program that declares jemalloc itself and says nothing of profiling, as many do: what `start` tells it to add.
//!
//! In: `PROFILER_HEAP`, jemalloc's variable. Out: a line of JSON on standard output, with what the profiler says of the heap, or its error.

use std::io::{self, Write};

use profiler::Config;
use profiler_tests::stats::heap_to_json;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let answer = match profiler::start(Config::new("plain")) {
        Ok(profiler) => heap_to_json(&profiler.stats().heap),
        Err(error) => json!({ "refused": error.to_string() }),
    };
    // Nobody is left to be told when standard output is gone.
    let _written = writeln!(io::stdout().lock(), "{answer}");
}
