//! What tags cost: scopes, polls and spans in loops, on any number of threads.
//!
//! In: the ways in which a profiler is told what a thread works for. Out: CPU time of one round of each, in nanoseconds, batch by batch, and
//! the same for doing nothing.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use serde_json::{Value, json};

use crate::Result;
use crate::clock::thread_cpu;
use crate::subject::{Options, Subject};

/// Does so many rounds of something.
pub type Rounds<'a> = Box<dyn Fn(u32) + Sync + 'a>;

const BATCHES: u32 = 20;

/// Measures each of the subject's ways, and what there is without.
pub(super) fn tags<S: Subject>(options: &Options) -> Result<Value> {
    let (threads, rounds) = (options.value::<usize>("threads")?, options.value::<u32>("rounds")?);
    let subject = S::start(options.value_or("rate", 100)?, &options.value_or("url", String::new())?)?;
    let mut ways: Vec<(&str, Rounds<'_>)> = vec![("nothing", Box::new(nothing)), ("span", Box::new(span))];
    ways.extend(subject.ways());
    let said: BTreeMap<&str, Value> =
        ways.iter().map(|(name, way)| (*name, json!(each(way, threads, rounds)))).collect();
    drop(ways);
    subject.finish()?;
    Ok(json!(said))
}

/// CPU time of one round, in nanoseconds: each thread's batches.
fn each(way: &Rounds<'_>, threads: usize, rounds: u32) -> Vec<f64> {
    let barrier = Barrier::new(threads);
    let batches = || {
        // A first batch is not counted: memory that is touched for the first time, keys.
        way(rounds / BATCHES);
        barrier.wait();
        let batch = |_| {
            let start = thread_cpu();
            way(rounds);
            (thread_cpu() - start).as_secs_f64() * 1e9 / f64::from(rounds)
        };
        (0..BATCHES).map(batch).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(batches)).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn nothing(rounds: u32) {
    for round in 0..rounds {
        black_box(round);
    }
}

/// Makes a span current and leaves it, with what OpenTelemetry does for this itself.
fn span(rounds: u32) {
    let ids = (TraceId::from_bytes([1; 16]), SpanId::from_bytes([2; 8]));
    let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::NONE);
    let context = opentelemetry::Context::new().with_remote_span_context(span);
    for _ in 0..rounds {
        drop(black_box(context.clone().attach()));
    }
}
