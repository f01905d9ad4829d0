//! Samples where hardly any stack is left: a hook of this program's goes down to the last 3 KiB, of a thread's own stack or of a coroutine's, before it calls the profiler's.
//!
//! In: nothing. Out: what is known of the blocks that were allocated so. One byte too many, and the page below the stack ends the process.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use profiler_tests::Result;
use profiler_tests::mallctl::{SAMPLE_HOOK, SampleHook, hook, write};
use profiler_tests::signal::block_sigprof;
use profiler_tests::stack::{below, lowest_address, on_other_stack};
use profiler_tests::stats::heap_to_json;
use serde_json::{Value, json};

use super::exact::Block;
use super::{start, sums};

/// What is left when the profiler's hook is called.
const LEFT: usize = 3 << 10;
/// Size of a thread's stack.
const STACK: usize = 256 << 10;
/// Blocks on each stack.
const BLOCKS: usize = 200;

/// The profiler's hook.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The end of the stack that the next samples are taken at; 0: they are taken where they come.
    static END: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn on_sample(
    block: *const c_void,
    size: usize,
    stack: *mut *mut c_void,
    length: c_uint,
    usable: usize,
) {
    let next = NEXT.load(Ordering::Relaxed);
    // SAFETY: jemalloc had this address as a hook of this type; it gets the arguments that jemalloc gave.
    let mut next = || unsafe { std::mem::transmute::<usize, SampleHook>(next)(block, size, stack, length, usable) };
    match END.get() {
        0 => next(),
        end => below(end + LEFT, &mut next),
    }
}

/// Allocates there.
pub(crate) fn deep() -> Result<Value> {
    let profiler = start(0)?;
    NEXT.store(hook(SAMPLE_HOOK)?, Ordering::Relaxed);
    write(SAMPLE_HOOK, on_sample as SampleHook)?;
    on_a_thread(|| {
        END.set(lowest_address()?);
        on_thread();
        Ok(())
    })?;
    on_a_thread(|| {
        on_other_stack(|stack| {
            END.set(stack.start);
            on_coroutine();
        })
    })?;
    let lived = sums(&profiler)?;
    let stats = heap_to_json(&profiler.stats().heap);
    let [thread, coroutine] = ["on_thread", "on_coroutine"].map(|name| lived.function(name));
    Ok(json!({ "blocks": BLOCKS, "thread": thread, "coroutine": coroutine, "stats": stats }))
}

/// Runs this on a thread that has no signals of the sampler's, for which the kernel needs more than what is left.
fn on_a_thread(work: fn() -> Result<()>) -> Result<()> {
    let work = move || {
        block_sigprof();
        let outcome = work();
        END.set(0);
        outcome
    };
    std::thread::Builder::new().stack_size(STACK).spawn(work)?.join().map_err(|_| "the thread panicked")?
}

#[inline(never)]
fn on_thread() {
    allocate();
    black_box("on_thread");
}

#[inline(never)]
fn on_coroutine() {
    allocate();
    black_box("on_coroutine");
}

/// Blocks that nobody frees.
fn allocate() {
    (0..BLOCKS).for_each(|_| std::mem::forget(Block::of(1024)));
}
