//! A fork while other threads are in the hooks.
//!
//! In: how often. Out: how many children allocated, freed and ended well, one of them with a profiler of its own, and that the parent's
//! samples go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use profiler_tests::subject::Options;
use serde_json::{Value, json};

use super::{start, sums};

/// Exit code of a child in which everything went well.
const WELL: i32 = 7;
/// How long a child may take: longer than its profile, for which it looks up names, may be asked for.
const LIMIT: Duration = Duration::from_secs(120);

/// Forks, again and again.
pub(crate) fn fork(options: &Options) -> Result<Value> {
    let times: u32 = options.value("times")?;
    let profiler = start(4)?;
    let enough = AtomicBool::new(false);
    let (mut well, mut others) = (0, Vec::new());
    let outcome = std::thread::scope(|scope| -> Result<()> {
        for _ in 0..3 {
            scope.spawn(|| churn(&enough));
        }
        let inherited: Vec<Vec<u8>> = (0..100).map(|_| Vec::with_capacity(1000)).collect();
        let forked = (0..times).try_for_each(|time| {
            // SAFETY: fork(2). The child allocates, frees, perhaps profiles itself, and exits without running anything of the parent's.
            match unsafe { libc::fork() } {
                -1 => Err(std::io::Error::last_os_error()),
                0 => {
                    let code = child(&inherited, time + 1 == times);
                    // SAFETY: _exit(2) ends the child at once.
                    unsafe { libc::_exit(code) }
                }
                child => {
                    match exit_code(child)? {
                        Some(WELL) => well += 1,
                        other => others.push((time, other)),
                    }
                    Ok(())
                }
            }
        });
        enough.store(true, Ordering::Relaxed);
        Ok(forked?)
    });
    outcome?;
    let before = profiler.stats().heap;
    let kept: Vec<Vec<u8>> = (0..1000).map(|_| Vec::with_capacity(1000)).collect();
    let after = profiler.stats().heap;
    drop(kept);
    Ok(json!({
        "well": well, "times": times, "others": others, "sampled": after.sampled - before.sampled, "stats": heap_to_json(&profiler.stats().heap),
    }))
}

#[inline(never)]
fn churn(enough: &AtomicBool) {
    while !enough.load(Ordering::Relaxed) {
        drop((1..50).map(|n| Vec::with_capacity(n * 40)).collect::<Vec<Vec<u8>>>());
    }
}

/// What a child does; its exit code.
fn child(inherited: &[Vec<u8>], profiles: bool) -> i32 {
    let own: Vec<Vec<u8>> = inherited.iter().map(|block| Vec::with_capacity(block.capacity() * 2)).collect();
    // What the parent sampled is freed here, too.
    drop(own);
    if !profiles {
        return WELL;
    }
    let well = || -> Result<bool> {
        let profiler = start(0)?;
        let kept = kept_by_a_child();
        let sums = sums(&profiler)?;
        let [_, _, objects, _] = sums.function("kept_by_a_child");
        // What the parent turned on is its own: nobody else's, and off once it ends.
        let notes = profiler.stats().heap.notes;
        Ok(objects == kept.len() as i64 + 1 && notes.is_empty())
    };
    if well().unwrap_or(false) { WELL } else { 8 }
}

#[inline(never)]
fn kept_by_a_child() -> Vec<Vec<u8>> {
    let kept = (0..100).map(|n| Vec::with_capacity(n + 10)).collect();
    // Something to do after it, or this function would not be on the stack.
    std::hint::black_box("kept");
    kept
}

/// Waits for `child`, [`LIMIT`] at most. None if it did not exit by itself.
fn exit_code(child: i32) -> std::io::Result<Option<i32>> {
    let end = Instant::now() + LIMIT;
    loop {
        let mut status = 0;
        // SAFETY: waitpid(2) writes the status of our own child.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            0 => {
                // SAFETY: kill(2) and waitpid(2) of our own child, which was not waited for yet.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &raw mut status, 0);
                }
                return Ok(None);
            }
            -1 => return Err(std::io::Error::last_os_error()),
            _ => return Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))),
        }
    }
}
