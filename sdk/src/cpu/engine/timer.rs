//! POSIX timers on CPU clocks: one for each thread, or one for the process.
//!
//! In: the clock and the pace. Out: SIGPROF, to the thread whose clock it is or to any, with the value by which the handler
//! knows it. Work in any container; the kernel looks at them in its tick only, and says how many periods have passed.

use std::io;
use std::ptr;
use std::time::Duration;

use super::{Alarm, Call, Engine, Pace, Target};
use crate::cpu::clocks::thread_clock;

/// The engine `timer`: a timer per thread.
#[derive(Debug)]
pub(in crate::cpu) struct ThreadTimer;

/// The engine `process_timer`: one for all threads.
#[derive(Debug)]
pub(in crate::cpu) struct ProcessTimer;

impl Engine for ThreadTimer {
    fn name(&self) -> &'static str {
        "timer"
    }

    fn call(&self) -> Call {
        Call::TimerCreate
    }

    fn tells_all(&self) -> bool {
        true
    }

    fn arm(&self, target: Target, pace: Pace) -> io::Result<Box<dyn Alarm>> {
        let Target::Thread(slot) = target else { return Err(io::ErrorKind::Unsupported.into()) };
        Ok(Box::new(Timer::start(Clock::Thread(slot.tid()), ptr::from_ref(slot) as usize, pace)?))
    }
}

impl Engine for ProcessTimer {
    fn name(&self) -> &'static str {
        "process_timer"
    }

    fn call(&self) -> Call {
        Call::TimerCreate
    }

    fn tells_all(&self) -> bool {
        true
    }

    fn arm(&self, target: Target, pace: Pace) -> io::Result<Box<dyn Alarm>> {
        let Target::Process { marker } = target else { return Err(io::ErrorKind::Unsupported.into()) };
        Ok(Box::new(Timer::start(Clock::Process, marker, pace)?))
    }
}

/// A timer that sends SIGPROF; deleted when dropped. It is gone too after `fork` (in the child) and `exec`
/// (timer_create(2)).
#[derive(Debug)]
struct Timer {
    id: libc::timer_t,
}

// SAFETY: a timer id is a number (or, in musl, a tagged pointer that is never followed for these timers); any thread of
//         the process may use it (timer_create(2)).
unsafe impl Send for Timer {}

/// What a timer measures and whom it signals.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// CPU time of one thread of this process; signals that thread.
    Thread(u32),
    /// CPU time of the whole process; signals whichever thread the kernel picks, preferably the running one.
    Process,
}

impl Clock {
    fn id(self) -> libc::clockid_t {
        match self {
            Self::Thread(tid) => thread_clock(tid),
            Self::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
        }
    }
}

impl Timer {
    fn start(clock: Clock, value: usize, pace: Pace) -> io::Result<Self> {
        let mut timer = Self::create(clock, value)?;
        timer.set_pace(pace)?;
        Ok(timer)
    }

    fn create(clock: Clock, value: usize) -> io::Result<Self> {
        // SAFETY: sigevent is plain data for which zero is valid; timer_create(2) reads it and writes the id.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_signo = libc::SIGPROF;
            event.sigev_value = libc::sigval { sival_ptr: value as *mut libc::c_void };
            match clock {
                Clock::Thread(tid) => {
                    event.sigev_notify = libc::SIGEV_THREAD_ID;
                    event.sigev_notify_thread_id = tid.cast_signed();
                }
                Clock::Process => event.sigev_notify = libc::SIGEV_SIGNAL,
            }
            let mut id = ptr::null_mut();
            match libc::timer_create(clock.id(), &raw mut event, &raw mut id) {
                0 => Ok(Self { id }),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl Alarm for Timer {
    /// A timer of a dead thread has no time left (Linux, kernel/time/posix-cpu-timers.c, `posix_cpu_timer_get`).
    fn is_alive(&self) -> bool {
        let mut left = libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(Duration::ZERO) };
        // SAFETY: timer_gettime(2): the timer exists until it is dropped, and the structure is valid for the call.
        let answer = unsafe { libc::timer_gettime(self.id, &raw mut left) };
        answer == 0 && (left.it_value.tv_sec, left.it_value.tv_nsec) != (0, 0)
    }

    fn set_pace(&mut self, pace: Pace) -> io::Result<()> {
        let schedule = libc::itimerspec { it_interval: timespec(pace.period), it_value: timespec(pace.first) };
        // SAFETY: timer_settime(2): the timer exists until it is dropped, the schedule is valid for the call.
        match unsafe { libc::timer_settime(self.id, 0, &raw const schedule, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: timer_delete(2): the timer was made by `create` and is deleted once.
        unsafe { libc::timer_delete(self.id) };
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    // SAFETY: timespec is plain data (with padding on some C libraries) for which zero is valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    time.tv_sec = duration.as_secs() as _;
    time.tv_nsec = duration.subsec_nanos().into();
    time
}
