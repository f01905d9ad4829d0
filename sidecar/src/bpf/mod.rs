//! The kernel side's other half: loads the eBPF object, fills its maps, opens one perf event for each processor.
//!
//! In: what to leave out, what is known of targets. Out: records of the ring buffer, counters by cause. Owner of the descriptors; used by one
//! thread. Dropped, it takes everything out of the kernel again.

mod btf;
mod counters;
mod executables;
mod load;
mod namespace;
mod perf;
mod processors;
mod programs;
mod ring;
mod targets;
mod unhurried;

use std::time::Duration;

pub use counters::Counters;
pub use profiler_sidecar_ebpf::{Go, LabelForm, Started};
pub use programs::Programs;
pub use targets::Knowledge;

use crate::allocator;
use crate::error::Error;

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Samples a second on each processor.
    pub rate_hz: u32,
    /// Whether samples have the kernel's frames.
    pub kernel_stacks: bool,
    /// Bytes of the ring; rounded up to a power of two. `None`: 128 KiB a processor, 512 KiB at least, 16 MiB at most.
    pub ring_bytes: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { rate_hz: 99, kernel_stacks: true, ring_bytes: None }
    }
}

/// Highest rate: the kernel's own default bound is 100,000, but a tick costs microseconds.
pub const MAX_RATE_HZ: u32 = 10_000;

/// The programs, loaded and running.
pub struct Sampler {
    loaded: load::Loaded,
    events: perf::Events,
    records: ring::Records,
    targets: targets::Targets,
    executables: Option<executables::Executables>,
    counters: counters::Source,
    programs: Option<Programs>,
    rate_hz: u32,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("events", &self.events).finish_non_exhaustive()
    }
}

impl Sampler {
    /// Loads the programs and starts the clock. Needs `CAP_BPF` and `CAP_PERFMON` (or `CAP_SYS_ADMIN`).
    ///
    /// # Errors
    ///
    /// What the kernel refused, and which capability or setting would change that.
    pub fn load(options: Options) -> Result<Self, Error> {
        let mut sampler = Self::ready(options)?;
        sampler.start()?;
        Ok(sampler)
    }

    /// Loads the programs. Processes are told of from now on; the clock stands still until [`Sampler::start`].
    ///
    /// # Errors
    ///
    /// As [`Sampler::load`].
    pub fn ready(options: Options) -> Result<Self, Error> {
        let events = perf::Events::none(period(options.rate_hz, perf::highest_rate_hz())?);
        let mut loaded = load::Loaded::new(&options)?;
        let records = loaded.records()?;
        let targets = loaded.targets()?;
        let counters = loaded.counters()?;
        loaded.attach_events()?;
        let executables = loaded.executables()?;
        let programs = loaded.programs()?;
        allocator::give_back();
        Ok(Self { loaded, events, records, targets, executables, counters, programs, rate_hz: options.rate_hz })
    }

    /// Starts the clock.
    ///
    /// # Errors
    ///
    /// As [`Sampler::load`].
    pub fn start(&mut self) -> Result<(), Error> {
        self.events.start(self.loaded.program()?)
    }

    /// What does not work here though samples are taken, a sentence each: no BTF, no events of processes.
    #[must_use]
    pub fn lacks(&self) -> &[String] {
        self.loaded.lacks()
    }

