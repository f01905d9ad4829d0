//! The clock: a perf event on each processor, which runs the program `cpu` at every tick.
//!
//! Source: `perf_event_open(2)`; the software CPU clock is a timer of the processor, not of a thread. A processor that goes offline takes its events out for good,
//! though their descriptors stay (kernel/events/core.c, `perf_event_exit_cpu_context`): the time for which they were enabled stands still then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _};
use std::time::Duration;

use super::processors;
use crate::error::Error;

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`.
const CPU_CLOCK: u64 = 0;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED`: read(2) gives the count and, behind it, nanoseconds.
const TIME_ENABLED: u64 = 1;
/// Bits of the flags: `disabled`, `exclude_hv`, `exclude_idle`.
const FLAGS: u64 = 1 | 1 << 6 | 1 << 7;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::Ioctl = 0x2400u32 as libc::Ioctl;
/// `PERF_EVENT_IOC_SET_BPF`.
const SET_PROGRAM: libc::Ioctl = 0x4004_2408u32 as libc::Ioctl;

/// `struct perf_event_attr`, its first version (`PERF_ATTR_SIZE_VER0`, 64 bytes).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    more: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// The events, by processor.
#[derive(Debug)]
pub(super) struct Events {
    open: BTreeMap<u32, Event>,
    period: u64,
    stopped: bool,
}

impl Events {
    /// None yet.
    pub(super) fn none(period: u64) -> Self {
        Self { open: BTreeMap::new(), period, stopped: true }
    }

    /// Opens one on every processor that is online.
    pub(super) fn start(&mut self, program: BorrowedFd<'_>) -> Result<(), Error> {
        self.restart(program, self.period)?;
        if self.open.is_empty() {
            return Err(Error::new(
                "the clock",
                "no processor takes an event",
                "look at /sys/devices/system/cpu/online",
            ));
        }
        Ok(())
    }

    /// Opens one on every processor that is online, in place of the one that was there; the rest stay as they are where one is refused. One
    /// after the other within a period: were they all to tick at once, what one tick sets off on another processor would be hit by that
    /// one's, every time. A processor that goes offline meanwhile is left out.
    pub(super) fn restart(&mut self, program: BorrowedFd<'_>, period: u64) -> Result<(), Error> {
        let online = processors::online()?;
        let apart = Duration::from_nanos(period / online.len().max(1) as u64);
        for processor in online {
            match tick(processor, period, program) {
                Ok(event) => drop(self.open.insert(processor, event)),
                Err((_, error)) if is_gone(&error) => {}
                Err((call, error)) => return Err(refused(call, processor, &error)),
            }
            std::thread::sleep(apart);
        }
        (self.period, self.stopped) = (period, false);
        Ok(())
    }

    /// Opens events on processors that came, and drops those of processors that went, be they back by now. All others are tried where one is refused.
    pub(super) fn follow(&mut self, program: BorrowedFd<'_>) -> Result<(), Error> {
        if self.stopped {
            return Ok(());
        }
        let online = processors::online()?;
        self.open.retain(|processor, event| online.contains(processor) && event.has_run_on());
        let mut outcome = Ok(());
        for processor in online {
            if self.open.contains_key(&processor) {
                continue;
            }
            match tick(processor, self.period, program) {
                Ok(event) => drop(self.open.insert(processor, event)),
                Err((_, error)) if is_gone(&error) => {}
                Err((call, error)) => outcome = outcome.and(Err(refused(call, processor, &error))),
            }
        }
        outcome
    }

    /// Closes all. A tick under way is through by then: closing waits for it (`perf_event_release_kernel`, an IPI to the processor).
    pub(super) fn close(&mut self) {
        self.open.clear();
        self.stopped = true;
    }
}

/// Most ticks a second and processor that the kernel lets through; of more it leaves out some without a word. The kernel lowers it where ticks take it too long. `None`: it does not tell.
///
/// Source: Documentation/admin-guide/sysctl/kernel.rst, `perf_event_max_sample_rate`; kernel/events/core.c, `__perf_event_overflow`.
pub(super) fn highest_rate_hz() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?.trim().parse().ok()
}

