//! CPU clocks: how much CPU time a thread or the process has used; and one that goes on when a process becomes another one.
//!
//! In: nothing. Out: durations since the thread, the process or the machine began. Any thread; one system call a reading.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread, user and system: `CLOCK_THREAD_CPUTIME_ID` of clock_gettime(2).
#[must_use]
pub fn thread_cpu() -> Duration {
    reading(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process, ended ones included: `CLOCK_PROCESS_CPUTIME_ID` of clock_gettime(2).
#[must_use]
pub fn process_cpu() -> Duration {
    reading(ClockId::ProcessCPUTime)
}

/// Time since the machine was started, which nobody sets: `CLOCK_MONOTONIC` of clock_gettime(2).
#[must_use]
pub fn uptime() -> Duration {
    reading(ClockId::Monotonic)
}

fn reading(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread's clock stands still while it sleeps and that the process's clock covers the thread's.
    #[test]
    fn a_sleeping_thread_uses_no_cpu_time() {
        let (process, thread) = (process_cpu(), thread_cpu());
        std::thread::sleep(Duration::from_millis(50));
        let slept = thread_cpu() - thread;
        assert!(slept < Duration::from_millis(20), "a thread that slept used {slept:?}");
        assert!(process_cpu() - process >= slept);
    }
}
