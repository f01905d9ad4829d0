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

use super::{blocks, refusal, start, wait_for};
use profiler_tests::mallctl::{
    FREE_HOOK, FreeHook, SAMPLE_HOOK, STACK_HOOK, SampleHook, StackHook, hook, is_active, write,
};

/// The hooks of one owner.
struct Owner {
    /// Calls of them, and frames that they were told.
    sampled: AtomicU64,
    freed: AtomicU64,
    frames: AtomicU64,
    /// What was there before and is called, too; 0: nothing is.
    next_sample: AtomicUsize,
    next_free: AtomicUsize,
}

/// The host, and somebody else in its process.
static OWNERS: [Owner; 2] = [const { Owner::new() }; 2];
const HOST: usize = 0;
const OTHER: usize = 1;
/// Stacks that the host's hook was asked for, and whom it asks.
static STACKS: AtomicU64 = AtomicU64::new(0);
static NEXT_STACK: AtomicUsize = AtomicUsize::new(0);
/// Whether the next sample has the calling thread make no threads any more.
static REFUSES_THREADS: AtomicBool = AtomicBool::new(false);

impl Owner {
    const fn new() -> Self {
        let [sampled, freed, frames] = [const { AtomicU64::new(0) }; 3];
        let [next_sample, next_free] = [const { AtomicUsize::new(0) }; 2];
        Self { sampled, freed, frames, next_sample, next_free }
    }
}

unsafe extern "C" fn on_sample<const WHO: usize>(
    block: *const c_void,
    size: usize,
    stack: *mut *mut c_void,
    length: c_uint,
    usable: usize,
) {
    OWNERS[WHO].sampled.fetch_add(1, Ordering::Relaxed);
    OWNERS[WHO].frames.fetch_add(length.into(), Ordering::Relaxed);
    if REFUSES_THREADS.swap(false, Ordering::Relaxed) {
        // Where it cannot be, the start succeeds, which is seen.
        drop(refuse(&[libc::SYS_clone, libc::SYS_clone3]));
    }
    let next = OWNERS[WHO].next_sample.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: jemalloc had this address as a hook of this type; it gets the arguments that jemalloc gave.
        unsafe { std::mem::transmute::<usize, SampleHook>(next)(block, size, stack, length, usable) };
    }
}

unsafe extern "C" fn on_free<const WHO: usize>(block: *const c_void, usable: usize) {
    OWNERS[WHO].freed.fetch_add(1, Ordering::Relaxed);
    let next = OWNERS[WHO].next_free.load(Ordering::Relaxed);
    if next != 0 {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<usize, FreeHook>(next)(block, usable) };
    }
}

unsafe extern "C" fn on_stack(stack: *mut *mut c_void, length: *mut c_uint, most: c_uint) {
    STACKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as above; there always was one.
    unsafe { std::mem::transmute::<usize, StackHook>(NEXT_STACK.load(Ordering::Relaxed))(stack, length, most) };
}

fn set_hooks<const WHO: usize>() -> Result<()> {
    write(FREE_HOOK, on_free::<WHO> as FreeHook)?;
    Ok(write(SAMPLE_HOOK, on_sample::<WHO> as SampleHook)?)
}

/// Has an owner's hooks call those that are there.
fn call_next(who: usize) -> Result<()> {
    OWNERS[who].next_sample.store(hook(SAMPLE_HOOK)?, Ordering::Relaxed);
    OWNERS[who].next_free.store(hook(FREE_HOOK)?, Ordering::Relaxed);
    Ok(())
}

/// Samples, frees and frames that an owner's hooks have seen so far.
fn seen(who: usize) -> [u64; 3] {
    let Owner { sampled, freed, frames, .. } = &OWNERS[who];
    [sampled, freed, frames].map(|counter| counter.load(Ordering::Relaxed))
}

/// What happened while the host allocated and freed a thousand blocks: to its hooks, to those of the other owner, and, as far as there are figures, to the
/// profiler's.
fn meanwhile(stats: impl Fn() -> Option<HeapStats>) -> Value {
    let (before, first) = ([HOST, OTHER].map(seen), stats());
    drop(blocks(1000));
    let (after, last) = ([HOST, OTHER].map(seen), stats());
    let since =
        |who: usize| after[who].iter().zip(before[who]).map(|(after, before)| after - before).collect::<Vec<_>>();
    let ours = first
        .zip(last)
        .map(|(first, last)| json!({ "sampled": last.sampled - first.sampled, "freed": last.freed - first.freed }));
    json!({ "host": since(HOST), "other": since(OTHER), "profiler": ours })
}

/// They are there before the start; they are called while the profiler runs and once it has ended.
pub(crate) fn first() -> Result<Value> {
    set_hooks::<HOST>()?;
    let profiler = start()?;
    let during = meanwhile(|| Some(profiler.stats().heap));
    let notes = profiler.stats().heap.notes;
    drop(profiler);
    write(c"prof.active", true)?;
    let after = meanwhile(|| None);
    Ok(json!({ "during": during, "after": after, "notes": notes }))
}

