//! Work whose CPU time is known: three functions, each of which burns the CPU of its thread for as long as it is told.
//!
//! In: how much CPU, in which proportions. Out: how much each function really used, by the thread's own CPU clock, which
//! is what a profile of the same work is compared with. Runs on the threads that the caller makes.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::clock::thread_cpu;

/// The functions, and the tag value each runs under: what a profile should say, and in which proportion.
pub const PARTS: [Part; 3] = [
    Part { function: "price_orders", tag: "/orders", share: 0.6, burn: price_orders },
    Part { function: "search_text", tag: "/search", share: 0.3, burn: search_text },
    Part { function: "write_report", tag: "/report", share: 0.1, burn: write_report },
];

/// One of the functions that share the CPU.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name without the path.
    pub function: &'static str,
    /// The value of the tag `endpoint` it runs under.
    pub tag: &'static str,
    /// Its intended share of the CPU time.
    pub share: f64,
    /// Burns this much CPU time of the calling thread, and says how much it was.
    pub burn: fn(Duration) -> Duration,
}

/// Burns `total` of the calling thread's CPU in slices of the [`PARTS`] by their shares; `each` runs a slice (it may put a
/// tag around it). Says how much CPU each part had.
///
/// A slice lasts 0.2 to 1.8 ms times the part's share, at random: work that comes round in step with the sampling period
/// would be sampled always at the same place. What one slice took too much, the part's next ones get less.
/// `random` goes on from call to call: the same slices in every call would be in step again.
pub fn shared(
    total: Duration,
    random: &mut Random,
    mut each: impl FnMut(&Part, Duration) -> Duration,
) -> [Duration; 3] {
    let (mut due, mut used) = ([Duration::ZERO; 3], [Duration::ZERO; 3]);
    let start = thread_cpu();
    while thread_cpu() - start < total {
        for (part, (due, used)) in PARTS.iter().zip(due.iter_mut().zip(&mut used)) {
            *due += Duration::from_micros(200 + random.below(1600)).mul_f64(part.share);
            if *due > *used {
                *used += each(part, *due - *used);
            }
        }
    }
    used
}

/// Burns CPU in the program's own code until `end`: without a system call, as far as the kernel reads its clock in the vDSO.
#[inline(never)]
pub fn spin_until(end: Instant) {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    while Instant::now() < end {
        state = black_box(churn(state));
    }
}

/// Burns `cpu` of the calling thread's CPU time. Reads the thread's clock all the while, which is a system call.
#[inline(never)]
pub fn spin(cpu: Duration) -> Duration {
    burn(cpu)
}

/// Burns `cpu` of the calling thread's CPU time, nearly all of it in the kernel, in calls of some ten microseconds.
#[inline(never)]
pub fn spin_in_kernel(cpu: Duration) -> Duration {
    let start = thread_cpu();
    let mut bytes = [0_u8; 64 << 10];
    while thread_cpu() - start < cpu {
        // Where there is no such file, the calls that look for it are time in the kernel, too.
        drop(File::open("/dev/zero").and_then(|mut zeros| (0..16).try_for_each(|_| zeros.read_exact(&mut bytes))));
        black_box(&bytes);
    }
    thread_cpu() - start
}

/// Calls itself `depth` times, then `leaf`: for a stack of a known depth.
#[inline(never)]
pub fn at_depth<T>(depth: u32, leaf: &mut dyn FnMut() -> T) -> T {
    let value = if depth == 0 { leaf() } else { at_depth(depth - 1, leaf) };
    black_box(value) // after the call, so that no caller's frame is replaced by a jump
}

/// Calls one of two functions `depth` times, by the bits of `path`, then `leaf`: for stacks that differ all the way down.
#[inline(never)]
pub fn on_path<T>(path: u64, depth: u32, leaf: &mut dyn FnMut() -> T) -> T {
    let value = match (depth, path & 1) {
        (0, _) => leaf(),
        (_, 0) => on_path(path.rotate_right(1), depth - 1, leaf),
        _ => on_other_path(path.rotate_right(1), depth - 1, leaf),
    };
    black_box(value)
}

#[inline(never)]
fn on_other_path<T>(path: u64, depth: u32, leaf: &mut dyn FnMut() -> T) -> T {
    black_box(path);
    let value = match (depth, path & 1) {
        (0, _) => leaf(),
        (_, 0) => on_path(path.rotate_right(1), depth - 1, leaf),
        _ => on_other_path(path.rotate_right(1), depth - 1, leaf),
    };
    black_box(value)
}

// Each part has a body of its own in the program (`black_box` of its own constant), for the linker folds equal functions.

#[inline(never)]
fn price_orders(cpu: Duration) -> Duration {
    black_box(1);
    burn(cpu)
}

#[inline(never)]
fn search_text(cpu: Duration) -> Duration {
    black_box(2);
    burn(cpu)
}

#[inline(never)]
fn write_report(cpu: Duration) -> Duration {
    black_box(3);
    burn(cpu)
}

/// Some ten microseconds of arithmetic, so that a look at a clock after it stays a few per cent of the time. Only operators,
/// and no iterator: in a debug build those would be functions with frames of their own.
#[inline(always)]
fn churn(mut state: u64) -> u64 {
    let mut round = 0_u32;
    while round < 5_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        round += 1;
    }
    state
}

/// Arithmetic until the thread's CPU clock says that it is enough. Inlined, so that the time is the caller's own.
#[inline(always)]
fn burn(cpu: Duration) -> Duration {
    let start = thread_cpu();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        state = black_box(churn(state));
        let used = thread_cpu() - start;
        if used >= cpu {
            return used;
        }
    }
}

/// Numbers that only have to look random: xorshift64 (G. Marsaglia, "Xorshift RNGs", 2003).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, of any size.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next number, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.draw() >> 16) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the parts get their shares of the CPU, and together what was asked for.
    #[test]
    fn parts_get_their_shares() {
        let used = shared(Duration::from_millis(300), &mut Random::new(7), |part, slice| (part.burn)(slice));
        let total: Duration = used.iter().sum();
        assert!(total >= Duration::from_millis(250), "only {total:?} of 300 ms were burnt");
        for (part, used) in PARTS.iter().zip(used) {
            let share = used.as_secs_f64() / total.as_secs_f64();
            assert!((share - part.share).abs() < 0.1, "{} had {share:.3} of the CPU", part.function);
        }
    }

    /// Check that a depth of n runs the leaf once, below n frames of its own.
    #[test]
    fn depth_is_as_asked() {
        let mut calls = 0;
        let at = |depth: u32, calls: &mut u32| {
            at_depth(depth, &mut || {
                *calls += 1;
                std::ptr::from_ref(&black_box(0_u8)).addr()
            })
        };
        let (shallow, deep) = (at(0, &mut calls), at(100, &mut calls));
        assert_eq!(calls, 2);
        assert!(shallow - deep >= 100 * 16, "100 frames took {} bytes", shallow - deep);
    }
}
