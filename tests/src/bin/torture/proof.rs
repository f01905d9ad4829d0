//! What the signal handler does, seen from outside: allocations, system calls, `errno`, bytes of the thread's stack.
//!
//! In: the bench; `stack`: `own`, or `other` for a stack that the thread does not know as its own. Out: counts over
//! thousands of samples of a thread that itself does none of it. The samples are one real signal of the profiler's,
//! sent again and again, beside those of the thread's own timer.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use profiler::Profiler;
use profiler_tests::sandbox::{trap_all_but, trapped_looks, trapped_others, trapped_reads};
use profiler_tests::signal::{Aimed, record, with_empty_handler};
use profiler_tests::stack::{below, on_other_stack};
use profiler_tests::subject::Options;
use profiler_tests::workload::{at_depth, spin};
use profiler_tests::{Error, Result};
use serde_json::{Value, json};

use crate::allocations;
use crate::bench::torture;

/// Samples in a row of which is counted.
const SAMPLES: u64 = 4000;
/// How long that may take on a busy machine, with the time in which the sampler finds out where the thread's stack ends.
const LIMIT: Duration = Duration::from_secs(60);

/// What was counted on the thread, once it is.
static COUNTED: OnceLock<Result<Counted, String>> = OnceLock::new();

#[derive(Debug)]
struct Counted {
    allocations: u64,
    changed_errno: u64,
    reads: u64,
    looks: u64,
    /// How many, and the number of the first.
    other_calls: (u64, i32),
}

/// Stacks that were taken so far, as the main thread last saw it.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Counts what the handler does on a thread from which every system call is taken that it must not make.
pub(crate) fn handler(options: &Options) -> Result<Value> {
    let other_stack = options.value::<String>("stack")? == "other";
    torture(options, |_, profiler| {
        // It never ends: the filter does not let it.
        std::thread::spawn(move || {
            if !other_stack {
                count(false);
            } else if let Err(error) = on_other_stack(|_| count(true)) {
                COUNTED.get_or_init(|| Err(error.to_string()));
            }
        });
        wait(profiler, || COUNTED.get().is_some())?;
        let counted =
            COUNTED.get().ok_or("nothing was counted")?.as_ref().map_err(|error| Error::from(error.as_str()))?;
        let (other_calls, first_other_call) = counted.other_calls;
        Ok(json!({
            "samples": SAMPLES, "allocations": counted.allocations, "changed_errno": counted.changed_errno,
            "reads": counted.reads, "looks": counted.looks, "other_calls": other_calls, "first_other_call": first_other_call,
        }))
    })
}

/// Waits for a thread, and keeps [`TAKEN`] meanwhile.
fn wait(profiler: &Profiler, is_over: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !is_over() {
        TAKEN.store(profiler.stats().account.taken, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(10));
        if Instant::now() > end {
            return Err("the thread did not come to an end".into());
        }
    }
    Ok(())
}

/// A signal of the calling thread's own timer, of which each copy is a sample. The process-wide timer's may come first;
/// copies of it are samples too, but only until the thread's own timer has fired.
fn own_signal() -> Result<Aimed> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        let signal = record(|_| Ok(true))?.aimed();
        if makes_samples(&signal)? {
            spin(Duration::from_millis(500));
            if makes_samples(&signal)? {
                return Ok(signal);
            }
        }
    }
    Err("no signal made a sample".into())
}

/// Whether each copy of a signal is a sample.
fn makes_samples(signal: &Aimed) -> Result<bool> {
    let before = TAKEN.load(Ordering::Relaxed);
    // More than the timers themselves bring until the count is looked at.
    (0..SAMPLES).try_for_each(|_| signal.replay())?;
    std::thread::sleep(Duration::from_millis(400));
    Ok(TAKEN.load(Ordering::Relaxed) - before >= SAMPLES)
}

