//! What sets of tags leave behind of which no two are the same: nothing, by the allocator's count for each thread, under a profiler that samples.
//!
//! A binary of its own, for it counts every allocation of the process.

#![cfg(all(
    feature = "macros",
    feature = "opentelemetry",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[expect(dead_code, reason = "other tests ask for the rest")]
mod counting;

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::task::{Context as Task, Waker};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use profiler::{Config, FutureExt, Scope, Tags, inherit, tag, tags, with_tags};

const THREADS: u64 = 2;
/// Of each thread: one in a thousand of them that stays is found.
const SETS: u64 = 50_000;

#[profiler::tagged(request = request, user = user)]
fn tagged(request: u64, user: &dyn Display) -> u64 {
    request
}

/// All that puts tags in force, with values that never come again, some of them too many for a record.
fn enter(number: u64) {
    let text = format_args!("{number:0200}");
    let _outer = tag!("request" => text, "user" => number);
    let _span = Context::new().with_remote_span_context(span(number)).attach();
    match number % 5 {
        0 => drop(Scope::enter(tags!("request" => !number, "wide" => text, "wider" => text))),
        1 => drop(with_tags(tags!("request" => !number), Tags::current)),
        2 => drop(std::hint::black_box(tagged(number, &text))),
        3 => inherit(|| drop(tag!("request" => !number)))(),
        _ => {
            let mut future = pin!(std::future::pending::<()>().with_tags(tags!("job" => number)).with_current_tags());
            let _pending = future.as_mut().poll(&mut Task::from_waker(Waker::noop()));
        }
    }
}

fn span(number: u64) -> SpanContext {
    let ids =
        (TraceId::from_bytes(u128::from(number + 1).to_be_bytes()), SpanId::from_bytes((number + 1).to_be_bytes()));
    SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::default())
}

/// Check that of fifty thousand sets that each of two threads enters and leaves not one byte stays.
#[test]
fn sets_without_number_leave_nothing() {
    let profiler = profiler::start(Config::new("test").rate_hz(1000)).unwrap();
    let work = |thread: u64| {
        let numbers = thread * 2 * SETS..;
        // What is made once is made: keys, the thread's records.
        numbers.clone().take(1000).for_each(enter);
        let before = counting::held_here();
        numbers.skip(1000).take(SETS as usize).for_each(enter);
        counting::held_here() - before
    };
    let left: Vec<isize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(left, [0; THREADS as usize], "bytes of {SETS} sets");
    assert!(profiler.stats().account.taken > 0);
}
