//! What time it is, and how much of it this thread has had: by the clocks that the standard library has not, or not in these units.
//!
//! In: the system's clocks. Out: nanoseconds since 1970, CPU time. Any thread.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
