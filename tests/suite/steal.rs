//! Time that the hypervisor takes: to some of the kernel's clocks the thread that would have run had it, to others it did not.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// A while in which the hypervisor may take time.
#[derive(Debug)]
pub(crate) struct While {
    began: Instant,
    before: Duration,
}

impl While {
    /// From now on.
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), before: stolen() }
    }

    /// What a weight may be, as a part of the CPU time until now: all of it within 3 %, and within what was taken, as a part of a processor's time.
    pub(crate) fn complete(&self) -> RangeInclusive<f64> {
        let taken = stolen().saturating_sub(self.before).as_secs_f64() / self.began.elapsed().as_secs_f64();
        0.97 - taken..=1.03 + taken
    }
}

/// From all processors: the eighth number of "cpu" in `/proc/stat` (proc(5)), in hundredths of a second.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().unwrap().split_whitespace().nth(8).unwrap();
    Duration::from_millis(10 * ticks.parse::<u64>().unwrap())
}
