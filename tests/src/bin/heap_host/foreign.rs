//! Hooks of the host: there before the profiler's, or set later, with and without a call of those that were there.
//!
//! In: nothing. Out: how often the host's hooks were called, and what the profiler counted meanwhile.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use profiler::HeapStats;
use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use serde_json::{Value, json};

use super::mallctl::{FREE_HOOK, FreeHook, SAMPLE_HOOK, SampleHook, hook, write};
use super::{blocks, start, wait_for};

/// Calls of the host's hooks, and frames that they were told.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);
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

/// They come later, call those of the profiler, and are there when it is started again; then they do not call anybody any more.
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
    NEXT_SAMPLE.store(0, Ordering::Relaxed);
    NEXT_FREE.store(0, Ordering::Relaxed);
    set_hooks()?;
    let deaf = meanwhile(|| Some(profiler.stats().heap));
    Ok(json!({ "alone": alone, "calling": calling, "notes": notes, "again": again, "deaf": deaf }))
}
