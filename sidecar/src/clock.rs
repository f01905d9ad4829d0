//! What time it is, and how much of it this thread has had: by the clocks that the standard library has not, or not in these units.
//!
//! In: the system's clocks. Out: nanoseconds since 1970, CPU time. Any thread.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// Nanoseconds since 1970 UTC; 1 before that.
#[must_use]
pub fn unix_nanos() -> u64 {
    UNIX_EPOCH.elapsed().map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A time before which a process has not started, in nanoseconds of the clock of the kernel's programs (`bpf_ktime_get_ns`, `CLOCK_MONOTONIC`): `ticks` is the start by `/proc/PID/stat`,
/// which counts the time for which the machine slept as well, proc_pid_stat(5). `None` in a time namespace whose clocks are others than the machine's, time_namespaces(7).
#[must_use]
pub fn earliest_start_nanos(ticks: u64) -> Option<u64> {
    static IS_MACHINES: LazyLock<bool> = LazyLock::new(|| {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        offsets.lines().all(|line| line.split_whitespace().skip(1).all(|offset| offset == "0"))
    });
    let nanos = |clock| {
        let time = clock_gettime(clock);
        Some(u64::try_from(time.tv_sec).ok()?.saturating_mul(NANOS) + u64::try_from(time.tv_nsec).ok()?)
    };
    // The later one last: rather more sleep than less.
    let (awake, all) = (nanos(ClockId::Monotonic)?, nanos(ClockId::Boottime)?);
    let started = ticks.saturating_mul(NANOS / clock_ticks_per_second().max(1));
    IS_MACHINES.then(|| started.saturating_sub(all.saturating_sub(awake)))
}

const NANOS: u64 = 1_000_000_000;

/// A moment by two clocks: which time it is, and how much has passed since another one, which setting the first one does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Which time it is.
    pub wall: SystemTime,
    at: Instant,
}

impl Moment {
    /// This one.
    #[must_use]
    pub fn now() -> Self {
        Self { wall: SystemTime::now(), at: Instant::now() }
    }

    /// How much has passed since then, without the time for which the machine slept.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.at.saturating_duration_since(earlier.at)
    }

    /// The same moment, so much later by the one clock and with the other one set to that time.
    #[cfg(test)]
    pub(crate) fn later(self, passed: Duration, wall: SystemTime) -> Self {
        Self { wall, at: self.at + passed }
    }
}
