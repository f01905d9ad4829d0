//! Many threads that allocate and free each other's memory, in every way and as fast as they can.
//!
//! In: how many threads, for how long, at which interval. Out: whether hooks and tables balance once all is freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use profiler::{Config, ProfileKind};
use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use super::sums;

/// Places that the threads share.
const PLACES: usize = 4096;

/// Runs them, while profiles are made, and then frees everything.
pub(crate) fn crowd(options: &Options) -> Result<Value> {
    let (threads, seconds): (u64, f64) = (options.value("threads")?, options.value("seconds")?);
    // Signals as often as they can be had, so that they interrupt the hooks.
    let config = Config::new("heap").heap(true).heap_interval(1 << options.value::<u32>("lg")?).rate_hz(1000);
    let profiler = profiler::start(config)?;
    let places: Vec<Mutex<Vec<u8>>> = (0..PLACES).map(|_| Mutex::default()).collect();
    let enough = AtomicBool::new(false);
    // The text of a key stays for ever, and shall not count as theirs.
    drop(profiler::tag!("seed" => 0));
    let (mut profiles, mut refused, mut rounds) = (0, 0, 0);
    std::thread::scope(|scope| {
        let (places, enough) = (&places, &enough);
        let workers: Vec<_> = (0..threads).map(|seed| scope.spawn(move || exchange(places, enough, seed))).collect();
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            match profiler.capture(ProfileKind::Heap, Duration::ZERO) {
                Ok(_) => profiles += 1,
                // Where all processors are taken, names may take longer to find than anybody waits.
                Err(_) => refused += 1,
            }
        }
        enough.store(true, Ordering::Relaxed);
        rounds = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum::<u64>();
    });
    drop(places);
    let left = sums(&profiler)?;
    Ok(json!({
        "profiles": profiles, "refused": refused, "rounds": rounds, "left": left.function("exchange"),
        "stats": heap_to_json(&profiler.stats().heap), "cpu": profiler.stats().account.taken,
    }))
}

/// Puts memory in places, of which it drops what others left there.
#[inline(never)]
fn exchange(places: &[Mutex<Vec<u8>>], enough: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random::new(seed + 100);
    let mut rounds = 0;
    while !enough.load(Ordering::Relaxed) {
        let _scope = profiler::tag!("seed" => seed % 8);
        let size = 16 << random.below(13);
        let mut block: Vec<u8> = if rounds % 3 == 0 { vec![0; size] } else { Vec::with_capacity(size) };
        if rounds % 5 == 0 {
            block.reserve_exact(2 * size);
        }
        if rounds % 7 == 0 {
            block.shrink_to(size / 2);
        }
        let place = &places[random.below(PLACES as u64) as usize];
        let before = std::mem::replace(&mut *place.lock().unwrap_or_else(PoisonError::into_inner), block);
        drop(before);
        rounds += 1;
    }
    rounds
}