    /// Waits until a process became another program, or, where all was read before, one was born or ended, or a quarter of the ring is full, at most `timeout`; whether the
    /// kernel side said so. Samples do not end the wait: choose a `timeout` as late as they may be.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.records.wait(timeout)
    }

    /// Shows the records in the ring to `see`, for a twentieth of a second at most; whether that was all.
    pub fn drain(&mut self, see: impl FnMut(&[u8])) -> bool {
        self.records.drain(see)
    }

    /// What was counted since load.
    ///
    /// # Errors
    ///
    /// The kernel refused to tell.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.counters.read()
    }

    /// Which program each process runs, once: for who names samples. `None` also where the kernel side is not told of execs.
    pub fn programs(&mut self) -> Option<Programs> {
        self.programs.take()
    }

    /// Tells the kernel side of a process, in place of all that it knew. Of a process of which nothing is said there are samples, and goroutines if its program is known.
    ///
    /// # Errors
    ///
    /// There is no room for one more process.
    pub fn tell(&mut self, pid: u32, knowledge: &Knowledge) -> Result<(), Error> {
        self.targets.tell(pid, knowledge)
    }

    /// Whether the kernel side knows where the process keeps goroutines, without having been told of it: by the file of its program.
    #[must_use]
    pub fn is_known_by_executable(&self, pid: u32) -> bool {
        self.targets.is_known_by_executable(pid)
    }

    /// Tells the kernel side that the program which a process started keeps goroutines so, if the process still runs it: others that run it then have goroutines and labels
    /// from their first sample on. `None`: no more.
    pub fn tell_program(&mut self, pid: u32, started: Started, go: Option<&Go>) {
        if let Some(executables) = &mut self.executables {
            executables.note(pid, started, go);
        }
    }

    /// Whether the process has another number than that of this program: it has become yet another one, or the kernel side had no more room for its number.
    #[must_use]
    pub fn has_left(&self, pid: u32, started: Started) -> bool {
        self.executables.as_ref().is_some_and(|executables| executables.has_left(pid, started))
    }

    /// This process is no more, or is another program: what was told of it does not hold.
    pub fn forget(&mut self, pid: u32) {
        self.targets.forget(pid);
    }

    /// Changes the rate while running; each sample carries the period it was taken with.
    ///
    /// # Errors
    ///
    /// As [`Sampler::load`]; processors that were not reached yet keep the old rate then.
    pub fn set_rate_hz(&mut self, rate_hz: u32) -> Result<(), Error> {
        // Fewer ticks are better also where the kernel would leave out some of them.
        let highest_hz = perf::highest_rate_hz().map(|highest| highest.max(self.rate_hz));
        self.events.restart(self.loaded.program()?, period(rate_hz, highest_hz)?)?;
        self.rate_hz = rate_hz;
        Ok(())
    }

    /// No more ticks: what is in the ring and in the counters is all, and both agree. [`Sampler::set_rate_hz`] starts the clock again.
    pub fn stop_clock(&mut self) {
        self.events.close();
    }

    /// Follows processors that came or went since. To be called now and then.
    ///
    /// # Errors
    ///
    /// As [`Sampler::load`]: that one of them is not sampled.
    pub fn follow_processors(&mut self) -> Result<(), Error> {
        self.events.follow(self.loaded.program()?)
    }
}

/// The highest rate up to this one of which the kernel leaves out no tick, as far as it tells.
#[must_use]
pub fn attainable_rate_hz(rate_hz: u32) -> u32 {
    attainable(rate_hz, perf::highest_rate_hz())
}

fn attainable(rate_hz: u32, highest_hz: Option<u32>) -> u32 {
    highest_hz.map_or(rate_hz, |highest_hz| rate_hz.min(highest_hz.max(1)))
}

/// Nanoseconds between two ticks, where the kernel lets so many of them through in a second.
fn period(rate_hz: u32, highest_hz: Option<u32>) -> Result<u64, Error> {
    let what = || format!("a rate of {rate_hz} Hz");
    if !(1..=MAX_RATE_HZ).contains(&rate_hz) {
        let why = "samples can be taken 1 to 10,000 times a second";
        return Err(Error::new(what(), why, "choose a rate in that range; 99 is usual"));
    }
    if let Some(highest_hz) = highest_hz.filter(|highest_hz| rate_hz > *highest_hz) {
        let why = format!("the kernel leaves out ticks beyond {highest_hz} a second");
        return Err(Error::new(what(), why, "choose a lower rate, or raise kernel.perf_event_max_sample_rate"));
    }
    Ok(1_000_000_000 / u64::from(rate_hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a rate of which the kernel would leave out ticks, without a word, is refused with what to do, as is one that is none.
    #[test]
    fn rates_are_those_that_the_kernel_lets_through() {
        let told = |rate_hz, highest_hz| period(rate_hz, highest_hz).map_err(|error| error.to_string());
        assert_eq!(told(99, None), Ok(10_101_010));
        assert_eq!(told(1000, Some(1000)), Ok(1_000_000));
        assert!(told(1001, Some(1000)).unwrap_err().contains("raise kernel.perf_event_max_sample_rate"));
        for rate_hz in [0, MAX_RATE_HZ + 1] {
            assert!(told(rate_hz, None).unwrap_err().contains("1 to 10,000"));
        }
        for (highest_hz, attained) in [(None, 99), (Some(100), 99), (Some(99), 99), (Some(50), 50), (Some(0), 1)] {
            assert_eq!(attainable(99, highest_hz), attained, "{highest_hz:?}");
        }
    }
}
