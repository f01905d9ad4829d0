//! When a new alarm goes off for the first time: at random.
//!
//! In: the period. Out: the pace of an alarm. Used by the `profiler` thread.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::engine::{Pace, kernel_tick};

/// Draws first periods.
#[derive(Debug)]
pub(super) struct Phases {
    /// The state of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    random: u64,
    tick: Duration,
}

impl Phases {
    /// A sequence that differs from run to run.
    pub(super) fn new() -> Self {
        Self { random: RandomState::new().hash_one(std::process::id()), tick: kernel_tick() }
    }

    /// The pace of a new alarm.
    ///
    /// Its first period is random, so that threads that live shorter than a period, and work in step with it, count in
    /// proportion to the CPU time that they use; and half a tick early, for this reason: the kernel looks at CPU timers
    /// in its tick only (Linux, kernel/time/posix-cpu-timers.c, `run_posix_cpu_timers`), so an expiry since the last
    /// tick of a thread's life is never seen, which costs half a tick of samples on average.
    pub(super) fn pace(&mut self, period: Duration) -> Pace {
        let phase = Duration::from_nanos(self.draw() % (period.as_nanos() as u64).max(1));
        let first = phase.saturating_sub(self.tick / 2).max(Duration::from_nanos(1));
        Pace { first, period }
    }

    /// A random number.
    pub(super) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that first periods are spread over one period, less half a tick, and never zero, which would mean "off".
    #[test]
    fn first_periods_are_spread_over_one_period() {
        let (mut phases, period) = (Phases::new(), Duration::from_millis(100));
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            let Pace { first, period: of } = phases.pace(period);
            assert!(of == period && first > Duration::ZERO && first < period);
            tenths[((first + phases.tick / 2).as_millis() / 10).min(9) as usize] += 1;
        }
        // 1,000 each on average with a standard deviation of 30; the bound is five of them.
        assert!(tenths.iter().all(|tenth| (850..1150).contains(tenth)), "{tenths:?}");
    }
}
