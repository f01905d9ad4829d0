//! Hooks of the host: there before the profiler's, or set later, with and without a call of those that were there.
//!
//! In: nothing. Out: how often the host's hooks were called, also in a forked child, and what the profiler counted meanwhile.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use profiler::HeapStats;
use profiler_tests::Result;
use profiler_tests::sandbox::refuse;
use profiler_tests::stats::heap_to_json;
use serde_json::{Value, json};

use super::mallctl::{FREE_HOOK, FreeHook, SAMPLE_HOOK, SampleHook, hook, is_active, write};
use super::{blocks, refusal, start, wait_for};

/// Calls of the host's hooks, and frames that they were told.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);
/// Whether the next sample has the calling thread make no threads any more.
static REFUSES_THREADS: AtomicBool = AtomicBool::new(false);
/// What was there before and is called, too; 0: nothing is.
static NEXT_SAMPLE: AtomicUsize = AtomicUsize::new(0);
static NEXT_FREE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn on_sample(
    block: *const c_void,
    size: usize,
    stack: *mut *mut c_void,
    length: c_uint,
    usable: usize,
) {
    SAMPLED.fetch_add(1, Ordering::Relaxed);
    FRAMES.fetch_add(length.into(), Ordering::Relaxed);
    if REFUSES_THREADS.swap(false, Ordering::Relaxed) {
        // Where it cannot be, the start succeeds, which is seen.
        drop(refuse(&[libc::SYS_clone, libc::SYS_clone3]));
    }
    let next = NEXT_SAMPLE.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: jemalloc had this address as a hook of this type; it gets the arguments that jemalloc gave.
        unsafe { std::mem::transmute::<usize, SampleHook>(next)(block, size, stack, length, usable) };
    }
}

unsafe extern "C" fn on_free(block: *const c_void, usable: usize) {
    FREED.fetch_add(1, Ordering::Relaxed);
    let next = NEXT_FREE.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<usize, FreeHook>(next)(block, usable) };
    }
}

fn set_hooks() -> Result<()> {
    write(FREE_HOOK, on_free as FreeHook)?;
    Ok(write(SAMPLE_HOOK, on_sample as SampleHook)?)
}

/// Samples, frees and frames that the host's hooks have seen so far.
fn seen() -> [u64; 3] {
    [&SAMPLED, &FREED, &FRAMES].map(|counter| counter.load(Ordering::Relaxed))
}

/// What happened while the host allocated and freed a thousand blocks: to its hooks, and, as far as there are figures, to the
/// profiler's.
fn meanwhile(stats: impl Fn() -> Option<HeapStats>) -> Value {
    let (before, first) = (seen(), stats());
    drop(blocks(1000));
    let (after, last) = (seen(), stats());
    let host: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    let ours = first
        .zip(last)
        .map(|(first, last)| json!({ "sampled": last.sampled - first.sampled, "freed": last.freed - first.freed }));
    json!({ "host": host, "profiler": ours })
}

/// They are there before the start; they are called while the profiler runs and once it has ended.
pub(crate) fn first() -> Result<Value> {
    set_hooks()?;
    let profiler = start()?;
    let during = meanwhile(|| Some(profiler.stats().heap));
    let notes = profiler.stats().heap.notes;
    drop(profiler);
    write(c"prof.active", true)?;
    let after = meanwhile(|| None);
    Ok(json!({ "during": during, "after": after, "notes": notes }))
}

/// They come later, call those of the profiler, and are there when it is started again; then they do not call anybody any more, and it is started
/// once more.
pub(crate) fn later() -> Result<Value> {
    let profiler = start()?;
    let alone = heap_to_json(&profiler.stats().heap);
    NEXT_SAMPLE.store(hook(SAMPLE_HOOK)?, Ordering::Relaxed);
    NEXT_FREE.store(hook(FREE_HOOK)?, Ordering::Relaxed);
    set_hooks()?;
    wait_for(|| profiler.stats().heap.notes != Vec::<String>::new())?;
    let calling = meanwhile(|| Some(profiler.stats().heap));
    let notes = profiler.stats().heap.notes;
    drop(profiler);
    let profiler = start()?;
    let again = meanwhile(|| Some(profiler.stats().heap));
    let kept = blocks(1000);
    let in_use = refusal::in_use(&profiler)?[1];
    NEXT_SAMPLE.store(0, Ordering::Relaxed);
    NEXT_FREE.store(0, Ordering::Relaxed);
    set_hooks()?;
    let deaf = meanwhile(|| Some(profiler.stats().heap));
    drop(kept);
    drop(profiler);
    let profiler = start()?;
    let left = refusal::in_use(&profiler)?[1];
    let last = meanwhile(|| Some(profiler.stats().heap));
    let stats = heap_to_json(&profiler.stats().heap);
    Ok(json!({
        "alone": alone, "calling": calling, "notes": notes, "again": again, "in_use": in_use, "deaf": deaf, "left": left, "last": last, "stats": stats,
    }))
}

/// A child forked while the profiler runs: whether jemalloc's stacks have one frame there, and whether it takes none once a profiler of the
/// child's own has ended.
pub(crate) fn child() -> Result<Value> {
    let profiler = start()?;
    // They tell of stacks, and call nobody.
    set_hooks()?;
    // SAFETY: fork(2). The child allocates, profiles itself, and exits without running anything of the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = in_child().unwrap_or(0);
        // SAFETY: _exit(2) ends the child at once.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: waitpid(2) writes the status of our own child; of one that could not be made there is none.
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(std::io::Error::last_os_error().into());
    }
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 0 };
    drop(profiler);
    Ok(json!({ "one_frame": code & 1 != 0, "off": code & 2 != 0, "code": code }))
}

/// 1: stacks have one frame; 2: sampling is off once a profiler has ended.
fn in_child() -> Result<i32> {
    let before = seen();
    drop(blocks(1000));
    let after = seen();
    let (sampled, frames) = (after[0] - before[0], after[2] - before[2]);
    drop(start()?);
    Ok(i32::from(sampled >= 1000 && frames == sampled) | i32::from(!is_active()?) << 1)
}

/// A start that fails behind its heap, for its last thread cannot be made: the error, and whether samples are taken and recorded all the same.
pub(crate) fn refused() -> Result<Value> {
    set_hooks()?;
    REFUSES_THREADS.store(true, Ordering::Relaxed);
    let error = start().map(drop).map_err(|error| error.to_string()).err();
    let sampled = meanwhile(|| None)["host"][0].clone();
    Ok(json!({ "error": error, "active": is_active()?, "sampled": sampled }))
}
