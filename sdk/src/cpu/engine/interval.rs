//! `setitimer(ITIMER_PROF)`: needs no resource and measures the whole process.
//!
//! In: the period. Out: SIGPROF, sent as the kernel, each period of CPU time. It survives `exec` (execve(2)) and would then
//! end the new program, which has no handler; hence the last choice. A process has one: where the host uses it, it is
//! refused.

use std::io;
use std::ptr;
use std::time::Duration;

use super::{Alarm, Call, Engine, Pace, Target};

/// The engine `setitimer`.
#[derive(Debug)]
pub(in crate::cpu) struct IntervalTimer;

/// The one timer of the process; stopped when dropped, unless the program has set it to something else since.
#[derive(Debug)]
struct Running {
    /// As it was set last.
    period: Duration,
}

impl Engine for IntervalTimer {
    fn name(&self) -> &'static str {
        "setitimer"
    }

    fn call(&self) -> Call {
        Call::Setitimer
    }

    fn tells_all(&self) -> bool {
        false
    }

    fn arm(&self, target: Target, pace: Pace) -> io::Result<Box<dyn Alarm>> {
        let Target::Process { .. } = target else { return Err(io::ErrorKind::Unsupported.into()) };
        if is_set(&now()?.it_value) {
            return Err(taken());
        }
        set(pace)?;
        Ok(Box::new(Running { period: pace.period }))
    }
}

impl Alarm for Running {
    fn is_alive(&self) -> bool {
        true
    }

    fn set_pace(&mut self, pace: Pace) -> io::Result<()> {
        if !self.is_ours() {
            return Err(taken());
        }
        self.period = pace.period;
        set(pace)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_ours() {
            // Cannot fail: the timer exists and the value is valid (setitimer(2)).
            drop(set(Pace { first: Duration::ZERO, period: Duration::ZERO }));
        }
    }
}

impl Running {
    /// Whether the timer is as it was set here.
    fn is_ours(&self) -> bool {
        let ours = timeval(self.period);
        let looks_ours = || {
            now().is_ok_and(|now| {
                (now.it_interval.tv_sec, now.it_interval.tv_usec) == (ours.tv_sec, ours.tv_usec)
                    && is_set(&now.it_value)
            })
        };
        // As it expires, nothing is left of it for an instant.
        looks_ours() || looks_ours()
    }
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "ITIMER_PROF is in use by the program itself")
}

fn now() -> io::Result<libc::itimerval> {
    let mut now = libc::itimerval { it_interval: timeval(Duration::ZERO), it_value: timeval(Duration::ZERO) };
    // SAFETY: getitimer(2) writes to a structure that is valid for the call.
    match unsafe { libc::getitimer(libc::ITIMER_PROF, &raw mut now) } {
        0 => Ok(now),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_set(time: &libc::timeval) -> bool {
    (time.tv_sec, time.tv_usec) != (0, 0)
}

fn set(pace: Pace) -> io::Result<()> {
    let schedule = libc::itimerval { it_interval: timeval(pace.period), it_value: timeval(pace.first) };
    // SAFETY: setitimer(2): the schedule is valid for the call.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const schedule, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// In microseconds, the least that is not "off".
fn timeval(duration: Duration) -> libc::timeval {
    let micros = duration.as_nanos().div_ceil(1000);
    libc::timeval { tv_sec: (micros / 1_000_000) as _, tv_usec: (micros % 1_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a timer of the program itself is left alone.
    #[test]
    fn a_timer_in_use_is_left_alone() {
        // So long that it never fires.
        let hour = Pace { first: Duration::from_secs(3600), period: Duration::from_secs(3600) };
        let target = Target::Process { marker: 0 };
        let first = IntervalTimer.arm(target, hour).unwrap();
        let error = IntervalTimer.arm(target, hour).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        let mut ours = IntervalTimer.arm(target, hour).unwrap();
        // The program sets it to something else.
        let theirs = Pace { first: Duration::from_secs(1800), period: Duration::from_secs(1800) };
        set(theirs).unwrap();
        assert_eq!(ours.set_pace(hour).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(ours);
        assert_eq!(now().unwrap().it_interval.tv_sec, 1800);
        set(Pace { first: Duration::ZERO, period: Duration::ZERO }).unwrap();
        drop(IntervalTimer.arm(target, hour).unwrap());
        assert!(!is_set(&now().unwrap().it_value));
    }
}
