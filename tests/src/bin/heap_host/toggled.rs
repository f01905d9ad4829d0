//! A host that turns jemalloc's sampling off and on, also where its user kept it off, and takes another interval, while the profiler runs.
//!
//! In: nothing. Out: what the profiler says and samples after each.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Barrier;

use profiler::{Config, Profiler};
use profiler_proto::{Limits, heap_v2};
use profiler_tests::stats::heap_to_json;
use profiler_tests::{Error, Result};
use serde_json::{Value, json};

use super::refusal::in_use;
use super::{blocks, start, wait_for};
use profiler_tests::mallctl::{is_active, write};

/// Turns it.
pub(crate) fn toggled() -> Result<Value> {
    let profiler = start()?;
    write(c"prof.active", false)?;
    wait_for(|| !profiler.stats().heap.on)?;
    let off = sampled(&profiler);
    write(c"prof.active", true)?;
    wait_for(|| profiler.stats().heap.on)?;
    let on = sampled(&profiler);
    // So long an interval that none of the few blocks is a sample, but once in millions of runs.
    write(c"prof.reset", 40_usize)?;
    wait_for(|| profiler.stats().heap.interval_bytes == 1 << 40)?;
    // The distance to the first sample was drawn with the interval before.
    drop(blocks(1));
    let rarely = sampled(&profiler);
    profiler.pause();
    profiler.resume()?;
    let resumed = heap_to_json(&profiler.stats().heap);
    drop(profiler);
    Ok(json!({ "off": off, "on": on, "rarely": rarely, "resumed": resumed, "ended": is_active()? }))
}

/// Takes an interval in which no block is sampled, between two blocks of a thread of which the first was: what is known to live of the second, whose distance was drawn with the
/// interval before.
pub(crate) fn changed() -> Result<Value> {
    let (profiler, barrier) = (start()?, Barrier::new(2));
    let kept = std::thread::scope(|scope| {
        let allocates = scope.spawn(|| {
            drop(blocks(1));
            barrier.wait();
            barrier.wait();
            blocks(1)
        });
        barrier.wait();
        let set = profiler.set_heap_interval(1 << 40);
        barrier.wait();
        set?;
        Ok::<_, Error>(allocates.join().map_err(|_| "the thread panicked")?)
    })?;
    let in_use = in_use(&profiler)?[1];
    drop(kept);
    Ok(json!({ "in_use": in_use }))
}

/// Turns it on where the environment said that it is to be off, pauses and ends the profiler: whether it is on after each.
pub(crate) fn asked() -> Result<Value> {
    let profiler = start()?;
    let started = is_active()?;
    write(c"prof.active", true)?;
    wait_for(|| profiler.stats().heap.on)?;
    long_block();
    let on = sampled(&profiler);
    profiler.pause();
    let paused = is_active()?;
    profiler.resume()?;
    let resumed = sampled(&profiler);
    drop(profiler);
    Ok(json!({ "started": started, "on": on, "paused": paused, "resumed": resumed, "ended": is_active()? }))
}

/// Has jemalloc profile for the host, which starts the profiler with another interval, and sets one more: what of its profile is left, and what is said. Then the host's
/// ends.
pub(crate) fn dumped() -> Result<Value> {
    write(c"prof.reset", 0_usize)?;
    write(c"prof.active", true)?;
    long_block();
    let kept = blocks(1000);
    let before = live_in_dump()?;
    let profiler = profiler::start(Config::new("host").heap(true).heap_interval(4096))?;
    let refused = profiler.set_heap_interval(8192).map_err(|error| error.to_string()).err();
    let after = live_in_dump()?;
    drop(kept);
    let notes = profiler.stats().heap.notes;
    write(c"prof.active", false)?;
    let set = profiler.set_heap_interval(8192).map_err(|error| error.to_string()).err();
    let interval = profiler.stats().heap.interval_bytes;
    Ok(json!({
        "before": before, "after": after, "notes": notes, "refused": refused, "set": set, "interval": interval,
    }))
}

/// The distance to the first sample was drawn with the interval before: so long a block is all but certainly beyond it.
fn long_block() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(16 << 19)));
}

/// Sampled blocks that live by jemalloc's own profile.
fn live_in_dump() -> Result<u64> {
    let path = std::env::temp_dir().join(format!("profiler-heap-host-{}", std::process::id()));
    let text = CString::new(path.as_os_str().as_bytes())?;
    write(c"prof.dump", text.as_ptr())?;
    let dump = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    Ok(heap_v2::decode(&dump, &Limits::default())?.in_all.live)
}

/// Turns it, the other way round, between the profiler's own turns: whether it is on at the end where the host had it on first and off since, and where the
/// host had it off first and turned it on in a pause.
pub(crate) fn resumed() -> Result<Value> {
    let left_off = ended(true, |profiler| {
        write(c"prof.active", false)?;
        profiler.pause();
        Ok(())
    })?;
    let left_on = ended(false, |profiler| {
        profiler.pause();
        Ok(write(c"prof.active", true)?)
    })?;
    Ok(json!({ "left_off": left_off, "left_on": left_on }))
}

/// Whether it is on behind a pause and behind the end of a profiler that is started with it on or off and goes on behind `turn`.
fn ended(on: bool, turn: impl FnOnce(&Profiler) -> Result<()>) -> Result<Value> {
    write(c"prof.active", on)?;
    let profiler = start()?;
    turn(&profiler)?;
    profiler.resume()?;
    let resumed = is_active()?;
    drop(profiler);
    Ok(json!({ "resumed": resumed, "ended": is_active()? }))
}

/// What is sampled of a thousand blocks, and what is said.
fn sampled(profiler: &Profiler) -> Value {
    let before = profiler.stats().heap.sampled;
    drop(blocks(1000));
    json!({ "sampled": profiler.stats().heap.sampled - before, "stats": heap_to_json(&profiler.stats().heap) })
}
