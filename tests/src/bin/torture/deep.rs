//! Stacks that are nearly used up: 8 KiB are left, measured, when a signal comes.
//!
//! In: the bench. Out: how much was left at the least, what the kernel itself puts on the stack for a signal, and how many
//! rounds of work were done there. One byte too many, and the guard page below the stack ends the process.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use profiler_tests::stack::lowest_address;
use profiler_tests::subject::Options;
use profiler_tests::{Error, Result};
use serde_json::{Value, json};

use crate::bench::{Time, torture};

/// What is left.
const LEFT: usize = 8 << 10;
/// Size of the threads' stacks.
const STACK: usize = 256 << 10;

/// Works at the end of small stacks on three threads.
pub(crate) fn deep(options: &Options) -> Result<Value> {
    torture(options, |time, _| {
        let least = AtomicU64::new(u64::MAX);
        let rounds = std::thread::scope(|scope| {
            let work = || {
                let end = lowest_address()?;
                Ok::<_, Error>(descend(end, time, &least))
            };
            let make = |_| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            let threads = (0..3).map(make).collect::<Result<Vec<_>, _>>()?;
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| thread.join().map_err(|_| "a panic")?;
            threads.into_iter().map(join).sum::<Result<u64>>()
        })?;
        // SAFETY: getauxval(3) only reads the auxiliary vector.
        let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
        Ok(json!({ "rounds": rounds, "left": least.into_inner(), "kernel_frame": frame }))
    })
}

/// Goes down until no more than [`LEFT`] bytes are left above `end`, and works there.
#[inline(never)]
fn descend(end: usize, time: &Time, least: &AtomicU64) -> u64 {
    let here = black_box(0_u8);
    let left = (std::ptr::from_ref(&here) as usize) - end;
    // The next frame takes some bytes of what is left: the last one works a little above its end.
    let rounds = if left > LEFT + 256 { descend(end, time, least) } else { work(end, time, least) };
    black_box(&here);
    rounds
}

#[inline(never)]
fn work(end: usize, time: &Time, least: &AtomicU64) -> u64 {
    let (mut state, mut rounds) = (88_172_645_463_325_252_u64, 0);
    least.fetch_min((std::ptr::from_ref(&state) as usize - end) as u64, Ordering::Relaxed);
    while time.is_left() {
        let mut round = 0;
        while round < 100_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            round += 1;
        }
        black_box(state);
        rounds += 1;
    }
    rounds
}
