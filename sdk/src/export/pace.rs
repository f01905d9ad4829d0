//! How fast what piled up while a peer was away is sent to it: no faster than peers take it that bound their rate.
//!
//! In: the bytes that were sent, and that came anew. Out: how long to wait before the next request. Pure.

use std::time::Duration;

/// Bytes before compression in a second, beside what comes anew. Pyroscope's tenants have 4 MiB/s by default, all senders together.
pub(super) const RATE: f64 = 1e6;

/// The pace of one destination while it catches up.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes that had come when it was asked last.
    came: u64,
    /// Bytes that came since and were not sent yet: they go at once, or a program that makes more than the rate would never catch up.
    free: u64,
}

impl Pace {
    /// A pace that begins when so many bytes have come.
    pub(super) fn new(came: u64) -> Self {
        Self { came, free: 0 }
    }

    /// How long to wait after `sent` bytes were accepted, when `came` have come in all. Waits are not made up for: a peer that
    /// was slow for a while is not flooded for it.
    pub(super) fn wait(&mut self, sent: u64, came: u64) -> Duration {
        self.free += came.saturating_sub(self.came);
        self.came = came;
        let paced = sent.saturating_sub(self.free);
        self.free = self.free.saturating_sub(sent);
        Duration::from_secs_f64(paced as f64 / RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what piled up goes at the rate, and what comes meanwhile at once, so that it ends however much comes.
    #[test]
    fn what_piled_up_is_paced_and_what_comes_is_not() {
        let mut pace = Pace::new(9_000_000);
        let waits = [
            (500_000, 9_000_000),
            (2_000_000, 9_000_000),
            (500_000, 9_300_000),
            (500_000, 19_300_000),
            (500_000, 19_300_000),
        ];
        let waits = waits.map(|(sent, came)| pace.wait(sent, came).as_millis());
        assert_eq!(waits, [500, 2000, 200, 0, 0]);
    }
}
