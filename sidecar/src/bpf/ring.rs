//! The reader's end of the ring.

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};

/// The ring.
pub(super) struct Records(pub(super) RingBuf<MapData>);

impl Records {
    /// Waits for the kernel side's word, at most `timeout`; whether it came. An interrupted wait ends early.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let mut ring = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: poll(2) reads and writes one `pollfd`, which is ours.
        unsafe { libc::poll(&raw mut ring, 1, timeout) == 1 }
    }

    /// Shows every record, at most as many as were there when it began and came meanwhile up to a bound, so that it ends.
    pub(super) fn drain(&mut self, mut see: impl FnMut(&[u8])) -> usize {
        let mut seen = 0;
        while seen < MOST_AT_ONCE
            && let Some(record) = self.0.next()
        {
            see(&record);
            seen += 1;
        }
        seen
    }
}

/// Records taken in one go.
const MOST_AT_ONCE: usize = 1 << 16;
