//! Perf events: one software CPU clock per thread, exact at any rate.
//!
//! In: a thread and the period. Out: SIGPROF to that thread with the descriptor of its event, for the time in its own code.
//! The kernel's high-resolution timer does it, on and off with the thread, which costs some 2 µs a context switch; hence not
//! the first choice at rates that timers can follow.
//!
//! Time in the kernel is left to the thread's timer, for two reasons: a signal that comes while `execve` works stays pending
//! and would end the new program (those of timers are taken back), and many kernels let nobody count kernel time. An event's
//! first period is a whole one, which is another reason for having a timer first, whose is random.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::{Alarm, Call, Engine, Pace, Target};
use crate::cpu::clocks::cpu_time;
use crate::cpu::slots::{NO_EVENT, Slot};

/// The engine `perf`.
#[derive(Debug)]
pub(in crate::cpu) struct Perf {
    /// One clone is in each event.
    events: Arc<()>,
    /// Most events that may be open at once.
    most: usize,
}

/// One thread's event. Invariant: while `slot` names its descriptor, signals with it are this thread's.
#[derive(Debug)]
struct Event {
    /// `None` only while it is dropped.
    descriptor: Option<File>,
    /// By which it is known again.
    identity: Identity,
    slot: &'static Slot,
    _counted: Arc<()>,
}

impl Perf {
    /// Finds out whether the kernel allows it; why not, where it does not.
    pub(super) fn try_out() -> Result<Self, String> {
        match open(0, PROBE_PERIOD) {
            Ok(_) => Ok(Self { events: Arc::new(()), most: open_files_limit() / 4 }),
            Err(error) => Err(format!("perf_event_open: {error} (perf_event_paranoid is {})", paranoid())),
        }
    }
}

impl Engine for Perf {
    fn name(&self) -> &'static str {
        "perf"
    }

    fn call(&self) -> Call {
        Call::PerfEventOpen
    }

    fn tells_all(&self) -> bool {
        false
    }

    fn arm(&self, target: Target, pace: Pace) -> io::Result<Box<dyn Alarm>> {
        let Target::Thread(slot) = target else { return Err(io::ErrorKind::Unsupported.into()) };
        if Arc::strong_count(&self.events) > self.most {
            let why = format!("{} events are open, a quarter of RLIMIT_NOFILE", self.most);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        let descriptor = open(slot.tid(), pace.period.as_nanos() as u64)?;
        let identity = Identity::of(&descriptor)?;
        let event = Event { descriptor: Some(descriptor), identity, slot, _counted: Arc::clone(&self.events) };
        event.enable()?;
        Ok(Box::new(event))
    }
}

impl Event {
    fn fd(&self) -> RawFd {
        self.descriptor.as_ref().map_or(NO_EVENT, AsRawFd::as_raw_fd)
    }

    /// Sends its overflows as SIGPROF to its thread, from now on.
    fn enable(&self) -> io::Result<()> {
        let owner = Owner { kind: F_OWNER_TID, pid: self.slot.tid().cast_signed() };
        // SAFETY: fcntl(2) on a descriptor that we own; F_SETOWN_EX reads a structure that is valid for the call.
        let owned = unsafe { libc::fcntl(self.fd(), F_SETOWN_EX, &raw const owner) == 0 };
        if !owned {
            return Err(io::Error::last_os_error());
        }
        // The thread may have ended, and its id be that of another process's, which SIGPROF would end. Who has the descriptor's
        // signals is settled by now.
        if cpu_time(self.slot.tid()).is_none() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: as above, with numbers only.
        let set = unsafe {
            libc::fcntl(self.fd(), F_SETSIG, libc::SIGPROF) == 0
                && libc::fcntl(self.fd(), libc::F_SETFL, libc::O_ASYNC) == 0
        };
        if !set {
            return Err(io::Error::last_os_error());
        }
        self.slot.set_event(self.fd());
        control(self.fd(), ENABLE, 0)
    }

    /// Whether the descriptor is still this event: a program that closes all descriptors, ours too, may have got the
    /// number for something else.
    fn is_ours(&self) -> bool {
        let same = |descriptor| self.identity.is_of(descriptor);
        self.descriptor.as_ref().is_some_and(same)
    }
}

impl Alarm for Event {
    /// Whether the event is still there; of its thread, it says nothing.
    fn is_alive(&self) -> bool {
        self.is_ours()
    }

