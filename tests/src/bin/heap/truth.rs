//! Known allocations, by function and by tag, on many threads, freed by others: what a profile estimates, and by how much it may
//! be wrong.
//!
//! In: the interval, how many threads, how many blocks each allocates, one in how many lives in the end. Out: for each function, tag and type the truth, the estimate, and the
//! standard error that sampling has there.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::mpsc;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use super::exact::Block;
use super::{start, sums};

const ENDPOINTS: [&str; 4] = ["/orders", "/cart", "/search", "/login"];
/// The span under which [`ENDPOINTS`]' first works.
const SPAN: u8 = 77;

/// A function that allocates, and how large the blocks are that it is asked for.
type Function = (&'static str, fn(usize) -> Block, fn(&mut Random) -> usize);

// A body of its own for each, for the linker folds equal functions.
macro_rules! functions {
    ($($name:ident: $size:expr;)*) => {
        const FUNCTIONS: &[Function] = &[$((stringify!($name), $name, $size)),*];
        $(
            #[inline(never)]
            fn $name(size: usize) -> Block {
                let block = Block::of(size);
                black_box(stringify!($name));
                block
            }
        )*
    };
}

functions! {
    small: |random| 64 + random.below(448) as usize;
    middle: |random| 1000 + random.below(7000) as usize;
    mixed: |random| 100 << random.below(9);
    large: |random| 16_384 + random.below(100_000) as usize;
}

/// Truth and variance of the four types, in their order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) truth: [f64; 4],
    pub(crate) variance: [f64; 4],
    blocks: u64,
}

impl Sum {
    /// Counts a block; `allocated` and `in_use` say where.
    pub(crate) fn add(&mut self, size: f64, interval: f64, lives: bool) {
        let chance = -(-size / interval).exp_m1();
        let spread = (1.0 - chance) / chance;
        let values = [1.0, size, 1.0, size];
        for (place, value) in values.into_iter().enumerate().take(if lives { 4 } else { 2 }) {
            self.truth[place] += value;
            self.variance[place] += value * value * spread;
        }
        self.blocks += 1;
    }

    fn merge(&mut self, other: &Self) {
        for place in 0..4 {
            self.truth[place] += other.truth[place];
            self.variance[place] += other.variance[place];
        }
        self.blocks += other.blocks;
    }
}

/// Sums by function, and by endpoint.
type Sums = BTreeMap<String, Sum>;

/// Allocates, frees a part by other threads, and compares.
pub(crate) fn truth(options: &Options) -> Result<Value> {
    let lg = options.value("lg")?;
    let (threads, blocks): (u64, u64) = (options.value("threads")?, options.value("blocks")?);
    let lives: u64 = options.value_or("lives", 2)?;
    let interval = (1_u64 << lg) as f64;
    let profiler = start(lg)?;
    let (kept, known) = allocate(threads, blocks, lives, interval);
    let lived = sums(&profiler)?;
    let stats = heap_to_json(&profiler.stats().heap);
    let kept_blocks = kept.len();
    drop(kept);
    let freed = sums(&profiler)?;
    let mut rows = Vec::new();
    for (name, sum) in &known {
        let (estimate, left) = match name.starts_with('/') {
            true => (lived.tag(&format!("endpoint={name}")), freed.tag(&format!("endpoint={name}"))),
            false => (lived.function(name), freed.function(name)),
        };
        let errors = sum.variance.map(f64::sqrt);
        rows.push(json!({
            "name": name, "blocks": sum.blocks, "truth": sum.truth, "estimate": estimate, "error": errors, "left": left,
        }));
    }
    let spans: Vec<Value> = lived
        .by_span
        .iter()
        .filter(|((_, endpoint), _)| !endpoint.is_empty())
        .map(|((span, endpoint), values)| json!({ "span": span, "endpoint": endpoint, "values": values }))
        .collect();
    Ok(json!({
        "rows": rows, "spans": spans, "span": SPAN, "kept": kept_blocks, "leaves": lived.leaves, "stats": stats,
        "after": heap_to_json(&profiler.stats().heap),
    }))
}

/// What lives in the end, and what is known of everything.
fn allocate(threads: u64, blocks: u64, lives: u64, interval: f64) -> (Vec<Block>, Sums) {
    let (kept_sender, kept) = mpsc::channel();
    let (freed_sender, freed) = mpsc::channel::<Block>();
    let mut known = Sums::new();
    std::thread::scope(|scope| {
        // Frees what others allocated.
        scope.spawn(|| freed.into_iter().for_each(drop));
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (kept, freed) = (kept_sender.clone(), freed_sender.clone());
                scope.spawn(move || work(thread, (blocks, lives), interval, &kept, &freed))
            })
            .collect();
        drop(freed_sender);
        for worker in workers {
            for (name, sum) in worker.join().unwrap_or_default() {
                known.entry(name).or_default().merge(&sum);
            }
        }
    });
    drop(kept_sender);
    (kept.into_iter().collect(), known)
}

fn work(
    thread: u64,
    (blocks, lives_one_in): (u64, u64),
    interval: f64,
    kept: &mpsc::Sender<Block>,
    freed: &mpsc::Sender<Block>,
) -> Sums {
    let mut random = Random::new(thread + 1);
    let mut known = Sums::new();
    for round in 0..blocks {
        let endpoint = ENDPOINTS[random.below(4) as usize];
        // Fewer of the large ones, so that all functions have a share in the bytes.
        let (name, function, size) = FUNCTIONS[[0, 0, 0, 0, 0, 0, 1, 1, 2, 3][random.below(10) as usize]];
        let size = size(&mut random);
        let lives = round % lives_one_in == 0;
        let block = {
            // Outside of the tags, for it allocates itself.
            let _span = (endpoint == ENDPOINTS[0]).then(|| span().attach());
            let _scope = profiler::tag!("endpoint" => endpoint);
            function(size)
        };
        let usable = block.usable() as f64;
        known.entry(name.to_owned()).or_default().add(usable, interval, lives);
        known.entry(endpoint.to_owned()).or_default().add(usable, interval, lives);
        let sent = if lives { kept.send(block) } else { freed.send(block) };
        if sent.is_err() {
            break;
        }
    }
    known
}

/// A context in which a span is current.
fn span() -> Context {
    let (trace, span) = (TraceId::from_bytes([5; 16]), SpanId::from_bytes([0, 0, 0, 0, 0, 0, 0, SPAN]));
    let context = SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE);
    Context::new().with_remote_span_context(context)
}
