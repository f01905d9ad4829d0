//! A program that does little but allocate: nobody has said how often it is to be sampled.
//!
//! In: nothing. Out: the interval before and behind a time of allocations, of what was allocated then the truth, the estimate and the standard error that sampling
//! has there; and the interval behind as much again once somebody has chosen one, while the profiler runs and at a start; what the next start finds, and what it does where
//! somebody else chose one in between.

use std::hint::black_box;
use std::time::Duration;

use profiler::{Config, Profiler};
use profiler_tests::clock::thread_cpu;
use profiler_tests::{Result, mallctl};
use serde_json::{Value, json};

use super::exact::Block;
use super::sums;
use super::truth::Sum;

/// The interval of `profiler::jemalloc!()`.
const USUAL: u64 = 1 << 20;
/// An interval that another part of the program sets, as a power of two.
const OTHER: usize = 21;
/// CPU time within which a program that allocates too much must have got another interval: it is chosen after one second.
const ENOUGH: Duration = Duration::from_secs(20);
/// CPU time without another one.
const SOME: Duration = Duration::from_secs(3);
/// Blocks that are counted, and the bytes of one.
const BLOCKS: usize = 20_000;
const SIZE: usize = 1 << 20;

/// Allocates, each time for a while.
pub(crate) fn pace() -> Result<Value> {
    let profiler = profiler::start(Config::new("heap").heap(true))?;
    let interval = |profiler: &Profiler| profiler.stats().heap.interval_bytes;
    let before = interval(&profiler);
    allocate_until(ENOUGH, || interval(&profiler) != before);
    let row = counted(&profiler)?;
    let notes = profiler.stats().heap.notes;
    drop(profiler);
    let profiler = profiler::start(Config::new("heap").heap(true))?;
    let found = json!({ "interval": interval(&profiler), "notes": profiler.stats().heap.notes });
    profiler.set_heap_interval(USUAL)?;
    allocate_until(SOME, || false);
    let (set, notes_then) = (interval(&profiler), profiler.stats().heap.notes);
    drop(profiler);
    let profiler = profiler::start(Config::new("heap").heap(true).heap_interval(USUAL))?;
    allocate_until(SOME, || false);
    let asked = interval(&profiler);
    drop(profiler);
    mallctl::write(c"prof.reset", OTHER)?;
    let profiler = profiler::start(Config::new("heap").heap(true))?;
    allocate_until(SOME, || false);
    let of_others = json!({ "interval": interval(&profiler), "notes": profiler.stats().heap.notes });
    Ok(json!({
        "before": before, "row": row, "notes": notes, "set": set, "notes_then": notes_then, "asked": asked,
        "found": found, "of_others": of_others,
    }))
}

/// Allocates at an interval that does not change meanwhile.
fn counted(profiler: &Profiler) -> Result<Value> {
    for _ in 0..10 {
        let interval = profiler.stats().heap.interval_bytes;
        let before = sums(profiler)?.function("counted_blocks");
        // The distance to the first sample was drawn with the interval before.
        let mut sum = Sum::default();
        allocate_until(Duration::from_millis(20), || false);
        counted_blocks(&mut |block| sum.add(block.usable() as f64, interval as f64, false));
        let after = sums(profiler)?.function("counted_blocks");
        if profiler.stats().heap.interval_bytes == interval {
            let estimate: Vec<i64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            let error = sum.variance.map(f64::sqrt);
            return Ok(json!({ "interval": interval, "truth": sum.truth, "estimate": estimate, "error": error }));
        }
    }
    Err("the interval changed again and again".into())
}

#[inline(never)]
fn counted_blocks(each: &mut dyn FnMut(&Block)) {
    (0..BLOCKS).for_each(|_| each(&black_box(Block::of(SIZE))));
    black_box("counted_blocks");
}

/// Allocates and frees, until so much CPU time is spent or `done`.
fn allocate_until(spent: Duration, done: impl Fn() -> bool) {
    let began = thread_cpu();
    while thread_cpu() - began < spent && !done() {
        (0..100).for_each(|_| drop(black_box(Vec::<u8>::with_capacity(black_box(1 << 18)))));
    }
}
