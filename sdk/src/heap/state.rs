//! What hooks and profiler share: the tables, the unwinder in force, the counts.
//!
//! In: what the hooks are told. Out: entries in the tables; every sampled block is either recorded or counted as lost, by
//! cause. One per process, made by the first start and never freed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::capture::{self, Captured, Work};
use super::eras::Eras;
use super::frames::AllocatorFrames;
use super::inherited::Mark;
use super::live::{Block, Live, Refused};
use super::sites::{BEYOND, Sites};
use super::weight::Weight;
use crate::cpu::pool::Pool;
use crate::unwind::arch::Registers;
use crate::unwind::walk::Snapshot;

/// Most bytes of live blocks, of which each takes 52 and a quarter for growth.
const LIVE_BYTES: usize = 64 << 20;
const BLOCK_BYTES: usize = 64;
/// Most bytes of sites.
const SITE_BYTES: usize = 32 << 20;

/// The state of the heap profiler.
#[derive(Debug)]
pub(super) struct State {
    /// Zero in a forked child.
    pub(super) mark: Mark,
    pid: u32,
    recording: AtomicBool,
    /// The interval in force, as a power of two.
    lg: AtomicU32,
    pool: Pool<Work>,
    /// With the number of its era.
    snapshot: RwLock<(Arc<Snapshot>, u64)>,
    /// Never locked by a hook.
    eras: Mutex<Eras>,
    pub(super) frames: AllocatorFrames,
    pub(super) sites: Sites,
    pub(super) live: Live,
    pub(super) counts: Counts,
}

/// What the hooks counted. Invariant, while no hook runs: `sampled` is `recorded` and the causes of loss together; of what was
/// recorded, `freed` are not live any more.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Blocks that jemalloc sampled while samples were recorded.
    pub(super) sampled: AtomicU64,
    /// Blocks that went into the live table.
    pub(super) recorded: AtomicU64,
    /// Blocks that were taken out of it.
    pub(super) freed: AtomicU64,
    /// Sampled blocks that were freed and are not in the table: sampled before the start, or lost.
    pub(super) unknown: AtomicU64,
    /// Lost: no scratch.
    pub(super) no_scratch: AtomicU64,
    /// What lives is less than it should be by these: the table was full, or could not grow.
    pub(super) table_full: AtomicU64,
    pub(super) no_memory: AtomicU64,
    /// Recorded without their stack and tags: there were too many sites.
    pub(super) beyond: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl State {
    /// A state with this unwinder in force, that records nothing yet.
    pub(super) fn new(snapshot: Arc<Snapshot>, most_live: Option<usize>, mark: Mark) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut eras = Eras::default();
        let era = eras.enter(&snapshot.modules);
        Self {
            mark,
            pid: std::process::id(),
            recording: AtomicBool::new(false),
            lg: AtomicU32::new(0),
            pool: capture::pool(processors),
            snapshot: RwLock::new((snapshot, era)),
            eras: Mutex::new(eras),
            frames: AllocatorFrames::new(),
            sites: Sites::new(SITE_BYTES),
            live: Live::new(most_live.unwrap_or(LIVE_BYTES / BLOCK_BYTES)),
            counts: Counts::default(),
        }
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    pub(super) fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// The interval in force, as a power of two.
    pub(super) fn lg(&self) -> u32 {
        self.lg.load(Ordering::Relaxed)
    }

    pub(super) fn set_lg(&self, lg: u32) {
        self.lg.store(lg, Ordering::Relaxed);
    }

    /// The unwinder in force, and the number of its era.
    pub(super) fn snapshot(&self) -> (Arc<Snapshot>, u64) {
        let in_force = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&in_force.0), in_force.1)
    }

    /// What addresses of sites are in.
    pub(super) fn eras(&self) -> MutexGuard<'_, Eras> {
        self.eras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another unwinder in force; the one before, which the caller keeps for as long as a hook may hold it: what a
    /// hook frees must not be a block that jemalloc sampled.
    pub(super) fn replace(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let era = self.eras().enter(&snapshot.modules);
        let in_force = &mut *self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        let (before, _) = std::mem::replace(in_force, (snapshot, era));
        before
    }

    /// A block was sampled; `registers` are the hook's.
    pub(super) fn sampled(&self, registers: &Registers, address: u64, size: u64) {
        if !self.is_recording() {
            return;
        }
        let Some(mut held) = capture::hold(&self.pool, registers.sp) else {
            count(&self.counts.sampled);
            return count(&self.counts.no_scratch);
        };
        let (snapshot, era) = self.snapshot();
        let captured = held.work().capture(registers, (&snapshot, era), &self.frames, self.pid, address);
        let Captured::Site(words, span) = captured else { return };
        let lg = self.lg();
        let site = self.sites.enter(words, span, Weight::of(size, lg));
        count(&self.counts.sampled);
        if site == BEYOND {
            count(&self.counts.beyond);
        }
        let (trace_id, span_id) = span;
        count(match self.live.insert(address, Block::new(site, trace_id, span_id, size, lg)) {
            Ok(()) => &self.counts.recorded,
            Err(Refused::Full) => &self.counts.table_full,
            Err(Refused::NoMemory) => &self.counts.no_memory,
        });
    }

    /// A sampled block is being freed.
    pub(super) fn freed(&self, address: u64) {
        if self.live.remove(address).is_some() {
            count(&self.counts.freed);
        } else if !self.frames.ends_lesson(address) {
            count(&self.counts.unknown);
        }
    }
}
