//! A profiler that is stopped and started again while memory lives, or started late.
//!
//! In: nothing. Out: what lives before, after, and of what was allocated in between.

use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use serde_json::{Value, json};

use super::exact::Block;
use super::{start, sums};

/// Stops it, frees and allocates, and starts it again.
pub(crate) fn restart() -> Result<Value> {
    let mut room = Vec::with_capacity(200);
    let profiler = start(0)?;
    known(&mut room);
    let first = sums(&profiler)?;
    drop(profiler);
    room.truncate(40);
    unknown(&mut room);
    let profiler = start(0)?;
    let again = sums(&profiler)?;
    drop(room);
    let freed = sums(&profiler)?;
    Ok(json!({
        "first": first.function("known"), "again": again.function("known"), "between": again.function("unknown"),
        "freed": freed.function("known"),
    }))
}

/// Blocks that jemalloc sampled before there was a profiler change their size where they are.
pub(crate) fn resized() -> Result<Value> {
    let before: Vec<Block> = (0..20).map(|_| Block::of(1 << 20)).collect();
    let places: Vec<usize> = before.iter().map(Block::address).collect();
    let profiler = start(0)?;
    let after = shrunk(before);
    let in_place = after.iter().zip(places).filter(|(block, place)| block.address() == *place).count();
    let usable: u64 = after.iter().map(Block::usable).sum();
    let lived = sums(&profiler)?;
    let of_lived = heap_to_json(&profiler.stats().heap);
    drop(after);
    let freed = sums(&profiler)?;
    Ok(json!({
        "in_place": in_place, "usable": usable, "lived": lived.function("shrunk"), "freed": freed.function("shrunk"),
        "of_lived": of_lived, "stats": heap_to_json(&profiler.stats().heap),
    }))
}

#[inline(never)]
fn shrunk(blocks: Vec<Block>) -> Vec<Block> {
    std::hint::black_box(blocks.into_iter().map(|block| block.resized(1 << 19)).collect())
}

#[inline(never)]
fn known(room: &mut Vec<Block>) {
    room.extend((0..100).map(|_| Block::of(1024)));
    std::hint::black_box("known");
}

#[inline(never)]
fn unknown(room: &mut Vec<Block>) {
    room.extend((0..100).map(|_| Block::of(1024)));
    std::hint::black_box("unknown");
}
