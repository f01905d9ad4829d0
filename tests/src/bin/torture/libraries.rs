//! Libraries that are loaded, run and unloaded on several threads at once.
//!
//! In: `libraries`, paths of copies of one library in C with a comma between them. Out: how often one was used, and how
//! often the dynamic linker really unmapped one, by its own counters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::Profiler;
use profiler_tests::Result;
use profiler_tests::library::{Library, paths};
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use crate::bench::{Time, on_threads, torture};

/// How long one of the threads keeps a library while others come and go.
const STAYS: Duration = Duration::from_millis(300);
/// As many are unloaded at least, however slow the machine is.
const LEAST: u64 = 25;
/// But no longer than so much more time.
const MORE: Duration = Duration::from_secs(60);
/// How often samples come in, while none comes or goes, until the sampler is certain what it is: before, one may have been in
/// the place of another, and frames may keep their address for a name.
const CERTAIN: u32 = 4;

/// Loads, runs and unloads on three threads.
pub(crate) fn libraries(options: &Options) -> Result<Value> {
    let paths = paths(options)?;
    let quiet = AtomicBool::new(false);
    torture(options, |time, profiler| {
        let before = unloaded();
        let use_one = |time: &Time, index| {
            let mut random = Random::new(index as u64 + u64::from(time.left().subsec_nanos()));
            let path = &paths[random.below(paths.len() as u64) as usize];
            let worked = Library::open(path).and_then(|library| {
                let opened = Instant::now();
                library.work(random.below(20) as u32, 50_000)?;
                while index == 0 && opened.elapsed() < STAYS && time.is_left() || quiet.load(Ordering::Relaxed) {
                    library.work(random.below(20) as u32, 50_000)?;
                }
                if index == 0 {
                    quiet.store(true, Ordering::Relaxed);
                    let certain = work_until_certain(&library, profiler);
                    quiet.store(false, Ordering::Relaxed);
                    certain?;
                }
                Ok(())
            });
            assert!(worked.is_ok(), "{worked:?}");
        };
        let mut used = on_threads(3, time, |index| use_one(time, index))?;
        let end = Instant::now() + MORE;
        while unloaded() - before < LEAST && Instant::now() < end {
            let more = Time::lasting(2 * STAYS);
            used += on_threads(3, &more, |index| use_one(&more, index))?;
        }
        Ok(json!({ "used": used, "unloaded": unloaded() - before }))
    })
}

fn work_until_certain(library: &Library, profiler: &Profiler) -> Result<()> {
    let (mut weight, mut left) = (profiler.stats().weight, CERTAIN);
    while left > 0 {
        library.work(10, 50_000)?;
        let now = profiler.stats().weight;
        left -= u32::from(now != weight);
        weight = now;
    }
    Ok(())
}

/// How many modules the dynamic linker has ever unmapped.
fn unloaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid `info`, and `data` is the number below (dl_iterate_phdr(3)).
        unsafe { *data.cast::<u64>() = (*info).dlpi_subs };
        1
    }
    let mut count = 0_u64;
    // SAFETY: dl_iterate_phdr(3): the callback has the signature and gets the number.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}
