//! One POSIX timer, for a thread's or the process's CPU clock, and `setitimer` where none can be made.
//!
//! In: the clock, the period, the value by which the handler knows the signal. Out: SIGPROF each period of CPU time until
//! it is dropped. Used by the `profiler` thread and by `start`.

use std::io;
use std::ptr;
use std::time::Duration;

/// A timer that sends SIGPROF; deleted when dropped. It is gone too after `fork` (in the child) and `exec`
/// (timer_create(2)).
#[derive(Debug)]
pub(crate) struct Timer {
    id: libc::timer_t,
}

// SAFETY: a timer id is a number (or, in musl, a tagged pointer that is never followed for these timers); any thread of
//         the process may use it (timer_create(2)).
unsafe impl Send for Timer {}

/// What a timer measures and whom it signals.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// CPU time of one thread of this process; signals that thread.
    Thread(u32),
    /// CPU time of the whole process; signals whichever thread the kernel picks, preferably the running one.
    Process,
}

impl Clock {
    /// The clock's id.
    ///
    /// Source: Linux, include/linux/posix-timers_types.h: a thread's CPU clock is `~tid << 3 | PERTHREAD | SCHED`
    /// (4 | 2), the form that pthread_getcpuclockid(3) gives for a thread whose handle is known.
    fn id(self) -> libc::clockid_t {
        match self {
            Self::Thread(tid) => (!tid << 3 | 6).cast_signed(),
            Self::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
        }
    }
}

impl Timer {
    /// Starts a timer: first after `first`, then each `period` of CPU time.
    pub(crate) fn start(clock: Clock, value: usize, first: Duration, period: Duration) -> io::Result<Self> {
        let timer = Self::create(clock, value)?;
        let schedule = libc::itimerspec { it_interval: timespec(period), it_value: timespec(first) };
        // SAFETY: timer_settime(2): the timer was just made, the schedule is valid for the call.
        match unsafe { libc::timer_settime(timer.id, 0, &raw const schedule, ptr::null_mut()) } {
            0 => Ok(timer),
            _ => Err(io::Error::last_os_error()),
        }
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

    /// Whether the thread that this timer measures still lives: a timer of a dead one has no time left.
    ///
    /// Source: Linux, kernel/time/posix-cpu-timers.c, `posix_cpu_timer_get`.
    pub(crate) fn is_alive(&self) -> bool {
        let mut left = libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(Duration::ZERO) };
        // SAFETY: timer_gettime(2): the timer exists until it is dropped, and the structure is valid for the call.
        let answer = unsafe { libc::timer_gettime(self.id, &raw mut left) };
        answer == 0 && (left.it_value.tv_sec, left.it_value.tv_nsec) != (0, 0)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: timer_delete(2): the timer was made by `create` and is deleted once.
        unsafe { libc::timer_delete(self.id) };
    }
}

/// `setitimer(ITIMER_PROF)`: needs no resource, measures the whole process; stopped when dropped.
///
/// It survives `exec` (execve(2)) and would then end the new program, which has no handler; hence the last choice.
#[derive(Debug)]
pub(crate) struct IntervalTimer;

impl IntervalTimer {
    /// Starts it.
    pub(crate) fn start(period: Duration) -> io::Result<Self> {
        match set_interval(period) {
            0 => Ok(Self),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for IntervalTimer {
    fn drop(&mut self) {
        set_interval(Duration::ZERO);
    }
}

fn set_interval(period: Duration) -> libc::c_int {
    let period = libc::timeval {
        tv_sec: period.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(period.subsec_micros()),
    };
    let schedule = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: setitimer(2): the schedule is valid for the call.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const schedule, ptr::null_mut()) }
}

fn timespec(duration: Duration) -> libc::timespec {
    // SAFETY: timespec is plain data (with padding on some C libraries) for which zero is valid.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    time.tv_sec = duration.as_secs() as libc::time_t;
    time.tv_nsec = duration.subsec_nanos().into();
    time
}
