//! A program that becomes another one in the middle of sampling, again and again.
//!
//! In: the bench; `image`, which one this is, `end`, at which uptime it is enough. Out: how many images there were. An image has no
//! handler of SIGPROF until it starts a profiler, and the last one never does: a signal left over would end it. None has a descriptor
//! of the one before.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::clock::uptime;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use crate::bench;

/// As many images there are at least, however slow the machine is.
const LEAST: u64 = 3;

/// Works without a profiler, then with one, then becomes the next image.
pub(crate) fn exec(options: &Options) -> Result<Value> {
    let image: u64 = options.value_or("image", 0)?;
    let now = uptime();
    let end = options.value_or("end", (now + Duration::from_secs_f64(options.value("seconds")?)).as_secs_f64())?;
    let left = perf_events()?;
    if left > 0 {
        return Err(format!("image {image} has {left} perf events of the one before").into());
    }
    spin(Duration::from_millis(30));
    if now.as_secs_f64() >= end && image >= LEAST {
        spin(Duration::from_millis(300));
        return Ok(json!({ "images": image }));
    }
    let profiler = bench::start()?;
    for _ in 0..2 {
        std::thread::spawn(|| {
            loop {
                spin(Duration::from_millis(1));
            }
        });
    }
    spin(Duration::from_millis(40));
    let taken = profiler.stats().account.taken;
    if taken == 0 {
        // Its records come out ten times a second.
        spin(Duration::from_millis(150));
    }
    let arguments = [format!("seconds={}", 0), format!("image={}", image + 1), format!("end={end}")];
    let error = Command::new(std::env::current_exe()?).arg("exec").args(arguments).exec();
    Err(error.into())
}

/// Descriptors of perf events that are open.
fn perf_events() -> Result<usize> {
    let links = std::fs::read_dir("/proc/self/fd")?.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy().contains("perf_event")).count())
}
