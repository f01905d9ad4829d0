//! An allocator that has a lock while it works, as one that keeps accounts does.
//!
//! In: nothing. Out: whether anybody entered it while it worked, and what is known of the heap.

use std::sync::atomic::Ordering;

use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use profiler_tests::workload::{Random, on_path};
use serde_json::{Value, json};

use super::allocator::{IS_LOCKED, WITHIN};
use super::refusal::in_use;
use super::{blocks, start};

const THREADS: u64 = 4;
/// Blocks of each thread, each from a stack of its own.
const ROUNDS: u64 = 3000;
/// Profiles that are made meanwhile.
const PROFILES: usize = 20;

/// Allocates and frees on many threads, and makes profiles of it.
pub(crate) fn locked() -> Result<Value> {
    IS_LOCKED.store(true, Ordering::Relaxed);
    let profiler = start()?;
    let before = WITHIN.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for seed in 1..=THREADS {
            scope.spawn(move || allocates(seed));
        }
        (0..PROFILES).try_for_each(|_| in_use(&profiler).map(drop))
    })?;
    let room = blocks(1000);
    let [_, kept, _] = in_use(&profiler)?;
    drop(room);
    let [_, left, _] = in_use(&profiler)?;
    let within = WITHIN.load(Ordering::Relaxed) - before;
    let stats = heap_to_json(&profiler.stats().heap);
    Ok(json!({ "within": within, "rounds": THREADS * ROUNDS, "kept": kept, "left": left, "stats": stats }))
}

/// Blocks from many stacks, of which some live for a while.
fn allocates(seed: u64) {
    let (mut random, mut room) = (Random::new(seed), Vec::with_capacity(100));
    for _ in 0..ROUNDS {
        on_path(random.draw(), 20, &mut || room.push(Vec::<u8>::with_capacity(100)));
        if room.len() == room.capacity() {
            room.clear();
        }
    }
}
