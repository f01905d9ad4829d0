//! The account of every stack, looked at again and again while stacks are taken, lost, sent and refused.
//!
//! In: the size of the ring, in words. Out: how many snapshots were taken and how many of them did not balance; and the
//! account once sampling has stopped and everything has been sent or given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::{at_depth, spin};
use serde_json::{Value, json};

use profiler_tests::stats;

/// Burns CPU in deep stacks on four threads for `seconds`, and keeps the account under watch.
pub(crate) fn account(options: &Options) -> Result<Value> {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let seconds = Duration::from_secs_f64(options.value("seconds")?);
    let config = Config::new("account").rate_hz(1000).interval(Duration::from_secs(1));
    let profiler = profiler::start(match options.value_or("ring_words", 0)? {
        0 => config,
        words => config.ring_words(words),
    })?;
    let (snapshots, wrong) = std::thread::scope(|scope| {
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
    let limit = Duration::from_secs_f64(options.value_or("flush", 10.0)?);
    let start = Instant::now();
    let flushed = profiler.flush(limit);
    let flush_seconds = start.elapsed().as_secs_f64();
    let stats = stats::to_json(&profiler.stats());
    let start = Instant::now();
    drop(profiler);
    let drop_seconds = start.elapsed().as_secs_f64();
    Ok(json!({
        "snapshots": snapshots, "wrong": wrong, "flushed": flushed, "stats": stats,
        "flush_seconds": flush_seconds, "drop_seconds": drop_seconds,
    }))
}

/// Takes a snapshot every few milliseconds; says how many, and how many did not balance.
fn watch(profiler: &Profiler, time: Duration) -> (u64, u64) {
    let end = Instant::now() + time;
    let (mut snapshots, mut wrong) = (0, 0);
    while Instant::now() < end {
        snapshots += 1;
        wrong += u64::from(!profiler.stats().account.balances());
        std::thread::sleep(Duration::from_millis(3));
    }
    (snapshots, wrong)
}
