//! What is kept of a live sample: many blocks, each of them sampled, none touched.
//!
//! In: how many. Out: by how much resident memory grew, and what the profiler says of its own tables. jemalloc keeps something of each sample
//! itself: that is what the same takes under jemalloc's own profiling, for whoever asks to subtract.

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::usage::status_bytes;
use serde_json::{Value, json};

use super::under::Under;

/// Bytes of a block.
const BLOCK: usize = 64;

/// Allocates them.
pub(crate) fn memory(options: &Options) -> Result<Value> {
    let blocks: usize = options.value("blocks")?;
    let under = Under::start(options)?;
    under.settle()?;
    let tables = || under.ours().map_or(0, |profiler| profiler.stats().heap.table_bytes);
    let live = || under.ours().map_or(0, |profiler| profiler.stats().heap.live);
    let (tables_before, live_before) = (tables(), live());
    let mut room: Vec<Vec<u8>> = Vec::with_capacity(blocks);
    let resident_before = status_bytes("VmRSS")?;
    while room.len() < blocks {
        room.push(Vec::with_capacity(BLOCK));
    }
    let grown = status_bytes("VmRSS")?.saturating_sub(resident_before);
    let said = json!({ "resident": grown, "tables": tables() - tables_before, "live": live() - live_before });
    drop(room);
    under.finish()?;
    Ok(said)
}
