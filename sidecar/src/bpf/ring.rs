//! The reader's end of the ring.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use rustix::event::{Timespec, epoll};

/// The ring.
pub(super) struct Records {
    ring: RingBuf<MapData>,
    /// Tells of calls of the kernel side, once each: that there are records is no reason to come (`EPOLLET`, epoll(7)).
    calls: OwnedFd,
}

impl Records {
    /// The reader of `ring`.
    pub(super) fn of(ring: RingBuf<MapData>) -> io::Result<Self> {
        let calls = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&calls, ring.as_fd(), epoll::EventData::new_u64(0), flags)?;
        Ok(Self { ring, calls })
    }

    /// Waits for the kernel side's call, at most `timeout`; whether it came. An interrupted wait ends early.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let mut called = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let timeout = Timespec::try_from(timeout).ok();
        epoll::wait(&self.calls, &mut called, timeout.as_ref()).is_ok_and(|called| called > 0)
    }

    /// Shows every record, at most as many as were there when it began and came meanwhile up to a bound, so that it ends.
    pub(super) fn drain(&mut self, mut see: impl FnMut(&[u8])) -> usize {
        let mut seen = 0;
        while seen < MOST_AT_ONCE
            && let Some(record) = self.ring.next()
        {
            see(&record);
            seen += 1;
        }
        seen
    }
}

/// Records taken in one go.
const MOST_AT_ONCE: usize = 1 << 16;
