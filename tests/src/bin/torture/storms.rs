//! Storms: of allocations, whose locks a signal interrupts, and of panics, whose unwinding a signal interrupts.
//!
//! In: the bench. Out: how many there were.

use std::hint::black_box;
use std::panic::{catch_unwind, set_hook};
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::{Random, at_depth};
use serde_json::{Value, json};

use crate::bench::{Time, on_threads, torture};

/// As many rounds or panics there are at least, however slow the machine is.
const LEAST: u64 = 200;

/// Runs `work` on `threads` threads until the time is over and there was enough of it; how often it ran in all.
fn storm(threads: usize, time: &Time, work: impl Fn(usize) + Sync) -> Result<u64> {
    let mut ran = on_threads(threads, time, &work)?;
    while ran < LEAST {
        ran += on_threads(threads, &Time::lasting(Duration::from_millis(100)), &work)?;
    }
    Ok(ran)
}

/// Allocates and frees blocks of all sizes on four threads, some of them on another thread than they came from.
pub(crate) fn malloc(options: &Options) -> Result<Value> {
    torture(options, |time, _| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<u8>>(1 << 12);
        let mut freed_elsewhere = 0_u64;
        let rounds = std::thread::scope(|scope| {
            let free = scope.spawn(|| receiver.into_iter().map(drop).count() as u64);
            let rounds = storm(4, time, |index| {
                let mut random = Random::new(index as u64 + u64::from(time.left().subsec_nanos()));
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for _ in 0..500 {
                    let size = 1_usize << random.below(17);
                    kept.push(black_box(vec![0; size + random.below(64) as usize]));
                    if random.below(3) > 0 {
                        let block = kept.swap_remove(random.below(kept.len() as u64) as usize);
                        // A full channel gives it back, and it is freed here.
                        drop(sender.try_send(block));
                    }
                }
            });
            drop(sender);
            freed_elsewhere = free.join().map_err(|_| "the freeing thread panicked")?;
            rounds
        })?;
        Ok(json!({ "rounds": rounds, "freed_elsewhere": freed_elsewhere }))
    })
}

/// Panics in stacks of all depths on three threads, and catches it.
#[expect(clippy::panic, reason = "that is the torture")]
pub(crate) fn panics(options: &Options) -> Result<Value> {
    set_hook(Box::new(|_| {}));
    torture(options, |time, _| {
        let caught = storm(3, time, |index| {
            let mut random = Random::new(index as u64 + u64::from(time.left().subsec_nanos()));
            let depth = random.below(60) as u32;
            let outcome = catch_unwind(|| at_depth(depth, &mut || -> u32 { panic!("{depth}") }));
            assert!(outcome.is_err_and(|thrown| thrown.downcast_ref() == Some(&depth.to_string())));
        })?;
        Ok(json!({ "caught": caught }))
    })
}
