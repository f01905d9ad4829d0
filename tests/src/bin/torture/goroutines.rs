//! A library of Go in this program: signals must not be taken on the small stacks of its goroutines.
//!
//! In: `libraries`, the path of the library; `late`, whether it is loaded once the profiler runs. Out: how often it worked. It stays loaded: Go
//! does not go.

use std::ffi::CStr;
use std::mem::ManuallyDrop;

use profiler_tests::Result;
use profiler_tests::library::{Library, paths};
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use crate::bench::{on_threads, torture};

/// Deepest recursion: a few KiB of stack, as much as goroutines begin with and several times as much.
const DEPTH: u64 = 200;
/// Steps of the innermost function.
const ROUNDS: u32 = 100_000;

/// Works on goroutines, started by two threads.
pub(crate) fn goroutines(options: &Options) -> Result<Value> {
    let path = paths(options)?.into_iter().next().ok_or("which library?")?;
    if !options.value("late")? {
        load(&path)?;
    }
    torture(options, |time, _| {
        let worked = on_threads(2, time, |index| {
            let mut random = Random::new(index as u64 + u64::from(time.left().subsec_nanos()));
            let worked = load(&path).and_then(|library| library.work(random.below(DEPTH) as u32, ROUNDS));
            assert!(worked.is_ok(), "{worked:?}");
        })?;
        Ok(json!({ "worked": worked }))
    })
}

/// Loads it for good.
fn load(path: &CStr) -> Result<ManuallyDrop<Library>> {
    Library::open(path).map(ManuallyDrop::new)
}
