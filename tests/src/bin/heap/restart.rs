//! A profiler that is stopped and started again while memory lives.
//!
//! In: nothing. Out: what lives before, after, and of what was allocated in between.

use profiler_tests::Result;
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
