//! A start amid threads that allocate, which takes as long as they like: the first block that is allocated once samples are taken waits for them.
//!
//! In: nothing. Out: what was sampled of these threads, and which functions are said to allocate.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use profiler_tests::{Result, capture};
use serde_json::{Value, json};

use super::allocator::{OTHERS, WAITS};
use super::refusal::functions;
use super::{start, wait_for};

/// Starts it.
pub(crate) fn amid() -> Result<Value> {
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| allocates(&enough));
        let sampled = sampled();
        enough.store(true, Ordering::Relaxed);
        sampled
    })
}

fn sampled() -> Result<Value> {
    WAITS.store(true, Ordering::Relaxed);
    let profiler = start()?;
    let waited = !WAITS.load(Ordering::Relaxed);
    wait_for(|| profiler.stats().heap.sampled > 1000)?;
    profiler.pause();
    let set = capture::heap(&profiler)?;
    let samples = set.profiles.iter().flat_map(|profile| &profile.samples);
    let leaves: BTreeSet<String> =
        samples.filter_map(|sample| functions(&set, sample.stack).into_iter().next()).collect();
    Ok(json!({ "waited": waited, "leaves": leaves }))
}

#[inline(never)]
fn allocates(enough: &AtomicBool) {
    while !enough.load(Ordering::Relaxed) {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
        OTHERS.fetch_add(1, Ordering::Relaxed);
    }
}
