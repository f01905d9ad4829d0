//! A set of tags for every request, none of which ever comes again.
//!
//! In: how many sets, on two threads, for how many seconds at least. Out: memory before and after them. Either with every sample in one window, which
//! was full before: until then the stacks are deep, and differ too, so that some thousand samples fill it. Or in windows of a second, each of
//! which leaves.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_proto::loss::{Cause, Flaw};
use profiler_tests::Result;
use profiler_tests::subject::Options;
use serde_json::{Value, json};

use crate::bench::{Time, end, on_threads, start};
use crate::leaks::Held;

/// Bytes of each of the two values: were the sets kept, it could not be overlooked.
const VALUE: usize = 200;
/// Those of a number, the largest of which has as many.
const DIGITS: usize = 20;
/// Samples per second of CPU time, where the engine can.
const RATE: u32 = 10_000;
/// How long it may take until the window is full: two thousand samples, of which the slowest tick of a kernel gives 100 a second and thread.
const LIMIT: Duration = Duration::from_secs(200);
/// One window for all; its tenth is the earliest that it leaves, being full.
const INTERVAL: Duration = Duration::from_secs(3600);
/// How deep a request is below its thread until the window is full; without optimization twice as many frames.
const DEPTH: u32 = 150;

/// Enters and leaves sets until a window is full, and `sets` more of them then.
pub(crate) fn cardinality(options: &Options) -> Result<Value> {
    let sets = options.value::<u64>("sets")?;
    let profiler = profiler::start(Config::new("torture").rate_hz(RATE).interval(INTERVAL))?;
    let (began, entered, depth) = (Instant::now(), AtomicU64::new(0), AtomicU32::new(DEPTH));
    let request = |_| request(entered.fetch_add(1, Ordering::Relaxed), depth.load(Ordering::Relaxed));
    let go_on = || on_threads(2, &Time::lasting(Duration::from_millis(200)), request).map(drop);
    let resident = || Held::now().map(|held| held.resident);
    while !is_full(&profiler) && began.elapsed() < LIMIT {
        go_on()?;
    }
    depth.store(0, Ordering::Relaxed);
    // The window grows no more: what grows from here on would be the sets.
    let (before, early, time) = (entered.load(Ordering::Relaxed), resident()?, Time::of(options)?);
    while time.is_left() || entered.load(Ordering::Relaxed) - before < sets {
        go_on()?;
    }
    let late = resident()?;
    if began.elapsed() > INTERVAL / 10 {
        return Err("it took so long that the window left meanwhile: ask for fewer sets".into());
    }
    let mut outcome = end(profiler)?;
    outcome["own"] = json!({ "sets": entered.into_inner() - before, "early": early, "late": late });
    Ok(outcome)
}

/// Enters and leaves `sets` sets, of which samples leave once a second. Memory is the most that it was in the first third of them, and in the last.
pub(crate) fn cardinality_sent(options: &Options) -> Result<Value> {
    let (sets, time) = (options.value::<u64>("sets")?, Time::of(options)?);
    // As all tortures: where nothing is optimized, as many as above are more than can be named meanwhile, and windows wait.
    let profiler = start()?;
    let entered = AtomicU64::new(0);
    let mut residents = Vec::new();
    while time.is_left() || entered.load(Ordering::Relaxed) < sets {
        let request = |_| request(entered.fetch_add(1, Ordering::Relaxed), 0);
        on_threads(2, &Time::lasting(Duration::from_millis(100)), request)?;
        residents.push(Held::now()?.resident);
    }
    let third = residents.len() / 3;
    let most = |of: &[u64]| of.iter().max().copied();
    let (early, late) = (most(&residents[..third]), most(&residents[residents.len() - third..]));
    let mut outcome = end(profiler)?;
    outcome["own"] = json!({ "sets": entered.into_inner(), "early": early, "late": late });
    Ok(outcome)
}

/// What is done for a request, so many frames below its thread.
fn request(number: u64, depth: u32) {
    // All of a value but its number: a build that is not optimized takes several times as long where padding is left to a format.
    const REST: &str = match str::from_utf8(&[b'x'; VALUE - DIGITS]) {
        Ok(rest) => rest,
        Err(_) => "",
    };
    below(number.wrapping_mul(ODD), depth, &|| {
        let _scope = profiler::tag!("request" => format_args!("{REST}{number:0DIGITS$}"), "user" => format_args!("{REST}{:01$}", !number, DIGITS));
        // As long again with the tags as for them.
        black_box(format!("{REST}{number:0DIGITS$} {REST}{:01$}", !number, DIGITS));
    });
}

/// Whether the window has had no room for the tags of some samples, and for the stacks of others.
fn is_full(profiler: &Profiler) -> bool {
    let stats = profiler.stats();
    stats.degraded.count(Flaw::NoContext) > 0 && stats.account.lost.count(Cause::AggregateFull) > 0
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
