//! Time that the hypervisor takes: ticks that fall into it come as one, and it may count as CPU time of the program that would have run, or not.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

const TRIES: u32 = 5;

/// What samples may stand for of the CPU time, by share: all of it within `error`, and within what the hypervisor took, in which neither ticks nor clocks are right.
pub(crate) fn complete(error: f64, taken: f64) -> RangeInclusive<f64> {
    1.0 - error - taken..=1.0 + error + taken
}

/// Runs it until the hypervisor takes no more than a hundredth of the time of a processor meanwhile, or has taken more so many times; what came of it, and what share was
/// taken.
pub(crate) fn undisturbed<T>(mut run: impl FnMut() -> T) -> (T, f64) {
    let mut tried = 0;
    loop {
        let (began, before) = (Instant::now(), stolen());
        let ran = run();
        let (taken, elapsed) = (stolen().saturating_sub(before), began.elapsed());
        tried += 1;
        if taken * 100 <= elapsed || tried == TRIES {
            return (ran, taken.as_secs_f64() / elapsed.as_secs_f64());
        }
        eprintln!("once more: the hypervisor took {taken:?} in {elapsed:?}");
    }
}

/// From all processors: the eighth number of "cpu" in `/proc/stat` (proc(5)), in hundredths of a second.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().unwrap().split_whitespace().nth(8).unwrap();
    Duration::from_millis(10 * ticks.parse::<u64>().unwrap())
}
