//! Known allocations, by function and by tag, on many threads, freed by others: what a profile estimates, and by how much it may
//! be wrong.
//!
//! In: the interval, how many threads, how many blocks each allocates, one in how many lives in the end, whether blocks are large. Out: for each function, tag and
//! type the truth, the estimate, and the standard error that sampling has there; how many samples lack their tag or their span, or have one of another's.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::mpsc;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use profiler_proto::ProfileSet;
use profiler_tests::stats::heap_to_json;
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use profiler_tests::{Result, capture};
use serde_json::{Value, json};

use super::exact::Block;
use super::sums::{Sums as Seen, functions_of};
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
    wide: |random| (48 << 10) + random.below(48 << 10) as usize;
    wide_mixed: |random| (32 << 10) << random.below(4);
    vast: |random| (128 << 10) + random.below(256 << 10) as usize;
}

/// Which of [`FUNCTIONS`] a thread calls, each as often as it is here: fewer of the large ones, so that all have a share in the bytes.
const USUAL: [usize; 10] = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3];
/// Where tens of thousands of samples are to live at one in 512 KiB, which is tens of GiB: nobody writes to these blocks, so they are addresses and no memory.
const LARGE: [usize; 10] = [4, 4, 4, 4, 4, 5, 5, 5, 6, 6];

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
    let work = Work {
        blocks,
        lives_one_in: options.value_or("lives", 2)?,
        interval: (1_u64 << lg) as f64,
        functions: if options.value_or("large", false)? { &LARGE } else { &USUAL },
    };
    let profiler = start(lg)?;
    let (kept, known) = allocate(threads, &work);
    let set = capture::heap(&profiler)?;
    let lived = Seen::of(&set);
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
    Ok(json!({
        "rows": rows, "labels": labels(&set), "kept": kept_blocks, "leaves": lived.leaves, "stats": stats,
        "after": heap_to_json(&profiler.stats().heap),
    }))
}

/// Of the samples of the functions: all, those without an endpoint, those in the span, and those in one where they have no place or out of it where they had one.
/// What was allocated in all is told without spans.
fn labels(set: &ProfileSet) -> Value {
    let [mut samples, mut untagged, mut linked, mut wrong] = [0; 4];
    for profile in &set.profiles {
        let knows_spans = set.dictionary.strings.text(profile.kind.sample_type.kind).starts_with("inuse_");
        for sample in &profile.samples {
            let is_known =
                |name: &String| FUNCTIONS.iter().any(|(known, ..)| name.ends_with(&format!("truth::{known}")));
            if !functions_of(sample, &set.dictionary).iter().any(is_known) {
                continue;
            }
            samples += 1;
            let tags = set.dictionary.attributes_of(sample.attributes);
            let endpoint = tags.filter(|(key, _)| *key == "endpoint").map(|(_, tag)| tag.to_string()).next();
            untagged += u64::from(endpoint.as_ref().is_none_or(|endpoint| !ENDPOINTS.contains(&endpoint.as_str())));
            let link = set.dictionary.links.get(sample.link).map_or(0, |link| link.span_id[7]);
            let expected = if knows_spans && endpoint.as_deref() == Some(ENDPOINTS[0]) { SPAN } else { 0 };
            linked += u64::from(link == SPAN);
            wrong += u64::from(link != expected);
        }
    }
    json!({ "samples": samples, "untagged": untagged, "linked": linked, "wrong": wrong })
}

/// What each thread does.
struct Work {
    blocks: u64,
    lives_one_in: u64,
    interval: f64,
    /// The functions that allocate, by their places.
    functions: &'static [usize; 10],
}

/// What lives in the end, and what is known of everything.
fn allocate(threads: u64, work: &Work) -> (Vec<Block>, Sums) {
    let (kept_sender, kept) = mpsc::channel();
    let (freed_sender, freed) = mpsc::channel::<Block>();
    let mut known = Sums::new();
    std::thread::scope(|scope| {
        // Frees what others allocated.
        scope.spawn(|| freed.into_iter().for_each(drop));
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (kept, freed) = (kept_sender.clone(), freed_sender.clone());
                scope.spawn(move || run(thread, work, &kept, &freed))
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

fn run(thread: u64, work: &Work, kept: &mpsc::Sender<Block>, freed: &mpsc::Sender<Block>) -> Sums {
    let mut random = Random::new(thread + 1);
    let mut known = Sums::new();
    for round in 0..work.blocks {
        let endpoint = ENDPOINTS[random.below(4) as usize];
        let (name, function, size) = &FUNCTIONS[work.functions[random.below(10) as usize]];
        let size = size(&mut random);
        let lives = round % work.lives_one_in == 0;
        let block = {
            // Outside of the tags, for it allocates itself.
            let _span = (endpoint == ENDPOINTS[0]).then(|| span().attach());
            let _scope = profiler::tag!("endpoint" => endpoint);
            function(size)
        };
        let usable = block.usable() as f64;
        known.entry((*name).to_owned()).or_default().add(usable, work.interval, lives);
        known.entry(endpoint.to_owned()).or_default().add(usable, work.interval, lives);
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