/// The event of one processor.
#[derive(Debug)]
struct Event {
    file: File,
    /// For how long it was enabled, in nanoseconds, when that was asked last.
    enabled: u64,
}

impl Event {
    /// Whether it was enabled since this was asked last.
    fn has_run_on(&mut self) -> bool {
        let mut answer = [0; 16];
        if let Err(error) = self.file.read_exact(&mut answer) {
            // Else it does not let itself be read, which says nothing.
            return error.kind() != io::ErrorKind::UnexpectedEof;
        }
        let [_, enabled] = *answer.as_chunks().0 else { return false };
        let enabled = u64::from_ne_bytes(enabled);
        std::mem::replace(&mut self.enabled, enabled) < enabled
    }
}

/// An event on a processor, with the program, running; else the call that was refused.
fn tick(processor: u32, period: u64, program: BorrowedFd<'_>) -> Result<Event, (&'static str, io::Error)> {
    let file = open(processor, period).map_err(|error| ("perf_event_open", error))?;
    // SAFETY: ioctl(2) on an event of ours; the argument is a descriptor.
    if unsafe { libc::ioctl(file.as_raw_fd(), SET_PROGRAM, program.as_raw_fd()) } != 0 {
        return Err(("ioctl(PERF_EVENT_IOC_SET_BPF)", io::Error::last_os_error()));
    }
    // SAFETY: ioctl(2) on an event of ours; no argument.
    if unsafe { libc::ioctl(file.as_raw_fd(), ENABLE, 0) } != 0 {
        return Err(("ioctl(PERF_EVENT_IOC_ENABLE)", io::Error::last_os_error()));
    }
    Ok(Event { file, enabled: 0 })
}

fn open(processor: u32, period: u64) -> io::Result<File> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: CPU_CLOCK,
        sample_period: period,
        sample_type: 0,
        read_format: TIME_ENABLED,
        flags: FLAGS,
        wakeup_events: 0,
        breakpoint: 0,
        more: 0,
    };
    let processor = libc::c_int::try_from(processor).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: perf_event_open(2) reads `size` bytes at the pointer. All threads, one processor, no group.
    let event =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, processor, -1, CLOSE_ON_EXEC) };
    match i32::try_from(event) {
        // SAFETY: a new descriptor, nobody else's.
        Ok(event @ 0..) => Ok(unsafe { File::from_raw_fd(event) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `perf_event_open(2)`: `ENODEV`, `ENXIO` for processors that are not there.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

fn refused(call: &str, processor: u32, error: &io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "give the sidecar CAP_PERFMON (CAP_SYS_ADMIN where kernel.perf_event_paranoid is above 2), and a seccomp profile that allows perf_event_open"
        }
        Some(libc::EMFILE) => "raise the limit of open files (RLIMIT_NOFILE): one is needed for each processor",
        Some(libc::ENOSYS) => "run on a kernel with CONFIG_PERF_EVENTS",
        _ => "look at `profiler-sidecar doctor`",
    };
    Error::new(format!("{call} on processor {processor}"), error.to_string(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an event that was taken out of its processor, as one is that goes offline, is known by that, though its descriptor and the processor are there.
    #[test]
    fn an_event_that_stands_still_is_known() {
        /// `PERF_EVENT_IOC_DISABLE`.
        const DISABLE: libc::Ioctl = 0x2401u32 as libc::Ioctl;
        let processor = processors::online().unwrap()[0];
        let Ok(file) = open(processor, 1_000_000_000) else {
            return println!("NOT RUN: perf events can be opened by root only; run the tests as root");
        };
        let call = |call: libc::Ioctl| {
            // SAFETY: ioctl(2) on an event of ours; no argument.
            assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), call, 0) }, 0);
        };
        let mut event = Event { file: file.try_clone().unwrap(), enabled: 0 };
        assert!(!event.has_run_on());
        call(ENABLE);
        assert!(event.has_run_on() && event.has_run_on());
        call(DISABLE);
        event.has_run_on();
        assert!(!event.has_run_on());
    }
}
