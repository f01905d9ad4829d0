//! What the allocator says that it has allocated, where every block is sampled.
//!
//! In: nothing. Out: for blocks of some sizes, the bytes that the program asked for, and by how much the allocator's figures grew.

use profiler::{AllocatorStats, Profiler};
use profiler_tests::Result;
use serde_json::{Value, json};

use super::exact::Block;
use super::{start, sums};

/// Enough that what a profile itself takes is little.
const BLOCKS: usize = 2000;

/// Allocates blocks of two pages, of three and a half, and of eight.
pub(crate) fn figures() -> Result<Value> {
    let profiler = start(0)?;
    let page = rustix::param::page_size();
    let mut kept = Vec::with_capacity(1 + 3 * BLOCKS);
    let mut allocate = |count: usize, size| kept.extend((0..count).map(|_| Block::of(size)));
    // The first profiles find all names, and keep them.
    now(&profiler)?;
    allocate(1, page);
    let mut before = now(&profiler)?;
    let mut rows = Vec::new();
    for size in [2 * page, 7 * page / 2, 8 * page] {
        allocate(BLOCKS, size);
        let after = now(&profiler)?;
        let [allocated, active] = [grown(before.allocated, after.allocated), grown(before.active, after.active)];
        rows.push(json!({ "asked": size * BLOCKS, "pages": page * BLOCKS, "allocated": allocated, "active": active }));
        before = after;
    }
    Ok(json!({ "rows": rows }))
}

/// By how much; below zero where a profile freed what earlier ones had kept.
fn grown(before: u64, after: u64) -> i64 {
    after.cast_signed() - before.cast_signed()
}

fn now(profiler: &Profiler) -> Result<AllocatorStats> {
    sums(profiler)?;
    Ok(profiler.stats().heap.allocator.ok_or("no figures")?)
}