/// Takes samples of the calling thread, counts, and works on for ever.
fn count(may_read: bool) {
    let signal = match own_signal() {
        Ok(signal) => signal,
        Err(error) => return drop(COUNTED.set(Err(error.to_string()))),
    };
    let mut allowed = vec![libc::SYS_rt_sigreturn, libc::SYS_rt_tgsigqueueinfo];
    allowed.extend(may_read.then_some(libc::SYS_process_vm_readv));
    if let Err(error) = trap_all_but(&allowed) {
        return drop(COUNTED.set(Err(error.to_string())));
    }
    let mut counted;
    loop {
        let (allocated, reads, looks) = (allocations::count(), trapped_reads(), trapped_looks());
        let mut changed_errno = 0;
        for _ in 0..SAMPLES {
            set_errno(libc::EXDEV);
            at_depth(20, &mut || drop(signal.replay()));
            changed_errno += u64::from(errno() != libc::EXDEV);
        }
        let allocations = allocations::count() - allocated;
        let (reads, looks) = (trapped_reads() - reads, trapped_looks() - looks);
        counted = Counted { allocations, changed_errno, reads, looks, other_calls: trapped_others() };
        // Until the sampler knows where this thread's stack ends, it reads it as a foreign one.
        if counted.reads == 0 {
            break;
        }
    }
    COUNTED.get_or_init(|| Ok(counted));
    loop {
        std::hint::spin_loop();
    }
}

fn errno() -> i32 {
    // SAFETY: the C library's place for the calling thread's errno, valid for as long as the thread lives.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Bytes below the stack pointer that a sample leaves written, with our handler and with an empty one.
static OURS: AtomicU64 = AtomicU64::new(0);
static EMPTY: AtomicU64 = AtomicU64::new(0);

/// Measures how much of the thread's stack the handler takes.
pub(crate) fn stack(options: &Options) -> Result<Value> {
    torture(options, |_, profiler| {
        let thread = std::thread::spawn(|| on_other_stack(|stack| measure(&stack)));
        wait(profiler, || thread.is_finished())?;
        thread.join().map_err(|_| "the thread panicked")??;
        let (ours, empty) = (OURS.load(Ordering::Relaxed), EMPTY.load(Ordering::Relaxed));
        Ok(json!({ "ours": ours, "empty": empty }))
    })
}

/// The most of many samples, for they do not all take the same way. Twice in turn: the kernel writes as much of its frame as the thread
/// has registers in use, which grow more with the functions that are called for the first time.
fn measure(stack: &Range<usize>) {
    let Ok(signal) = own_signal() else { return };
    let most = || (0..100).map(|_| written_by(stack.start, &|| signal.replay())).max().unwrap_or(0);
    for _ in 0..2 {
        OURS.fetch_max(most(), Ordering::Relaxed);
        if let Ok(empty) = with_empty_handler(most) {
            EMPTY.fetch_max(empty, Ordering::Relaxed);
        }
    }
}

/// Paints the unused part of the stack, sends a signal, and looks how far down the paint is gone.
#[inline(never)]
fn written_by(bottom: usize, send: &dyn Fn() -> io::Result<()>) -> u64 {
    const PAINT: u64 = 0x5ca1_ab1e_0ddb_a115;
    // A part of the stack, from its lowest address: the frames of this function and its callees are above it.
    const WORDS: usize = (200 << 10) / 8;
    let top = bottom + WORDS * 8;
    for index in 0..WORDS {
        // SAFETY: the lowest 200 KiB of a mapped stack of 256 KiB, of which the frames in use take the uppermost few.
        unsafe { (bottom as *mut u64).add(index).write_volatile(PAINT) };
    }
    below(top, &mut || drop(send()));
    // SAFETY: as above.
    let untouched =
        (0..WORDS).take_while(|index| unsafe { (bottom as *const u64).add(*index).read_volatile() } == PAINT);
    (top - bottom) as u64 - untouched.count() as u64 * 8
}
