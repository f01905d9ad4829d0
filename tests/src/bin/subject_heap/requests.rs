//! Requests that allocate: 64 to 512 KiB each, in small pieces, of which some are held for a while and then freed by another thread.
//!
//! In: threads, seconds. Out: requests and CPU time, after a time in which what is done once is done. A request's pieces are written and
//! read; it runs some thirty frames deep, on one of sixteen ways, under ours with the tag of its endpoint.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::{Random, on_path};
use serde_json::{Value, json};

use super::Spent;
use super::under::Under;

/// How long requests run before they count: ours has chosen its interval by then, at the end of a second of CPU time.
const SETTLES: Duration = Duration::from_secs(3);
/// Frames above a request's allocations.
const DEPTH: u32 = 30;
/// Requests whose held pieces live.
const HELD: usize = 256;
/// One in so many pieces is held.
const HOLDS: usize = 8;

const ENDPOINTS: [&str; 16] = [
    "/orders", "/cart", "/search", "/login", "/report", "/stock", "/prices", "/users", "/mails", "/images", "/news",
    "/help", "/shops", "/tax", "/rates", "/trips",
];

/// What requests held, the oldest first.
type Held = Mutex<VecDeque<Vec<Vec<u8>>>>;

/// Answers requests on all threads for some seconds.
pub(crate) fn requests(options: &Options) -> Result<Value> {
    let (threads, seconds): (u64, f64) = (options.value("threads")?, options.value("seconds")?);
    let under = Under::start(options)?;
    let tagged = options.value::<String>("profiler")? == "ours";
    let (held, answered, enough) = (Held::default(), AtomicU64::new(0), AtomicBool::new(false));
    let said = std::thread::scope(|scope| {
        let (held, answered, enough) = (&held, &answered, &enough);
        for seed in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(seed + 1);
                while !enough.load(Ordering::Relaxed) {
                    answer(&mut random, held, tagged);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(SETTLES);
        let said = measured(&under, answered, Duration::from_secs_f64(seconds));
        enough.store(true, Ordering::Relaxed);
        said
    })?;
    under.finish()?;
    Ok(said)
}

/// What is spent on requests in this time.
fn measured(under: &Under, answered: &AtomicU64, time: Duration) -> Result<Value> {
    under.settle()?;
    let (before, first) = (Spent::now(under)?, answered.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let requests = answered.load(Ordering::Relaxed) - first;
    let mut said = Spent::now(under)?.since(&before);
    said["requests"] = json!(requests);
    Ok(said)
}

fn answer(random: &mut Random, held: &Held, tagged: bool) {
    let way = random.below(16);
    let endpoint = ENDPOINTS[way as usize];
    let _scope = tagged.then(|| profiler::tag!("endpoint" => endpoint));
    let bytes = (64 << 10) + random.below(448 << 10) as usize;
    let kept = on_path(way, DEPTH, &mut || work(random, bytes));
    let oldest = {
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push_back(kept);
        if held.len() > HELD { held.pop_front() } else { None }
    };
    drop(oldest);
}

/// Fills so many bytes of memory in pieces of 16 to 1,024, reads them all, and gives some of them.
#[inline(never)]
fn work(random: &mut Random, bytes: usize) -> Vec<Vec<u8>> {
    let (mut pieces, mut left) = (Vec::new(), bytes);
    while left > 0 {
        let size = (16 << random.below(7)).min(left);
        pieces.push(vec![size as u8 | 1; size]);
        left -= size;
    }
    let sum: u64 = pieces.iter().flatten().map(|byte| u64::from(*byte)).sum();
    black_box(sum);
    pieces.into_iter().step_by(HOLDS).collect()
}
