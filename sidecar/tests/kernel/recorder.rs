//! A sampler at work, and what came of it.

use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profiler_sidecar::bpf::{Counters, Options, Sampler, Started};
use profiler_sidecar::drain::{self, Event};
use profiler_sidecar::sample::Sample;

use crate::programs::Talk;

/// A tick a millisecond, and no round number: programs that wake by the clock must not march in step with it.
pub(crate) const RATE_HZ: u32 = 997;

/// Generous: the machine may be busy with twenty other things.
const DEADLINE: Duration = Duration::from_secs(120);

/// One at a time: each has its clock on every processor.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other test is at work; `None`, said loudly, where only root may load programs.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("NOT RUN: eBPF programs can be loaded by root only; run the tests as root");
        return None;
    }
    Some(alone)
}

/// All that was drained so far.
pub(crate) struct Recorder {
    pub(crate) sampler: Sampler,
    pub(crate) samples: Vec<Sample>,
    pub(crate) events: Vec<Event>,
    _alone: MutexGuard<'static, ()>,
}

impl Recorder {
    /// Starts one; `None`, said loudly, where only root may.
    pub(crate) fn start(options: Options) -> Option<Self> {
        Some(Self::load(options, alone()?))
    }

    fn load(options: Options, alone: MutexGuard<'static, ()>) -> Self {
        let loaded = Self::of(Sampler::load(options).unwrap_or_else(|error| panic!("{error}")), alone);
        assert_eq!(loaded.sampler.lacks(), [""; 0], "nothing is missing here");
        loaded
    }

    fn of(sampler: Sampler, alone: MutexGuard<'static, ()>) -> Self {
        Self { sampler, samples: Vec::new(), events: Vec::new(), _alone: alone }
    }

    /// With the rate of these tests.
    pub(crate) fn usual() -> Option<Self> {
        Self::start(usual())
    }

    /// The same, once `build` is done and while no other test is at work: compilers would fill the ring, which nobody drains while they run.
    pub(crate) fn usual_with<T>(build: impl FnOnce() -> T) -> Option<(Self, T)> {
        let alone = alone()?;
        let built = build();
        Some((Self::load(usual(), alone), built))
    }

    /// The same where this is missing.
    pub(crate) fn lacking<T>(what: &str, build: impl FnOnce() -> T) -> Option<(Self, T)> {
        let alone = alone()?;
        let built = build();
        let loaded = Self::of(Sampler::load(usual()).unwrap_or_else(|error| panic!("{error}")), alone);
        let lacks = loaded.sampler.lacks();
        assert!(matches!(lacks, [only] if only.starts_with(what)), "{lacks:?}");
        Some((loaded, built))
    }

    /// Takes what is in the ring.
    pub(crate) fn drain(&mut self) {
        let (samples, events) = (&mut self.samples, &mut self.events);
        self.sampler.drain(|record| match drain::decode(record).unwrap() {
            Event::Sample(sample) => samples.push(*sample),
            event => events.push(event),
        });
    }

    /// Drains until it is so.
    pub(crate) fn until(&mut self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        loop {
            self.drain();
            if so(self) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}; {:?}", self.sampler.counters());
            self.sampler.wait(Duration::from_millis(20));
        }
    }

    /// Drains until the program has said a line.
    pub(crate) fn line(&mut self, program: &Talk) -> String {
        let mut line = None;
        self.until("a line of the program", |_| {
            line = program.try_line();
            line.is_some()
        });
        line.unwrap()
    }

    /// Drains until the process has ended: those of its own code are all there then.
    pub(crate) fn until_exit(&mut self, pid: u32) {
        self.until("the end of the process", |all| all.events.contains(&Event::Exit { pid }));
    }

    /// What a process started last.
    pub(crate) fn started(&self, pid: u32) -> Started {
        let started = self.events.iter().rev().find_map(|event| match event {
            Event::Exec { pid: of, started } if *of == pid => Some(*started),
            _ => None,
        });
        started.unwrap()
    }

    pub(crate) fn samples_of(&self, pid: u32) -> Vec<&Sample> {
        self.samples.iter().filter(|sample| sample.pid == pid).collect()
    }

    /// Stops the clock, takes the rest: until nothing happened to any process of the machine between the last look into the ring and the counters.
    pub(crate) fn stop(&mut self) -> Counters {
        self.sampler.stop_clock();
        let mut last = None;
        self.until("a moment without events", |all| {
            last = all.sampler.counters().ok();
            last.is_some_and(|counters| counters.events == all.events.len() as u64)
        });
        last.unwrap()
    }
}

fn usual() -> Options {
    Options { rate_hz: RATE_HZ, ring_bytes: Some(4 << 20), ..Options::default() }
}

/// Runs it until the hypervisor takes no more than a hundredth of the time of a processor meanwhile, or has done so five times: ticks that fall into what it takes come as one,
/// and it may count as CPU time of the program that would have run, or not. What came of it, and what share was taken.
pub(crate) fn undisturbed<T>(mut run: impl FnMut() -> Option<T>) -> Option<(T, f64)> {
    const TRIES: u32 = 5;
    let mut tried = 0;
    loop {
        let (began, before) = (Instant::now(), stolen());
        let ran = run()?;
        let (taken, elapsed) = (stolen() - before, began.elapsed());
        tried += 1;
        if taken * 100 <= elapsed || tried == TRIES {
            return Some((ran, taken.as_secs_f64() / elapsed.as_secs_f64()));
        }
        eprintln!("once more: the hypervisor took {taken:?} in {elapsed:?}");
    }
}

/// What the hypervisor took from all processors: the eighth number of "cpu" in `/proc/stat` (proc(5)), in hundredths of a second.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let all = stat.lines().next().unwrap();
    let ticks: u64 = all.split_whitespace().nth(8).unwrap().parse().unwrap();
    Duration::from_millis(10 * ticks)
}

/// Fails unless the samples stand for the CPU time within a fiftieth, and within the share that the hypervisor took.
pub(crate) fn assert_complete(samples: &[&Sample], used_nanos: u64, stolen: f64) {
    let weight: u64 = samples.iter().map(|sample| sample.period_nanos).sum();
    let share = weight as f64 / used_nanos as f64;
    let error = 0.02 + stolen;
    assert!((share - 1.0).abs() <= error, "{} samples, {used_nanos} ns: {share:.4} ± {error:.4}", samples.len());
}

/// So many of `n` may lack what all but one in a thousand have: five standard errors (Poisson) above the mean.
pub(crate) fn few(n: usize) -> usize {
    let mean = n as f64 / 1000.0;
    (mean + 5.0 * mean.sqrt()) as usize
}