/// They come between two starts.
pub(crate) fn between() -> Result<Value> {
    drop(start()?);
    set_hooks::<HOST>()?;
    let profiler = start()?;
    Ok(json!({ "during": meanwhile(|| Some(profiler.stats().heap)) }))
}

/// They are there before the start; the other owner's come later, call the profiler's, and are there when it is started again.
pub(crate) fn third() -> Result<Value> {
    set_hooks::<HOST>()?;
    let profiler = start()?;
    call_next(OTHER)?;
    set_hooks::<OTHER>()?;
    let before = meanwhile(|| Some(profiler.stats().heap));
    drop(profiler);
    let profiler = start()?;
    let again = meanwhile(|| Some(profiler.stats().heap));
    Ok(json!({ "before": before, "again": again }))
}

/// They come later, call those of the profiler, and are there when it is started again; then they do not call anybody any more, and it is started
/// once more.
pub(crate) fn later() -> Result<Value> {
    let profiler = start()?;
    let alone = heap_to_json(&profiler.stats().heap);
    call_next(HOST)?;
    set_hooks::<HOST>()?;
    wait_for(|| profiler.stats().heap.notes != Vec::<String>::new())?;
    let calling = meanwhile(|| Some(profiler.stats().heap));
    let notes = profiler.stats().heap.notes;
    drop(profiler);
    let profiler = start()?;
    let again = meanwhile(|| Some(profiler.stats().heap));
    let kept = blocks(1000);
    let in_use = refusal::in_use(&profiler)?[1];
    OWNERS[HOST].next_sample.store(0, Ordering::Relaxed);
    OWNERS[HOST].next_free.store(0, Ordering::Relaxed);
    set_hooks::<HOST>()?;
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

/// They come later, call nobody while memory is freed that the profiler knows, and go again: what is known to live then, and what of what comes.
pub(crate) fn interim() -> Result<Value> {
    let profiler = start()?;
    let kept = blocks(1000);
    let (sample, free) = (hook(SAMPLE_HOOK)?, hook(FREE_HOOK)?);
    set_hooks::<HOST>()?;
    wait_for(|| !profiler.stats().heap.notes.is_empty())?;
    drop(kept);
    write(FREE_HOOK, free)?;
    write(SAMPLE_HOOK, sample)?;
    wait_for(|| profiler.stats().heap.notes.iter().any(|note| note.contains("given up")))?;
    let left = refusal::in_use(&profiler)?[1];
    let kept = blocks(1000);
    let known = refusal::in_use(&profiler)?[1];
    drop(kept);
    let freed = refusal::in_use(&profiler)?[1];
    Ok(json!({ "left": left, "known": known, "freed": freed, "stats": heap_to_json(&profiler.stats().heap) }))
}

/// One that takes stacks comes between two starts, and calls the profiler's; then samples go on behind the end, with a hook that tells of their stacks.
pub(crate) fn stacks() -> Result<Value> {
    drop(start()?);
    NEXT_STACK.store(hook(STACK_HOOK)?, Ordering::Relaxed);
    write(STACK_HOOK, on_stack as StackHook)?;
    let profiler = start()?;
    let during = meanwhile(|| Some(profiler.stats().heap));
    drop(profiler);
    let asked = STACKS.load(Ordering::Relaxed);
    set_hooks::<HOST>()?;
    write(c"prof.active", true)?;
    let after = meanwhile(|| None);
    Ok(json!({ "during": during, "after": after, "asked": STACKS.load(Ordering::Relaxed) - asked }))
}

/// A child forked while the profiler runs: whether jemalloc's stacks have one frame there, and whether it takes none once a profiler of the
/// child's own has ended.
pub(crate) fn child() -> Result<Value> {
    let profiler = start()?;
    // They tell of stacks, and call nobody.
    set_hooks::<HOST>()?;
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
    let before = seen(HOST);
    drop(blocks(1000));
    let after = seen(HOST);
    let (sampled, frames) = (after[0] - before[0], after[2] - before[2]);
    drop(start()?);
    Ok(i32::from(sampled >= 1000 && frames == sampled) | i32::from(!is_active()?) << 1)
}

/// A start that fails behind its heap, for its last thread cannot be made: the error, and whether samples are taken and recorded all the same.
pub(crate) fn refused() -> Result<Value> {
    set_hooks::<HOST>()?;
    REFUSES_THREADS.store(true, Ordering::Relaxed);
    let error = start().map(drop).map_err(|error| error.to_string()).err();
    let sampled = meanwhile(|| None)["host"][0].clone();
    Ok(json!({ "error": error, "active": is_active()?, "sampled": sampled }))
}
