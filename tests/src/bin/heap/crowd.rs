//! Many threads that allocate and free each other's memory, in every way and as fast as they can.
//!
//! In: how many threads, for how long, at which interval. Out: how often jemalloc called the hooks, which this program's own count that stand before the profiler's,
//! beside what that says came of it; what lives by `malloc_usable_size` and by a profile, while all stand still, and once all is freed.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use profiler::{Config, ProfileKind, Profiler};
use profiler_tests::Result;
use profiler_tests::mallctl::{FREE_HOOK, FreeHook, SAMPLE_HOOK, SampleHook, hook, write};
use profiler_tests::stats::heap_to_json;
use profiler_tests::subject::Options;
use profiler_tests::workload::Random;
use serde_json::{Value, json};

use super::exact::usable;
use super::sums;

/// Places that the threads share.
const PLACES: usize = 4096;

/// Calls of this program's hooks, and the profiler's, which they call.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static SAMPLE: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn on_sample(
    block: *const c_void,
    size: usize,
    stack: *mut *mut c_void,
    length: c_uint,
    usable: usize,
) {
    SAMPLED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the profiler's hook, of this type, was set before; it gets the arguments that jemalloc gave.
    unsafe {
        std::mem::transmute::<usize, SampleHook>(SAMPLE.load(Ordering::Relaxed))(block, size, stack, length, usable);
    };
}

unsafe extern "C" fn on_free(block: *const c_void, usable: usize) {
    FREED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { std::mem::transmute::<usize, FreeHook>(FREE.load(Ordering::Relaxed))(block, usable) };
}

/// Has jemalloc call this program's hooks, which call the profiler's. Nobody allocates meanwhile but this thread.
fn count_calls() -> Result<()> {
    SAMPLE.store(hook(SAMPLE_HOOK)?, Ordering::Relaxed);
    FREE.store(hook(FREE_HOOK)?, Ordering::Relaxed);
    write(FREE_HOOK, on_free as FreeHook)?;
    Ok(write(SAMPLE_HOOK, on_sample as SampleHook)?)
}

/// How often jemalloc called, and what the profiler says of it, nothing having come between the two: threads of the profiler may free what was sampled.
fn counted(profiler: &Profiler) -> Value {
    let calls = || [&SAMPLED, &FREED].map(|counter| counter.load(Ordering::SeqCst));
    loop {
        let (before, stats) = (calls(), profiler.stats().heap);
        if before == calls() {
            return json!({ "calls": before, "stats": heap_to_json(&stats) });
        }
    }
}

/// How many blocks there are in the places, and their bytes.
fn truth(places: &[Mutex<Vec<u8>>]) -> [u64; 2] {
    let blocks = places.iter().map(|place| usable(&place.lock().unwrap_or_else(PoisonError::into_inner)));
    blocks.filter(|bytes| *bytes > 0).fold([0, 0], |[count, sum], bytes| [count + 1, sum + bytes])
}

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
    write(c"thread.prof.active", false)?;
    count_calls()?;
    let before = counted(&profiler);
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
    let (after, truth, lived) = (counted(&profiler), truth(&places), sums(&profiler)?);
    drop(places);
    let (freed, left) = (counted(&profiler), sums(&profiler)?);
    Ok(json!({
        "profiles": profiles, "refused": refused, "rounds": rounds, "truth": truth, "lived": lived.function("exchange"),
        "all": lived.total, "left": left.function("exchange"), "before": before, "after": after, "freed": freed,
        "cpu": profiler.stats().account.taken,
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
