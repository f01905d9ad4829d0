//! The reader's end of the ring.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

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

    /// Shows records until there are none, or for so long that who sees them has other things to do: they may come faster than they are seen. Whether
    /// there are none.
    pub(super) fn drain(&mut self, mut see: impl FnMut(&[u8])) -> bool {
        let until = Instant::now() + LONGEST;
        while let Some(record) = self.ring.next() {
            see(&record);
            if Instant::now() >= until {
                return false;
            }
        }
        true
    }
}

/// Time in which records are taken in one go. Only behind that does the kernel side learn of programs that began: their labels wait for it.
const LONGEST: Duration = Duration::from_millis(50);
