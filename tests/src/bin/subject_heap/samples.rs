//! The cost of one sample: every allocation is one, in a loop, and so is every free.
//!
//! In: depth of the stack, batches and their size, how many threads work on as many at a time, whether the stack is the same each time or one never seen before. Out: CPU
//! time of one allocation and of one free, batch by batch. What the same takes where nothing is sampled is for whoever asks to subtract.

use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::clock::thread_cpu;
use profiler_tests::subject::Options;
use profiler_tests::workload::{Random, at_depth, on_path};
use serde_json::{Value, json};

use super::under::Under;

/// How long a thread waits behind its first samples before anything counts: until ours knows where its stack ends, for which it looks once it is asked, each
/// sample takes several system calls.
const SETTLES: Duration = Duration::from_secs(1);
/// Bytes of a block.
const BLOCK: usize = 256;

/// What each thread does.
struct Work {
    depth: u32,
    batches: u32,
    size: usize,
    fill: fn(u32, &mut Vec<Vec<u8>>),
}

/// Allocates and frees, batch by batch, on each thread.
pub(crate) fn samples(options: &Options) -> Result<Value> {
    let fill: fn(u32, &mut Vec<Vec<u8>>) = match options.value::<String>("stack")?.as_str() {
        "same" => same_stack,
        "new" => new_stacks,
        other => return Err(format!("stack={other:?} is neither same nor new").into()),
    };
    let (depth, batches, size) = (options.value("depth")?, options.value("batches")?, options.value("size")?);
    let work = Work { depth, batches, size, fill };
    let threads: u32 = options.value_or("threads", 1)?;
    let under = Under::start(options)?;
    let (mut allocated, mut freed) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| work.done())).collect();
        for thread in threads {
            let batches = thread.join().unwrap_or_default();
            allocated.extend(batches.iter().map(|[allocated, _]| *allocated));
            freed.extend(batches.iter().map(|[_, freed]| *freed));
        }
    });
    let sampled = under.sampled();
    under.finish()?;
    Ok(json!({ "allocated": allocated, "freed": freed, "sampled": sampled }))
}

impl Work {
    /// The nanoseconds of an allocation and of a free, of each batch.
    fn done(&self) -> Vec<[f64; 2]> {
        let _scope = profiler::tag!("endpoint" => "/orders", "method" => "POST");
        let mut room = Vec::with_capacity(self.size);
        // The first batch is not counted: memory that is touched for the first time, and a stack that is asked about.
        self.batch(&mut room);
        std::thread::sleep(SETTLES);
        (0..self.batches).map(|_| self.batch(&mut room)).collect()
    }

    fn batch(&self, room: &mut Vec<Vec<u8>>) -> [f64; 2] {
        let start = thread_cpu();
        (self.fill)(self.depth, room);
        let filled = thread_cpu();
        room.clear();
        let ended = thread_cpu();
        [filled - start, ended - filled].map(|time| time.as_secs_f64() * 1e9 / self.size as f64)
    }
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
