//! Ways to leave while profiles are on their way.
//!
//! In: `how`: `exit` calls `std::process::exit` with the guard alive, `return` drops it, `leak` forgets it and returns. Out:
//! a line before it goes; how long it takes to be gone is for the test to say.

use std::process;
use std::time::Duration;

use profiler::Config;
use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use crate::say;

/// Burns CPU on two threads, one of which never ends, and leaves.
pub(crate) fn exit(options: &Options) -> Result<Value> {
    let profiler = profiler::start(Config::new("exit").interval(Duration::from_millis(100)))?;
    std::thread::spawn(|| {
        loop {
            spin(Duration::from_millis(10));
        }
    });
    spin(Duration::from_millis(700));
    let how: String = options.value("how")?;
    say(&json!({ "leaving": how }));
    match how.as_str() {
        "exit" => process::exit(3),
        "return" => drop(profiler),
        "leak" => std::mem::forget(profiler),
        other => return Err(format!("how={other:?} is none of exit, return, leak").into()),
    }
    Ok(json!({ "left": how }))
}
