//! Profilers of the heap under measurement, in one program on jemalloc: ours, jemalloc's own, `jemalloc_pprof`, hooks that do nothing, or
//! none.
//!
//! In: `profiler=…`, the task and its numbers as `key=value` on the command line; jemalloc's options in its own variable. Out: lines
//! of JSON on standard output. One program for all, so that nothing but the profiler differs: none of them wants what another
//! one has. Measured by `measure`'s row `heap`.

mod bare;
mod memory;
mod pause;
mod requests;
mod samples;
#[expect(dead_code, reason = "the shop's own program uses more of it")]
#[path = "../shop/mod.rs"]
mod shop;
mod under;

use std::process::ExitCode;

use profiler_tests::Result;
use profiler_tests::clock::process_cpu;
use profiler_tests::subject::{Options, answer, say};
use profiler_tests::usage::own_cpu;
use serde_json::{Value, json};
use shop::{book, cache, catalogue, dice, orders, pricing, report, search, service, stock};

use self::under::Under;

profiler::jemalloc!();

fn main() -> ExitCode {
    answer(Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)))
}

fn run(options: &Options) -> Result<Value> {
    match options.value::<String>("task")?.as_str() {
        "requests" => requests::requests(options),
        "samples" => samples::samples(options),
        "memory" => memory::memory(options),
        "pause" => pause::pause(options),
        "serve" => serve(options),
        other => Err(format!("task={other:?} is none of requests, samples, memory, pause, serve").into()),
    }
}

/// Serves the shop until standard input ends, with tags and a span for each request.
fn serve(options: &Options) -> Result<Value> {
    let under = Under::start(options)?;
    let before = Spent::now(&under)?;
    shop::serve_tagged(true, &mut |address| say(&json!({ "ready": address.to_string() })))?;
    let spent = Spent::now(&under)?.since(&before);
    under.finish()?;
    Ok(spent)
}

/// What was spent, and sampled, until some time.
struct Spent {
    cpu_seconds: f64,
    own_cpu_seconds: f64,
    sampled: u64,
}

impl Spent {
    fn now(under: &Under) -> Result<Self> {
        Ok(Self {
            cpu_seconds: process_cpu().as_secs_f64(),
            own_cpu_seconds: own_cpu()?.as_secs_f64(),
            sampled: under.sampled(),
        })
    }

    fn since(&self, before: &Self) -> Value {
        json!({
            "cpu_seconds": self.cpu_seconds - before.cpu_seconds,
            "own_cpu_seconds": self.own_cpu_seconds - before.own_cpu_seconds,
            "sampled": self.sampled - before.sampled,
        })
    }
}
