//! The bench that every torture lies on: a profiler at 1 kHz, the time it goes on, an account that is looked at all along.
//!
//! In: the options `seconds` and `threads`, the work of the torture. Out: its own figures beside the account once
//! everything has been sent or given up, and how many of the snapshots taken meanwhile did not balance.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::{Config, Profiler};
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use profiler_tests::{Result, stats};
use serde_json::{Value, json};

/// Samples per second of CPU time.
const RATE: u32 = 1000;
/// How long a last flush may take on a busy machine.
const FLUSH: Duration = Duration::from_secs(60);

/// How long it goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    start: Instant,
    end: Instant,
}

impl Time {
    /// The option `seconds`, from now on.
    pub(crate) fn of(options: &Options) -> Result<Self> {
        Ok(Self::lasting(Duration::from_secs_f64(options.value("seconds")?)))
    }

    /// So long, from now on.
    pub(crate) fn lasting(duration: Duration) -> Self {
        let start = Instant::now();
        Self { start, end: start + duration }
    }

    /// Whether there is some left.
    pub(crate) fn is_left(&self) -> bool {
        Instant::now() < self.end
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Whether this share of it is over.
    pub(crate) fn is_beyond(&self, share: f64) -> bool {
        self.start.elapsed() >= (self.end - self.start).mul_f64(share)
    }
}

/// Starts a profiler as all tortures have it.
pub(crate) fn start() -> Result<Profiler> {
    Ok(profiler::start(Config::new("torture").rate_hz(RATE).interval(Duration::from_secs(1)))?)
}

/// Runs `work` for its time under a profiler that is watched; what came of both.
pub(crate) fn torture(options: &Options, work: impl FnOnce(&Time, &Profiler) -> Result<Value>) -> Result<Value> {
    torture_under(start()?, options, work)
}

/// The same, under a profiler with other settings.
pub(crate) fn torture_under(
    profiler: Profiler,
    options: &Options,
    work: impl FnOnce(&Time, &Profiler) -> Result<Value>,
) -> Result<Value> {
    let time = Time::of(options)?;
    let over = AtomicBool::new(false);
    let (own, snapshots, wrong) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&profiler, &over));
        let own = work(&time, &profiler);
        over.store(true, Ordering::Relaxed);
        let (snapshots, wrong) = watch.join().map_err(|_| "the watch panicked")?;
        own.map(|own| (own, snapshots, wrong))
    })?;
    let mut outcome = end(profiler)?;
    outcome["own"] = own;
    outcome["snapshots"] = json!(snapshots);
    outcome["wrong"] = json!(wrong);
    Ok(outcome)
}

/// Stops sampling and sends what is left; the account.
pub(crate) fn end(profiler: Profiler) -> Result<Value> {
    let running = stats::to_json(&profiler.stats());
    profiler.pause();
    let mut flushed = profiler.flush(FLUSH);
    // A thread that the machine stopped inside of the handler holds its epoch open: what was taken in it comes later.
    for _ in 0..20 {
        if profiler.stats().account.pending == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        flushed = profiler.flush(FLUSH);
    }
    let stats = stats::to_json(&profiler.stats());
    if !profiler.shutdown(FLUSH) {
        return Err("shutdown took too long".into());
    }
    // One that is late finds a handler that does nothing.
    for _ in 0..10 {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::PROF)?;
    }
    Ok(json!({ "running": running, "flushed": flushed, "stats": stats }))
}

/// Runs `work` on each of `threads` threads until the time is over; how often it ran in all.
pub(crate) fn on_threads(threads: usize, time: &Time, work: impl Fn(usize) + Sync) -> Result<u64> {
    std::thread::scope(|scope| {
        let work = &work;
        let run = |index: usize| move || std::iter::from_fn(|| time.is_left().then(|| work(index))).count();
        let running: Vec<_> = (0..threads).map(|index| scope.spawn(run(index))).collect();
        let counts = running.into_iter().map(|thread| thread.join().map_err(|_| "a thread of the torture panicked"));
        Ok(counts.sum::<Result<usize, _>>()? as u64)
    })
}

/// Keeps `threads` threads busy while `work` runs.
pub(crate) fn beside_busy<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    spin(Duration::from_millis(1));
                }
            });
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Takes a snapshot every few milliseconds; says how many, and how many did not balance.
fn watch(profiler: &Profiler, over: &AtomicBool) -> (u64, u64) {
    let (mut snapshots, mut wrong) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        snapshots += 1;
        wrong += u64::from(!profiler.stats().account.balances());
        std::thread::sleep(Duration::from_millis(10));
    }
    (snapshots, wrong)
}
