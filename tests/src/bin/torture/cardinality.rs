//! A set of tags for every request, none of which ever comes again.
//!
//! In: how many sets at least, on two threads, for how many seconds. Out: memory early on and at the end, with every sample in one window, which
//! holds no more of them by then: the stacks are deep, and differ too, so that some thousand samples fill it.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_proto::loss::Flaw;
use profiler_tests::Result;
use profiler_tests::subject::Options;
use serde_json::{Value, json};

use crate::bench::{Time, end, on_threads};
use crate::leaks::Held;

/// Bytes of each of the two values: were the sets kept, it could not be overlooked.
const VALUE: usize = 200;
/// Those of a number, the largest of which has as many.
const DIGITS: usize = 20;
/// Samples per second of CPU time, where the engine can.
const RATE: u32 = 10_000;
/// How long it may take until the window is full: two thousand samples, of which the slowest tick of a kernel gives 100 a second and thread.
const LIMIT: Duration = Duration::from_secs(200);
/// How deep a request is below its thread; without optimization twice as many frames.
const DEPTH: u32 = 150;

/// Enters and leaves `sets` sets and goes on until the time is over and samples say `overflow`.
pub(crate) fn cardinality(options: &Options) -> Result<Value> {
    let least = options.value::<u64>("sets")?;
    let profiler = profiler::start(Config::new("torture").rate_hz(RATE).interval(Duration::from_secs(3600)))?;
    let (entered, early) = (AtomicU64::new(0), AtomicU64::new(0));
    // All of a value but its number: a build that is not optimized takes several times as long where padding is left to a format.
    let rest = "x".repeat(VALUE - DIGITS);
    let request = |_| {
        let number = entered.fetch_add(1, Ordering::Relaxed);
        below(number.wrapping_mul(ODD), DEPTH, &|| {
            let _scope = profiler::tag!("request" => format_args!("{rest}{number:0DIGITS$}"), "user" => format_args!("{rest}{:01$}", !number, DIGITS));
            // As long again with the tags as for them.
            black_box(format!("{rest}{number:0DIGITS$} {rest}{:01$}", !number, DIGITS));
        });
        if number == least / 4 {
            early.store(Held::now().map_or(0, |held| held.resident), Ordering::Relaxed);
        }
    };
    let time = Time::of(options)?;
    let limit = Instant::now() + LIMIT;
    while time.is_left() || entered.load(Ordering::Relaxed) < least || !is_full(&profiler) && Instant::now() < limit {
        on_threads(2, &Time::lasting(Duration::from_millis(200)), request)?;
    }
    let late = Held::now()?.resident;
    let mut outcome = end(profiler)?;
    outcome["own"] = json!({ "sets": entered.into_inner(), "early": early.into_inner(), "late": late });
    Ok(outcome)
}

/// Whether there were samples whose tags a window had no room for.
fn is_full(profiler: &Profiler) -> bool {
    profiler.stats().degraded.count(Flaw::NoContext) > 0
}

/// Mixes a number's bits: 2^64 divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Does `work` below so many frames, in an order that few other numbers have.
fn below(number: u64, depth: u32, work: &dyn Fn()) {
    match (depth, number & 1) {
        (0, _) => work(),
        (_, 0) => below_even(number, depth, work),
        _ => below_odd(number, depth, work),
    }
}

#[inline(never)]
fn below_even(number: u64, depth: u32, work: &dyn Fn()) {
    below(number.rotate_right(1), depth - 1, work);
    // No last call, and not what the other one does.
    black_box(0);
}

#[inline(never)]
fn below_odd(number: u64, depth: u32, work: &dyn Fn()) {
    below(number.rotate_right(1), depth - 1, work);
    black_box(1);
}
