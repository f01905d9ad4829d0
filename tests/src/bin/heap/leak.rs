//! A program that serves its page and leaks under a tag, beside memory that stays and memory that is given back.
//!
//! In: the interval of samples; lines on standard input that say go on. Out: lines with the address, and with what each function
//! really has in use, has leaked, has given back, with the standard errors that sampling has there.

use std::hint::black_box;
use std::time::Duration;

use profiler::Config;
use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use super::exact::Block;
use super::truth::Sum;
use super::{say, wait_for_word};

/// Blocks that each function allocates.
const BLOCKS: usize = 32_000;

// A body of its own for each, for the linker folds equal functions.
macro_rules! functions {
    ($($name:ident)*) => {
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

functions! { fill_cache build_report open_session }

/// Fills a cache and builds a report; when it is told to, leaks and gives the report back; ends when it is told to.
pub(crate) fn leak(options: &Options) -> Result<Value> {
    let lg: u32 = options.value("lg")?;
    let config = Config::new("leak").heap(true).heap_interval(1 << lg).interval(Duration::from_millis(200));
    let profiler = profiler::start(config.serve("127.0.0.1:0"))?;
    let address = profiler.serve_address().ok_or("the page is not served")?;
    let (cache, of_cache) = allocated(fill_cache, lg, |_| "all");
    let (report, of_report) = allocated(build_report, lg, |_| "globex");
    say(&json!({ "serve": address.to_string(), "fill_cache": of_cache.json(), "build_report": of_report.json() }));
    wait_for_word()?;
    drop(report);
    let of_tenant = |n: usize| if n.is_multiple_of(10) { "acme" } else { "umbrella" };
    let (sessions, of_sessions) = allocated(open_session, lg, of_tenant);
    say(&json!({ "open_session": of_sessions.json() }));
    wait_for_word()?;
    drop((cache, sessions));
    Ok(json!({ "sampled": profiler.stats().heap.sampled }))
}

impl Sum {
    /// Bytes, and their standard error.
    fn json(&self) -> Value {
        let [.., bytes] = self.truth;
        let [.., variance] = self.variance;
        json!({ "bytes": bytes, "error": variance.sqrt() })
    }
}

/// Blocks of one function, and what they come to.
fn allocated(function: fn(usize) -> Block, lg: u32, tenant: fn(usize) -> &'static str) -> (Vec<Block>, Sum) {
    let (mut random, mut sum) = (Random::new(u64::from(lg)), Sum::default());
    let mut blocks = Vec::with_capacity(BLOCKS);
    for n in 0..BLOCKS {
        let size = 64 + random.below(4000) as usize;
        let block = {
            let _scope = profiler::tag!("tenant" => tenant(n));
            function(size)
        };
        sum.add(block.usable() as f64, (1_u64 << lg) as f64, true);
        blocks.push(block);
    }
    (blocks, sum)
}
