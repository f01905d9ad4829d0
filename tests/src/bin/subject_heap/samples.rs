//! The cost of one sample: every allocation is one, in a loop, and so is every free.
//!
//! In: depth of the stack, batches and their size, whether the stack is the same each time or one never seen before. Out: CPU
//! time of one allocation and of one free, batch by batch. What the same takes where nothing is sampled is for whoever asks to subtract.

use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::clock::thread_cpu;
use profiler_tests::subject::Options;
use profiler_tests::workload::{Random, at_depth, on_path};
use serde_json::{Value, json};

use super::under::Under;

/// How long the thread has been there before anything counts: until ours knows where its stack ends, which takes half a second, each
/// sample takes several system calls.
const SETTLES: Duration = Duration::from_secs(1);
/// Bytes of a block.
const BLOCK: usize = 256;

/// Allocates and frees, batch by batch.
pub(crate) fn samples(options: &Options) -> Result<Value> {
    let (depth, batches): (u32, u32) = (options.value("depth")?, options.value("batches")?);
    let size: usize = options.value("size")?;
    let fill: fn(u32, &mut Vec<Vec<u8>>) = match options.value::<String>("stack")?.as_str() {
        "same" => same_stack,
        "new" => new_stacks,
        other => return Err(format!("stack={other:?} is neither same nor new").into()),
    };
    let under = Under::start(options)?;
    std::thread::sleep(SETTLES);
    let _scope = profiler::tag!("endpoint" => "/orders", "method" => "POST");
    let mut room = Vec::with_capacity(size);
    let (mut allocated, mut freed) = (Vec::new(), Vec::new());
    // The first batch is not counted: memory that is touched for the first time.
    for batch in 0..=batches {
        let start = thread_cpu();
        fill(depth, &mut room);
        let filled = thread_cpu();
        room.clear();
        let ended = thread_cpu();
        if batch > 0 {
            allocated.push(nanos(filled - start, size));
            freed.push(nanos(ended - filled, size));
        }
    }
    let sampled = under.sampled();
    under.finish()?;
    Ok(json!({ "allocated": allocated, "freed": freed, "sampled": sampled }))
}

/// Fills the room from one stack `depth` frames deep.
fn same_stack(depth: u32, room: &mut Vec<Vec<u8>>) {
    at_depth(depth, &mut || {
        while room.len() < room.capacity() {
            room.push(Vec::with_capacity(BLOCK));
        }
    });
}

/// Fills it with each block from a stack of its own.
fn new_stacks(depth: u32, room: &mut Vec<Vec<u8>>) {
    let mut random = Random::new(thread_cpu().subsec_nanos().into());
    while room.len() < room.capacity() {
        on_path(random.draw(), depth, &mut || room.push(Vec::with_capacity(BLOCK)));
    }
}

fn nanos(time: Duration, size: usize) -> f64 {
    time.as_secs_f64() * 1e9 / size as f64
}
