//! How often the hooks were called, counted before they do anything else: what came of the calls is counted elsewhere, and must come to as much.
//!
//! In: addresses, in hooks of any thread. Out: sums. Sixteen cache lines, so that threads seldom meet on one. Leaf module.

use std::sync::atomic::{AtomicU64, Ordering};

/// Lines that count.
const LINES: usize = 16;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Calls {
    lines: [Line; LINES],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    sampled: AtomicU64,
    freed: AtomicU64,
}

impl Calls {
    /// Counts a block that was sampled.
    pub(super) fn count_sampled(&self, address: u64) {
        self.line(address).sampled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sampled block that is being freed.
    pub(super) fn count_freed(&self, address: u64) {
        self.line(address).freed.fetch_add(1, Ordering::Relaxed);
    }

    /// Blocks that were sampled.
    pub(super) fn sampled(&self) -> u64 {
        self.lines.iter().map(|line| line.sampled.load(Ordering::Relaxed)).sum()
    }

    /// Sampled blocks that were freed.
    pub(super) fn freed(&self) -> u64 {
        self.lines.iter().map(|line| line.freed.load(Ordering::Relaxed)).sum()
    }

    fn line(&self, address: u64) -> &Line {
        // Knuth, "The Art of Computer Programming" 6.4; the high bits are the mixed ones.
        &self.lines[(address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % LINES]
    }
}
