//! The first thread of the program ends, and others go on: a process is then known by a thread that has no memory any more.
//!
//! In: nothing. Out: what a thread that is busy afterwards came to.

use std::time::Duration;

use profiler::{Config, Profiler};
use profiler_tests::Result;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use profiler_tests::stats;

use crate::{FLUSH, say};

/// Ends the calling thread, the first one, and goes on in another one, which tells the outcome.
pub(crate) fn leader() -> Result<Value> {
    let profiler = profiler::start(Config::new("leader").interval(Duration::from_millis(500)))?;
    std::thread::spawn(move || go_on(profiler));
    // SAFETY: exit(2) ends this thread alone, and nothing on its stack is anybody else's.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    Err("the first thread goes on".into())
}

fn go_on(profiler: Profiler) {
    while std::fs::read_link("/proc/self/exe").is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    spin(Duration::from_secs(2));
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    let stats = stats::to_json(&profiler.stats());
    drop(profiler);
    say(&json!({ "flushed": flushed, "stats": stats }));
    std::process::exit(0);
}
