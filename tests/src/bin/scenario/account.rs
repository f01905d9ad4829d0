//! The account of every stack, looked at again and again while stacks are taken, lost, sent and refused.
//!
//! In: the size of the ring, in words. Out: how many snapshots were taken, how many of them did not balance, and how long one took at
//! most; and the account once sampling has stopped and everything has been sent or given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::{at_depth, spin};
use serde_json::{Value, json};

use profiler_tests::stats;

use crate::{FLUSH, MORE};

/// As many snapshots and stacks there are at least, however slow the machine is.
const LEAST: (u64, u64) = (250, 600);

/// Burns CPU in deep stacks on four threads for `seconds`, and longer where that is too little, and keeps the account under watch.
pub(crate) fn account(options: &Options) -> Result<Value> {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let seconds = Duration::from_secs_f64(options.value("seconds")?);
    let config = Config::new("account").rate_hz(1000).interval(Duration::from_secs(1));
    let profiler = profiler::start(match options.value_or("ring_words", 0)? {
        0 => config,
        words => config.ring_words(words),
    })?;
    let watched = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ENOUGH.load(Ordering::Relaxed) {
                    at_depth(100, &mut || spin(Duration::from_millis(2)));
                }
            });
        }
        let watched = watch(&profiler, seconds);
        ENOUGH.store(true, Ordering::Relaxed);
        watched
    });
    profiler.pause();
    let limit = Duration::from_secs_f64(options.value_or("flush", FLUSH.as_secs_f64())?);
    let start = Instant::now();
    let flushed = profiler.flush(limit);
    let flush_seconds = start.elapsed().as_secs_f64();
    let stats = stats::to_json(&profiler.stats());
    let start = Instant::now();
    drop(profiler);
    let drop_seconds = start.elapsed().as_secs_f64();
    Ok(json!({
        "snapshots": watched.snapshots, "wrong": watched.wrong, "longest_snapshot_seconds": watched.longest.as_secs_f64(),
        "flushed": flushed, "stats": stats,
        "flush_seconds": flush_seconds, "drop_seconds": drop_seconds,
    }))
}

/// What came of the watch.
#[derive(Debug, Default)]
struct Watched {
    snapshots: u64,
    /// Those that did not balance.
    wrong: u64,
    /// The time of the one that took longest.
    longest: Duration,
}

/// Takes a snapshot every few milliseconds.
fn watch(profiler: &Profiler, time: Duration) -> Watched {
    let (start, mut watched, mut taken) = (Instant::now(), Watched::default(), 0);
    let is_enough = |watched: &Watched, taken| watched.snapshots >= LEAST.0 && taken >= LEAST.1;
    while start.elapsed() < time || !is_enough(&watched, taken) && start.elapsed() < time + MORE {
        let asked = Instant::now();
        let stats = profiler.stats();
        watched.longest = watched.longest.max(asked.elapsed());
        watched.snapshots += 1;
        watched.wrong += u64::from(!stats::balances(&stats));
        taken = stats.account.taken;
        std::thread::sleep(Duration::from_millis(3));
    }
    watched
}