    fn set_pace(&mut self, pace: Pace) -> io::Result<()> {
        let period = pace.period.as_nanos() as u64;
        if !self.is_ours() {
            return Err(io::ErrorKind::NotFound.into());
        }
        control(self.fd(), PERIOD, (&raw const period) as libc::c_ulong)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let ours = self.is_ours();
        if ours {
            // Before it is closed, for a forked child may hold the event too, and keep it running; and while the slot still has it, or
            // its signals would look like those of others.
            drop(control(self.fd(), DISABLE, 0));
        }
        self.slot.set_event(NO_EVENT);
        if !ours {
            // The number belongs to somebody else by now: it must not be closed.
            std::mem::forget(self.descriptor.take());
        }
    }
}

/// Far too long to ever end while the kernel is asked what it allows.
const PROBE_PERIOD: u64 = 3_600_000_000_000;

/// Opens a disabled event for a thread of this process; 0 is the calling one.
fn open(tid: u32, period_nanos: u64) -> io::Result<File> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: CPU_CLOCK,
        sample_period: period_nanos,
        flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        wakeup_events: 1,
        ..Attributes::default()
    };
    // SAFETY: perf_event_open(2): the attributes are valid for the call; any processor, no group.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, tid, -1, -1, FLAG_FD_CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: the call has just made this descriptor, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What tells an event from everything else that its descriptor's number may come to mean.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    /// Device and number of the file that all descriptors without a file of their own share.
    file: (u64, u64),
    /// The kernel's number of the event.
    event: u64,
}

impl Identity {
    fn of(descriptor: &File) -> io::Result<Self> {
        Ok(Self { file: file_of(&descriptor.metadata()?), event: event_id(descriptor.as_raw_fd())? })
    }

    /// Asks for the event's number only where it can be one: a file or a socket of the host's is left alone.
    fn is_of(&self, descriptor: &File) -> bool {
        descriptor.metadata().is_ok_and(|found| file_of(&found) == self.file)
            && event_id(descriptor.as_raw_fd()).is_ok_and(|event| event == self.event)
    }
}

fn file_of(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn event_id(fd: RawFd) -> io::Result<u64> {
    let mut id = 0_u64;
    control(fd, ID, (&raw mut id) as libc::c_ulong)?;
    Ok(id)
}

/// ioctl(2); `argument` is a number or, for [`PERIOD`] and [`ID`], the address of a `u64` that is valid for the call.
fn control(fd: RawFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: perf_event_open(2), "perf_event ioctl calls": of the requests used here, PERIOD reads a u64 and ID writes one,
    //         which the caller provides; on a descriptor that is no event they fail with ENOTTY.
    match unsafe { libc::ioctl(fd, request as _, argument) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn paranoid() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The soft limit of open files.
fn open_files_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes to a structure that is valid for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// `struct perf_event_attr` as its first version had it, which every kernel takes.
///
/// Source: Linux, include/uapi/linux/perf_event.h, PERF_ATTR_SIZE_VER0.
#[derive(Debug, Default)]
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
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

// Source: Linux, include/uapi/linux/perf_event.h: types, software events, bits of the attributes, requests.
const TYPE_SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const PERIOD: libc::c_ulong = 0x4008_2404;
const ID: libc::c_ulong = 0x8008_2407;

/// `struct f_owner_ex`. Source: Linux, include/uapi/asm-generic/fcntl.h.
#[derive(Debug)]
#[repr(C)]
struct Owner {
    kind: i32,
    pid: i32,
}

// Source: Linux, include/uapi/asm-generic/fcntl.h.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cpu::slots::Slots;

    /// Check that no event is set for a thread of another process, where an id went to one: it lives on.
    #[test]
    fn another_process_gets_no_signals() {
        // Where the kernel allows no events, there is nothing to go wrong.
        let Ok(perf) = Perf::try_out() else { return };
        // SAFETY: fork(2); the child does nothing until it is killed, by us or by a signal that was not for it.
        let busy = unsafe { libc::fork() };
        if busy == 0 {
            // SAFETY: signal(2).
            unsafe { libc::signal(libc::SIGPROF, libc::SIG_DFL) };
            loop {
                std::hint::spin_loop();
            }
        }
        let slots: &'static Slots = Box::leak(Box::new(Slots::new().unwrap()));
        let slot = slots.insert(busy.cast_unsigned()).unwrap();
        let period = Duration::from_millis(1);
        let armed = perf.arm(Target::Thread(slot), Pace { first: period, period });
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: waitpid(2), kill(2) of the child made above.
        let ended = unsafe { libc::waitpid(busy, std::ptr::null_mut(), libc::WNOHANG) };
        // SAFETY: as above; it is still to be waited for.
        let outcome = unsafe { (libc::kill(busy, libc::SIGKILL), libc::waitpid(busy, std::ptr::null_mut(), 0)) };
        assert_eq!(
            (armed.err().and_then(|error| error.raw_os_error()), ended, outcome),
            (Some(libc::ESRCH), 0, (0, busy))
        );
    }
}
