//! Another interval while the profiler runs: what was sampled before keeps what it stood for.
//!
//! In: who sets it, the profiler or somebody behind its back. Out: for what was allocated at either interval the truth, the estimate, and the standard error that sampling has there.

use std::hint::black_box;

use profiler_tests::subject::Options;
use profiler_tests::{Result, mallctl};
use serde_json::{Value, json};

use super::exact::Block;
use super::truth::Sum;
use super::{start, sums};

/// Blocks at each interval, and the bytes of one.
const BLOCKS: usize = 60_000;
const SIZE: usize = 200;
/// Intervals, as powers of two.
const LG: [u32; 2] = [10, 14];
/// All but certainly sampled at either.
const LARGE: usize = 16 << 20;

/// Allocates, changes the interval, and allocates the same again.
pub(crate) fn rates(options: &Options) -> Result<Value> {
    let profiler = start(LG[0])?;
    let mut room = Vec::with_capacity(2 * BLOCKS);
    often(&mut room);
    if options.value_or("others", false)? {
        mallctl::write(c"prof.reset", LG[1] as usize)?;
    } else {
        profiler.set_heap_interval(1 << LG[1])?;
    }
    // The distance to the first sample was drawn with the interval before.
    drop(black_box(Block::of(LARGE)));
    rarely(&mut room);
    let lived = sums(&profiler)?;
    let rows = ["often", "rarely"].iter().zip(LG).zip(room.chunks(BLOCKS)).map(|((name, lg), blocks)| {
        let mut sum = Sum::default();
        blocks.iter().for_each(|block| sum.add(block.usable() as f64, (1_u64 << lg) as f64, true));
        let errors = sum.variance.map(f64::sqrt);
        json!({ "name": name, "truth": sum.truth, "estimate": lived.function(name), "error": errors })
    });
    Ok(json!({ "rows": rows.collect::<Vec<_>>() }))
}

#[inline(never)]
fn often(room: &mut Vec<Block>) {
    room.extend((0..BLOCKS).map(|_| Block::of(SIZE)));
    black_box("often");
}

#[inline(never)]
fn rarely(room: &mut Vec<Block>) {
    room.extend((0..BLOCKS).map(|_| Block::of(SIZE)));
    black_box("rarely");
}
