//! The `timer` engine: each thread of the process has a timer on its own CPU clock, found by sweeping the thread list.
//!
//! In: `/proc/self/task`, hints of the handler. Out: one SIGPROF to a thread per period of CPU time that it used. A
//! process-wide timer covers threads until a sweep finds them, and all of them where no other timer can be made; the
//! handler ignores its signals on threads with a timer of their own. Owned by the `profiler` thread.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::handler::Shared;
use super::slots::{Slot, UnknownStack};
use super::timer::{Clock, IntervalTimer, Timer};
use crate::error::Error;

/// The thread list is read at least this often, and at once where the process-wide timer has hit a thread that has no
/// timer of its own: a thread that uses no CPU needs none.
const SWEEP: Duration = Duration::from_secs(1);

/// The memory map is read at most this often.
const MAPS: Duration = Duration::from_millis(500);

/// All timers of one run.
#[derive(Debug)]
pub(crate) struct ThreadTimers {
    shared: &'static Shared,
    period: Duration,
    threads: HashMap<u32, Covered>,
    _process: ProcessTimer,
    /// Why the engine is not what it could be: (engine, reason).
    pub(crate) refused: Vec<(String, String)>,
    swept: Option<Instant>,
    /// The last sweep left threads without a timer.
    some_refused: bool,
    maps_read: Option<Instant>,
    /// Length of the kernel's tick.
    tick: Duration,
    random: u64,
}

/// A thread with a timer of its own. The timer goes before the slot is free for another thread.
#[derive(Debug)]
struct Covered {
    timer: Timer,
    slot: &'static Slot,
}

/// The timer for threads that have none of their own.
#[derive(Debug)]
enum ProcessTimer {
    Posix { _timer: Timer },
    Interval { _timer: IntervalTimer },
}

impl ThreadTimers {
    /// Starts the process-wide timer and one per thread that there is.
    ///
    /// # Errors
    /// When not even `setitimer` works.
    pub(crate) fn start(shared: &'static Shared, period: Duration) -> Result<Self, Error> {
        let mut refused = Vec::new();
        let process = match Timer::start(Clock::Process, shared.process_marker(), period, period) {
            Ok(timer) => ProcessTimer::Posix { _timer: timer },
            Err(error) => {
                refused.push(("process_timer".to_owned(), format!("timer_create: {error}")));
                shared.interval_timer.store(true, Ordering::Relaxed);
                let timer = IntervalTimer::start(period).map_err(|why| {
                    Error::environment("setitimer(ITIMER_PROF)", why, "allow this process to set timers")
                })?;
                ProcessTimer::Interval { _timer: timer }
            }
        };
        let mut timers = Self {
            shared,
            period,
            threads: HashMap::new(),
            _process: process,
            refused,
            swept: None,
            some_refused: false,
            maps_read: None,
            tick: kernel_tick(),
            random: seed(),
        };
        timers.sweep(Instant::now());
        Ok(timers)
    }

