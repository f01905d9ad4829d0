//! A host that turns jemalloc's sampling off and on, and takes another interval, while the profiler runs.
//!
//! In: nothing. Out: what the profiler says and samples after each.

use profiler::Profiler;
use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use serde_json::{Value, json};

use super::mallctl::write;
use super::{blocks, start, wait_for};

/// Turns it.
pub(crate) fn toggled() -> Result<Value> {
    let profiler = start()?;
    write(c"prof.active", false)?;
    wait_for(|| !profiler.stats().heap.on)?;
    let off = sampled(&profiler);
    write(c"prof.active", true)?;
    wait_for(|| profiler.stats().heap.on)?;
    let on = sampled(&profiler);
    write(c"prof.reset", 30_usize)?;
    wait_for(|| profiler.stats().heap.interval_bytes == 1 << 30)?;
    // The distance to the first sample was drawn with the interval before.
    drop(blocks(1));
    let rarely = sampled(&profiler);
    profiler.pause();
    profiler.resume()?;
    let resumed = heap_to_json(&profiler.stats().heap);
    Ok(json!({ "off": off, "on": on, "rarely": rarely, "resumed": resumed }))
}

/// What is sampled of a thousand blocks, and what is said.
fn sampled(profiler: &Profiler) -> Value {
    let before = profiler.stats().heap.sampled;
    drop(blocks(1000));
    json!({ "sampled": profiler.stats().heap.sampled - before, "stats": heap_to_json(&profiler.stats().heap) })
}
