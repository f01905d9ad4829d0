//! Perf events that are turned on and off from here: the agent's, so that beside it, without its ticks, a target is as without it; and bare ones, which are what the
//! kernel and the machine take for a tick that does nothing.
//!
//! So often and so quickly as an agent cannot be started and ended, and with nothing else that differs.

use std::fs::{read_dir, read_link};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use profiler_tests::Result;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_DISABLE`. Source, here and below: include/uapi/linux/perf_event.h.
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;
/// `PERF_TYPE_SOFTWARE`, of which `PERF_COUNT_SW_CPU_CLOCK` is 0.
const SOFTWARE: u32 = 1;
/// Bits of the flags: `disabled`, `exclude_hv`, `exclude_idle`: as the agent's.
const FLAGS: u64 = 1 | 1 << 6 | 1 << 7;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Descriptors of events.
#[derive(Debug)]
pub(crate) struct Ticks(Vec<OwnedFd>);

impl Ticks {
    /// Those that a process has.
    pub(super) fn of(pid: Pid) -> Result<Self> {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let mut events = Vec::new();
        for entry in read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))? {
            let entry = entry?;
            // Others may be closed meanwhile.
            if read_link(entry.path()).is_ok_and(|of| of.as_os_str() == "anon_inode:[perf_event]") {
                let number = entry.file_name().to_string_lossy().parse()?;
                events.push(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
            }
        }
        if events.is_empty() { Err("the agent has no perf events".into()) } else { Ok(Self(events)) }
    }

    /// Those of nobody, so often a second on each processor, turned off: no program, no buffer.
    pub(crate) fn bare(rate_hz: u64) -> Result<Self> {
        // `struct perf_event_attr` in its first version: type and size, config, period, what is not asked for, flags, the same again.
        let attributes = [u64::from(SOFTWARE) | 64 << 32, 0, 1_000_000_000 / rate_hz, 0, 0, FLAGS, 0, 0];
        let mut events = Vec::new();
        for processor in 0..libc::c_int::MAX {
            let pointer = attributes.as_ptr();
            // SAFETY: perf_event_open(2) reads 64 bytes at the pointer, as these say. All threads, one processor, no group.
            let event = unsafe { libc::syscall(libc::SYS_perf_event_open, pointer, -1, processor, -1, CLOSE_ON_EXEC) };
            match i32::try_from(event) {
                // SAFETY: a new descriptor, nobody else's.
                Ok(event @ 0..) => events.push(unsafe { OwnedFd::from_raw_fd(event) }),
                _ => match io::Error::last_os_error() {
                    // It is turned off.
                    error if error.raw_os_error() == Some(libc::ENODEV) => {}
                    // There are no more of them.
                    error if processor > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
                    error => return Err(error.into()),
                },
            }
        }
        Ok(Self(events))
    }

    /// Turns them on, or off.
    pub(crate) fn turn(&self, on: bool) -> Result<()> {
        for event in &self.0 {
            // SAFETY: ioctl(2) on a perf event; no argument.
            if unsafe { libc::ioctl(event.as_raw_fd(), if on { ENABLE } else { DISABLE }, 0) } != 0 {
                return Err(io::Error::last_os_error().into());
            }
        }
        Ok(())
    }
}
