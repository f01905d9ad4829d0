//! The CPU clocks of single threads: how much CPU time a thread has really used, whatever its alarm says.
//!
//! In: thread ids. Out: CPU time, from the kernel; `progress` compares it with what samples stand for.
//! Used by the `profiler` thread.

use std::time::Duration;

/// The id of a thread's CPU clock.
///
/// Source: Linux, include/linux/posix-timers_types.h: `~tid << 3 | PERTHREAD | SCHED` (4 | 2), the form that
/// pthread_getcpuclockid(3) gives for a thread whose handle is known.
pub(super) fn thread_clock(tid: u32) -> libc::clockid_t {
    (!tid << 3 | 6).cast_signed()
}

/// The CPU time that thread `tid` of this process has used; `None` once it has ended.
pub(super) fn cpu_time(tid: u32) -> Option<Duration> {
    clock(thread_clock(tid))
}

/// The CPU time that this process has used.
pub(crate) fn process_cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or_default()
}

fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes to a structure that is valid for the call.
    match unsafe { libc::clock_gettime(id, &raw mut time) } {
        0 => Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?)),
        _ => None,
    }
}

/// A duration as an integer that differences of durations fit in.
pub(super) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the clock of this thread runs and that one of no thread is refused.
    #[test]
    fn clocks_of_threads_are_read() {
        // SAFETY: gettid(2) has no argument and cannot fail.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let before = cpu_time(tid).unwrap();
        while cpu_time(tid).unwrap() == before {
            std::hint::spin_loop();
        }
        // Above the highest thread id that there can be (Linux, include/linux/threads.h, PID_MAX_LIMIT).
        assert_eq!(cpu_time(1 << 23), None);
    }
}
