//! How long a thread that allocates or frees is held up while a profile is made.
//!
//! In: how many samples live, and seconds. Out: the longest call of threads that allocate and free sampled blocks all the time,
//! first while nobody asks for a profile, then while profiles are made one after the other; and the same less what the thread waited for a
//! processor meanwhile, for that is the machine's doing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use profiler::Profiler;
use profiler_tests::subject::Options;
use profiler_tests::usage::RunQueue;
use profiler_tests::workload::{Random, on_path};
use profiler_tests::{Result, capture};
use serde_json::{Value, json};

use super::under::Under;

/// Bytes of a block.
const BLOCK: usize = 256;
/// Tags, ways, and frames of what lives: a site for each pair.
const TENANTS: u64 = 64;
const WAYS: u64 = 64;
const DEPTH: u32 = 30;

/// Nobody asks; profiles are made; the threads are to end.
const PHASES: usize = 3;

/// Measures both.
pub(crate) fn pause(options: &Options) -> Result<Value> {
    let (live, seconds): (u64, f64) = (options.value("live")?, options.value("seconds")?);
    let under = Under::start(options)?;
    let profiler = under.ours()?;
    let kept: Vec<Vec<u8>> = (0..live).map(keep).collect();
    // Names are found once.
    capture_for(profiler, Duration::ZERO)?;
    let phase = AtomicU64::new(0);
    let threads = std::thread::available_parallelism()?.get().saturating_sub(1).max(1);
    let (captures, longest) = std::thread::scope(|scope| -> Result<_> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| allocate(&phase))).collect();
        let time = Duration::from_secs_f64(seconds);
        std::thread::sleep(time);
        phase.store(1, Ordering::Relaxed);
        let captures = capture_for(profiler, time);
        phase.store(2, Ordering::Relaxed);
        let mut longest = [Longest::default(); PHASES];
        for worker in workers {
            let of_thread = worker.join().map_err(|_| "a thread panicked")??;
            longest.iter_mut().zip(of_thread).for_each(|(longest, other)| longest.merge(&other));
        }
        Ok((captures?, longest))
    })?;
    let live = profiler.stats().heap.live;
    drop(kept);
    under.finish()?;
    let [quiet, asked, _] = longest.map(Longest::to_json);
    Ok(json!({ "live": live, "captures": captures, "quiet": quiet, "asked": asked }))
}

/// One of the blocks that live.
fn keep(number: u64) -> Vec<u8> {
    let _scope = profiler::tag!("tenant" => number % TENANTS);
    on_path(number / TENANTS % WAYS, DEPTH, &mut || Vec::with_capacity(BLOCK))
}

/// How many profiles were made in this time, one at least.
fn capture_for(profiler: &Profiler, time: Duration) -> Result<u64> {
    let end = Instant::now() + time;
    let mut captures = 0;
    while captures == 0 || Instant::now() < end {
        capture::heap(profiler)?;
        captures += 1;
    }
    Ok(captures)
}

/// The longest of many calls.
#[derive(Debug, Clone, Copy, Default)]
struct Longest {
    calls: u64,
    /// By the clock.
    all: Duration,
    /// Without the time for which the thread waited for a processor.
    running: Duration,
}

impl Longest {
    fn add(&mut self, call: Duration, waited: Duration) {
        self.calls += 1;
        self.all = self.all.max(call);
        self.running = self.running.max(call.saturating_sub(waited));
    }

    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.all = self.all.max(other.all);
        self.running = self.running.max(other.running);
    }

    fn to_json(self) -> Value {
        json!({ "calls": self.calls, "all_micros": micros(self.all), "running_micros": micros(self.running) })
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Allocates and frees until the last phase begins.
fn allocate(phase: &AtomicU64) -> Result<[Longest; PHASES]> {
    let queue = RunQueue::of_this_thread()?;
    let mut random = Random::new(7);
    let mut longest = [Longest::default(); PHASES];
    let mut block = Vec::new();
    loop {
        let now = phase.load(Ordering::Relaxed);
        if now == 2 {
            return Ok(longest);
        }
        let tenant = random.below(TENANTS);
        let _scope = profiler::tag!("tenant" => tenant);
        let way = random.below(WAYS);
        let (waited, start) = (queue.waited(), Instant::now());
        on_path(way, DEPTH, &mut || block = Vec::<u8>::with_capacity(BLOCK));
        let allocated = start.elapsed();
        let (waited_since, start) = (queue.waited(), Instant::now());
        drop(std::mem::take(&mut block));
        let freed = start.elapsed();
        let longest = &mut longest[now as usize];
        longest.add(allocated, waited_since.saturating_sub(waited));
        longest.add(freed, queue.waited().saturating_sub(waited_since));
    }
}
