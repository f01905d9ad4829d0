//! A fork in the middle of sampling.
//!
//! In: nothing. Out: how the child ended, and the weight of the samples that the parent took afterwards. The child burns CPU, holds the
//! guard, drops it and exits, as a child of any service might.

use std::time::{Duration, Instant};

use profiler::Config;
use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use profiler_tests::stats;

use crate::FLUSH;

/// Exit code of a child in which everything went well.
const WELL: i32 = 7;

/// Forks `times` times while a thread is busy, and waits for each child.
pub(crate) fn fork(options: &Options) -> Result<Value> {
    let profiler = profiler::start(Config::new("fork").interval(Duration::from_millis(500)))?;
    let (mut well, times) = (0, options.value::<u32>("times")?);
    for _ in 0..times {
        spin(Duration::from_millis(50));
        // SAFETY: fork(2). The child only burns CPU, asks the profiler, and exits without running anything of the parent's.
        match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error().into()),
            0 => {
                spin(Duration::from_millis(100));
                let still = profiler.stats().account.taken;
                let is_told = profiler.resume().is_err_and(|error| error.to_string().contains("forked child"));
                drop(profiler);
                // SAFETY: _exit(2) ends the child at once.
                unsafe { libc::_exit(if still == 0 && is_told { WELL } else { 8 }) }
            }
            child => well += u32::from(exit_code(child)? == Some(WELL)),
        }
    }
    let before = profiler.stats().weight;
    spin(Duration::from_millis(500));
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    let stats = profiler.stats();
    let after = stats.weight - before;
    Ok(json!({ "well": well, "times": times, "after": after, "flushed": flushed, "stats": stats::to_json(&stats) }))
}

/// Waits for `child`, 10 s at most; none if it did not exit by itself.
fn exit_code(child: i32) -> Result<Option<i32>> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let mut status = 0;
        // SAFETY: waitpid(2) writes the status of our own child.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            0 => {
                // SAFETY: kill(2) of our own child, which was not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
                return Ok(None);
            }
            -1 => return Err(std::io::Error::last_os_error().into()),
            _ => return Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))),
        }
    }
}
