//! What the kernel says that a process uses: memory, and CPU time, that of the profiler's own threads by itself, too.
//!
//! In: files below `/proc`. Out: bytes, durations. Any thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::Result;

/// Bytes of a line of `/proc/self/status`, such as `VmRSS` (proc(5)).
///
/// # Errors
/// When it cannot be read or has no such line.
pub fn status_bytes(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kibibytes = value.ok_or_else(|| format!("/proc/self/status has no {name}"))?.trim().trim_end_matches(" kB");
    Ok(kibibytes.parse::<u64>()? * 1024)
}

/// CPU time of the profiler's own threads, by their names.
///
/// # Errors
/// When the kernel does not tell.
pub fn own_cpu() -> Result<Duration> {
    own_cpu_of(std::process::id())
}

/// The same of another process.
///
/// # Errors
/// When the kernel does not tell.
pub fn own_cpu_of(process: u32) -> Result<Duration> {
    cpu_of_threads(process, |name| name.starts_with("profiler"))
}

/// CPU time of the threads that the process has now: exact as long as none ends, unlike the ticks of `/proc/PID/stat`.
///
/// # Errors
/// When the kernel does not tell.
pub fn cpu_of(process: u32) -> Result<Duration> {
    cpu_of_threads(process, |_| true)
}

fn cpu_of_threads(process: u32, is_counted: impl Fn(&str) -> bool) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let path = task?.path();
        // One that ends meanwhile is not there any more.
        let read = |file| std::fs::read_to_string(path.join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else { continue };
        if is_counted(&name) {
            // The first figure of schedstat is the time on the processor, in nanoseconds (proc(5)).
            sum += Duration::from_nanos(stat.split(' ').next().unwrap_or_default().parse()?);
        }
    }
    Ok(sum)
}

/// How long the calling thread has waited for a processor, read again and again without allocating.
#[derive(Debug)]
pub struct RunQueue(File);

impl RunQueue {
    /// Of the calling thread.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn of_this_thread() -> io::Result<Self> {
        File::open("/proc/thread-self/schedstat").map(Self)
    }

    /// The second figure of schedstat: nanoseconds that it was ready to run and did not (proc(5)).
    #[must_use]
    pub fn waited(&self) -> Duration {
        let mut text = [0; 80];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        let mut figures = text[..length].split(|byte| *byte == b' ').skip(1);
        let digits = figures.next().unwrap_or_default().iter();
        Duration::from_nanos(digits.fold(0, |number, digit| number * 10 + u64::from(digit.wrapping_sub(b'0'))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that touched memory is resident, and that what is not there is an error that names it.
    #[test]
    fn touched_memory_is_resident() {
        let before = status_bytes("VmRSS").unwrap();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(status_bytes("VmRSS").unwrap() >= before + (48 << 20));
        drop(touched);
        assert!(status_bytes("VmNothing").unwrap_err().to_string().contains("VmNothing"));
    }

    /// Check that the figure is the one that the kernel tells, which only grows.
    #[test]
    fn waiting_for_a_processor_is_read() {
        let queue = RunQueue::of_this_thread().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let figure = Duration::from_nanos(text.split(' ').nth(1).unwrap().parse().unwrap());
        let waited = queue.waited();
        assert!(waited >= figure && waited < figure + Duration::from_secs(60), "{waited:?} {figure:?}");
    }
}