    /// The name of what takes the samples: `timer` once any thread has its own.
    pub(crate) fn name(&self) -> &'static str {
        match self._process {
            _ if !self.threads.is_empty() => "timer",
            ProcessTimer::Posix { .. } => "process_timer",
            ProcessTimer::Interval { .. } => "setitimer",
        }
    }

    /// Finds threads that came and went, where it is time to look. Cheap where nothing happened.
    pub(crate) fn tick(&mut self, now: Instant) {
        let uncovered = self.shared.uncovered_seen.swap(false, Ordering::Relaxed);
        let due = self.swept.is_none_or(|swept| now - swept >= SWEEP);
        // Where a timer was refused, the next try has time until the next sweep.
        if due || (uncovered && !self.some_refused) {
            self.sweep(now);
        }
        if self.maps_read.is_none_or(|read| now - read >= MAPS) {
            self.learn_stacks(now);
        }
    }

    fn sweep(&mut self, now: Instant) {
        self.swept = Some(now);
        self.some_refused = false;
        let tids = match thread_ids() {
            Ok(tids) => tids,
            Err(error) => return self.refuse(format!("/proc/self/task: {error}")),
        };
        // A timer outlives its thread, and the thread's id may have gone to another one since.
        self.threads.retain(|tid, covered| {
            let alive = tids.binary_search(tid).is_ok() && covered.timer.is_alive();
            if !alive {
                covered.slot.free();
            }
            alive
        });
        for tid in tids {
            if !self.threads.contains_key(&tid) {
                self.cover(tid);
            }
        }
    }

    fn cover(&mut self, tid: u32) {
        let Some(slot) = self.shared.slots.insert(tid) else {
            self.some_refused = true;
            return;
        };
        let first = self.first_expiry();
        match Timer::start(Clock::Thread(tid), std::ptr::from_ref(slot) as usize, first, self.period) {
            Ok(timer) => {
                self.threads.insert(tid, Covered { timer, slot });
            }
            Err(error) => {
                slot.free();
                self.some_refused = true;
                // The thread has ended meanwhile: EINVAL (timer_create(2)). Anything else is worth saying.
                if error.raw_os_error() != Some(libc::EINVAL) {
                    self.refuse(format!("timer_create: {error}"));
                }
            }
        }
    }

    /// Says once why threads are without a timer of their own.
    fn refuse(&mut self, why: String) {
        if !self.refused.iter().any(|(engine, _)| engine == "timer") {
            tracing::warn!(why, "threads without a timer of their own are sampled by the process-wide one");
            self.refused.push(("timer".to_owned(), why));
        }
    }

    /// Random over one period, so that threads that live shorter than a period, and work in step with it, count in
    /// proportion to the CPU time that they use; and half a tick early, for this reason: the kernel looks at CPU timers
    /// in its tick only (Linux, kernel/time/posix-cpu-timers.c, `run_posix_cpu_timers`), so an expiry since the last
    /// tick of a thread's life is never seen, which costs half a tick of samples on average.
    fn first_expiry(&mut self) -> Duration {
        // SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let phase = Duration::from_nanos(mixed % (self.period.as_nanos() as u64));
        phase.saturating_sub(self.tick / 2).max(Duration::from_nanos(1))
    }

    /// Answers the handlers that asked where the stacks of their threads end.
    fn learn_stacks(&mut self, now: Instant) {
        let slots = self.threads.values().map(|covered| covered.slot);
        let unknown: Vec<_> = slots.filter_map(|slot| Some((slot, slot.unknown_stack()?))).collect();
        if unknown.is_empty() {
            return;
        }
        self.maps_read = Some(now);
        let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
        for (slot, asked) in unknown {
            if let Some(stack) = maps.lines().find_map(|line| stack_in(line, asked)) {
                slot.set_stack(&stack);
            }
        }
    }
}

impl Drop for ThreadTimers {
    fn drop(&mut self) {
        for (_, Covered { timer, slot }) in self.threads.drain() {
            drop(timer);
            slot.free();
        }
        self.shared.interval_timer.store(false, Ordering::Relaxed);
    }
}

/// The thread's own stack, if this line of the memory map holds it.
///
/// A mapping is taken for a stack that stays as long as its thread only if it is the one the kernel made for the main
/// thread, or if the thread's control block is in it too, which the C library puts at the upper end of the stack that
/// it makes for a thread. A coroutine's stack, which may go away under its thread, is neither.
fn stack_in(line: &str, asked: UnknownStack) -> Option<Range<u64>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mapping = start..end;
    if !mapping.contains(&asked.sp) || !rest.starts_with("rw") {
        return None;
    }
    let own = asked.sp < asked.thread_pointer && mapping.contains(&asked.thread_pointer);
    match rest.ends_with("[stack]") {
        true => Some(mapping),
        false if own => Some(start..asked.thread_pointer),
        false => None,
    }
}

/// The ids of this process's threads, sorted.
fn thread_ids() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc/self/task")?;
    let mut tids: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    tids.sort_unstable();
    Ok(tids)
}

/// The length of the kernel's tick, which is the resolution of its coarse clock (clock_getres(2)).
fn kernel_tick() -> Duration {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_getres(2) writes to a structure that is valid for the call.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    Duration::new(0, u32::try_from(tick.tv_nsec).unwrap_or(0))
}

/// Something that differs from run to run.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only a mapping that surely is the thread's own stack is read directly.
    #[test]
    fn only_own_stacks_are_read_directly() {
        let find = |line: &str| stack_in(line, UnknownStack { sp: 0x7000, thread_pointer: 0x8f00 });
        assert_eq!(find("6000-9000 rw-p 00000000 00:00 0 "), Some(0x6000..0x8f00));
        assert_eq!(find("6000-8000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(find("6000-8000 rw-p 00000000 00:00 0    [stack]"), Some(0x6000..0x8000));
        assert_eq!(find("6000-9000 r--p 00000000 00:00 0 "), None);
        assert_eq!(find("1000-2000 rw-p 00000000 00:00 0 "), None);
        assert_eq!((find("nonsense"), find("")), (None, None));
    }

    /// Check that the thread list holds the calling thread.
    #[test]
    fn the_thread_list_holds_this_thread() {
        // SAFETY: gettid(2) has no argument and cannot fail.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        assert!(thread_ids().unwrap().binary_search(&tid).is_ok());
    }
}
