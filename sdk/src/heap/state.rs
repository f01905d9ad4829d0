//! What hooks and profiler share: the tables, the unwinder in force, the counts.
//!
//! In: what the hooks are told. Out: entries in the tables; every sampled block is either recorded or counted as lost, by
//! cause. One per process, made by the first start and never freed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::{Block, Span};
use super::calls::Calls;
use super::capture::{Captured, Work};
use super::control::LgInterval;
use super::eras::Eras;
use super::frames::AllocatorFrames;
use super::inherited::Mark;
use super::live::{BLOCK_BYTES, Live};
use super::scratches::{InForce, Scratches};
use super::sites::{BEYOND, Sites};
use super::weight::Weight;
use crate::error::Error;
use crate::unwind::arch::Registers;
use crate::unwind::modules::Modules;
use crate::unwind::walk::Snapshot;

/// Most bytes of live blocks.
const LIVE_BYTES: usize = 64 << 20;
/// Most bytes of sites.
const SITE_BYTES: usize = 32 << 20;

/// The state of the heap profiler.
#[derive(Debug)]
pub(super) struct State {
    /// Zero in a forked child.
    pub(super) mark: Mark,
    recording: AtomicBool,
    /// How many profilers were started on it.
    starts: AtomicU32,
    lg_interval: LgInterval,
    /// With the modules in force.
    scratches: Scratches,
    /// Never locked by a hook.
    eras: Mutex<Eras>,
    pub(super) frames: AllocatorFrames,
    pub(super) sites: Sites,
    pub(super) live: Live,
    /// What the hooks were told, whatever came of it.
    pub(super) calls: Calls,
    pub(super) counts: Counts,
}

/// What the hooks counted beside what the live table counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Sampled blocks that were freed and are not in the table: sampled before the start, or lost.
    pub(super) unknown: AtomicU64,
    /// Sampled blocks that `start` allocated to learn from, and that were freed.
    pub(super) lessons: AtomicU64,
    /// Sampled blocks that never came to the table: no scratch.
    pub(super) no_scratch: AtomicU64,
    /// Without their stack and tags: there were too many sites.
    pub(super) beyond: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl State {
    /// A state with this unwinder in force, that records nothing yet.
    ///
    /// # Errors
    /// What jemalloc or the kernel refused.
    pub(super) fn new(snapshot: Snapshot, most_live: Option<usize>) -> Result<Self, Error> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut eras = Eras::default();
        let era = eras.enter(&snapshot.modules);
        Ok(Self {
            mark: Mark::make()?,
            recording: AtomicBool::new(false),
            starts: AtomicU32::new(0),
            lg_interval: LgInterval::find()?,
            scratches: Scratches::new(processors, InForce { snapshot, era })?,
            eras: Mutex::new(eras),
            frames: AllocatorFrames::new(),
            sites: Sites::new(SITE_BYTES),
            live: Live::new(most_live.unwrap_or(LIVE_BYTES / BLOCK_BYTES)),
            calls: Calls::default(),
            counts: Counts::default(),
        })
    }

    /// A profiler starts, for which nothing was allocated before: its number.
    pub(super) fn start_over(&self) -> u32 {
        // First the number, so that one before takes nothing of what comes.
        let number = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        self.sites.start_over();
        number
    }

    /// Whether no other profiler was started since the one of this number.
    pub(super) fn is_last(&self, number: u32) -> bool {
        self.starts.load(Ordering::Relaxed) == number
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// The interval in force, as a power of two, whoever set it.
    pub(super) fn lg(&self) -> u32 {
        self.lg_interval.now()
    }

    /// What addresses of sites are in.
    pub(super) fn eras(&self) -> MutexGuard<'_, Eras> {
        self.eras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another unwinder in force.
    pub(super) fn replace(&self, snapshot: Snapshot) {
        let era = self.eras().enter(&snapshot.modules);
        self.scratches.replace(InForce { snapshot, era });
    }

    /// Puts what is loaded now in force, where that has changed.
    pub(super) fn refresh_modules(&self) {
        let known = self.scratches.modules();
        if Modules::changes_now() != known.changes && !self.scratches.is_full() {
            self.replace(Snapshot::take(&known));
        }
        self.scratches.free_replaced();
    }

    /// A block was sampled; `registers` are the hook's.
    pub(super) fn sampled(&self, registers: &Registers, address: u64, size: u64) {
        // For each sample, whether it is recorded or not: the next one is drawn now, with the interval that is in force now.
        let (records, lg) = (self.is_recording(), self.lg_interval.of_sample());
        if !records && !self.frames.is_learning() {
            return;
        }
        if records {
            self.calls.count_sampled(address);
        }
        let Some(mut held) = self.scratches.hold(registers.sp) else {
            if records {
                count(&self.counts.no_scratch);
            }
            return;
        };
        let (Work { stack, tools }, InForce { snapshot, era }) = held.parts();
        // All that takes room happens on the scratch's stack.
        stack.run(|| {
            let captured = tools.capture(registers, (snapshot, *era), &self.frames, address);
            if let Captured::Site(words, span) = captured
                && records
            {
                self.enter(words, span, address, (size, lg));
            }
        });
    }

    /// Enters a sample of `size` usable bytes into the tables, drawn as one of `2^lg` bytes.
    fn enter(&self, words: &[u64], span: Span, address: u64, (size, lg): (u64, u32)) {
        let site = self.sites.enter(words, span, Weight::of(size, lg));
        if site == BEYOND {
            count(&self.counts.beyond);
        }
        let (trace_id, span_id) = span;
        // The table counts what it refuses.
        let _counted = self.live.insert(address, Block::new(site, trace_id, span_id, size, lg));
    }

    /// Gives up all that lives, for it is not known any more what of it does; how many samples that were.
    pub(super) fn give_up_live(&self) -> usize {
        self.live.clear()
    }

    /// A sampled block of `size` usable bytes is being freed.
    pub(super) fn freed(&self, address: u64, size: u64) {
        self.calls.count_freed(address);
        if self.live.remove(address, size).is_some() {
            return;
        }
        let is_lesson = self.frames.ends_lesson(address);
        count(if is_lesson { &self.counts.lessons } else { &self.counts.unknown });
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::NO_SPAN;
    use super::*;

    /// Check that a start leaves nothing of what was allocated before, and takes the word from the profiler that was started before it.
    #[test]
    fn the_last_start_is_in_force() {
        let state = State::new(Snapshot::take(&Modules::default()), None).unwrap();
        let first = state.start_over();
        state.sites.enter(&[1, 2], NO_SPAN, Weight::of(100, 0));
        assert!(state.is_last(first));
        let second = state.start_over();
        assert_eq!((state.is_last(first), state.is_last(second), state.sites.allocated()), (false, true, vec![]));
    }
}
