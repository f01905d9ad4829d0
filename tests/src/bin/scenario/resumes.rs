//! Sampling that is paused and resumed as fast as it goes, many times.
//!
//! In: how often, how many busy threads, at which rate. Out: the account. What is used while alarms are taken away and set
//! is little each time; here it comes to seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use profiler::Config;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use profiler_tests::{Result, stats};
use serde_json::{Value, json};

/// Sampling between a resume and the next pause: there is something to take over.
const BETWEEN: Duration = Duration::from_millis(2);

/// Pauses and resumes `times` times while `threads` threads burn CPU.
pub(crate) fn resumes(options: &Options) -> Result<Value> {
    let (threads, times) = (options.value::<u32>("threads")?, options.value::<u32>("times")?);
    let profiler = profiler::start(Config::new("resumes").rate_hz(options.value("rate")?))?;
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    spin(Duration::from_millis(1));
                }
            });
        }
        let resumed = (0..times).try_for_each(|_| {
            std::thread::sleep(BETWEEN);
            profiler.pause();
            profiler.resume()
        });
        enough.store(true, Ordering::Relaxed);
        resumed
    })?;
    // Looks a last time at what is untold.
    profiler.pause();
    Ok(json!({ "stats": stats::to_json(&profiler.stats()) }))
}
