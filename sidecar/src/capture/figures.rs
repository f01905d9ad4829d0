//! Figures of Go's runtime: its collections, its heap and what that is to become, its processors, its threads.
//!
//! In: `runtime.gcController`, `runtime.memstats`, `runtime.gomaxprocs`. Out: [`RuntimeFigures`], as `runtime/metrics` and `runtime/debug` tell them in the
//! program itself. Three reads of memory, each of some kilobytes at most. Words are written one by one while they are read: each is true, all of them
//! together are so between two collections. On the thread that captures.
//!
//! Sources: runtime/mgcpacer.go (`heapGoalInternal`, `memoryLimitHeapGoal`), runtime/mstats.go (`readGCStats_m`), runtime/metrics.go.

use crate::go::layouts::figures::{collections, pacer};
use crate::target::Fault;

use super::memory::{Memory, word_at};
use super::variables::Variables;

/// How often figures are read that do not fit each other.
const TRIES: u32 = 10;
/// `memoryLimitMinHeapGoalHeadroom` and `memoryLimitHeapGoalHeadroomPercent`: what is kept free below a limit.
const HEADROOM: u64 = 1 << 20;
const HEADROOM_PERCENT: u64 = 3;
/// Addresses that a heap can have (`heapAddrBits`, runtime/malloc.go): nobody has more in use, or mapped.
const ADDRESSES: u64 = 1 << 48;
/// `minRunway`: the least that a heap may still grow while it is collected.
const RUNWAY: u64 = 64 << 10;

/// What a runtime counts of itself. Bytes and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuntimeFigures {
    /// Collections that ended.
    pub collections: u64,
    /// For how long all of them stopped the program.
    pub paused: u64,
    /// For how long the last one did; none before the first.
    pub last_pause: Option<u64>,
    /// What the last collection found in use.
    pub live: u64,
    /// How large the heap may become until the next one has ended; none where nothing but a program's own request has one begin.
    pub goal: Option<u64>,
    /// Bytes of all objects that were ever allocated.
    pub allocated: u64,
    /// What the runtime has of the system's memory, without what it gave back.
    pub used: u64,
    /// `GOMEMLIMIT`; none where it is not set.
    pub limit: Option<u64>,
    /// `GOGC`; none where it is off.
    pub percent: Option<u64>,
    /// `GOMAXPROCS`.
    pub processors: u64,
    /// Threads of the process, as the kernel counts them.
    pub threads: u64,
    /// Goroutines, without the runtime's own, as `runtime.NumGoroutine` counts; none where they were not read.
    pub goroutines: Option<u64>,
}

/// Reads them, but for threads and goroutines; none where the variables were not found.
pub(super) fn figures(memory: &impl Memory, variables: &Variables) -> Result<Option<RuntimeFigures>, Fault> {
    let (Some(pacer), Some(ended), Some(processors)) = (variables.pacer, variables.collections, variables.processors)
    else {
        return Ok(None);
    };
    let mut count = [0; 4];
    let is_there = memory.fill(processors, &mut count)?;
    let Some(ends) = ends_of(memory, ended)?.filter(|_| is_there) else { return Ok(None) };
    let Some(pacer) = Pacer::read(memory, pacer)? else { return Ok(None) };
    let collected = word_at(&ends, collections::COUNT) & u64::from(u32::MAX);
    let limit = Some(pacer.limit).filter(|limit| *limit != i64::MAX as u64);
    let percent = u64::try_from(pacer.percent).ok();
    let last = collected.checked_sub(1).map(|last| last as usize % collections::KEPT);
    Ok(Some(RuntimeFigures {
        collections: collected,
        paused: word_at(&ends, collections::PAUSED),
        last_pause: last.map(|last| word_at(&ends, collections::PAUSES + 8 * last)),
        live: pacer.marked,
        goal: Some(pacer.goal()).filter(|_| limit.is_some() || percent.is_some()),
        allocated: pacer.allocated,
        used: pacer.mapped,
        limit,
        percent,
        processors: u32::from_le_bytes(count).into(),
        ..RuntimeFigures::default()
    }))
}

/// The figures of collections that ended, read until none ended meanwhile: the last pause stands at the place that their number tells, on another page.
fn ends_of(memory: &impl Memory, at: u64) -> Result<Option<Vec<u8>>, Fault> {
    let (mut ends, mut before) = (vec![0; collections::LENGTH], None);
    for _ in 0..TRIES {
        if !memory.fill(at, &mut ends)? {
            return Ok(None);
        }
        let collected = word_at(&ends, collections::COUNT);
        if before.replace(collected) == Some(collected) {
            return Ok(Some(ends));
        }
    }
    Ok(None)
}

/// What the runtime paces its collections by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pacer {
    percent: i32,
    limit: u64,
    goal: u64,
    sweep: u64,
    triggered: u64,
    marked: u64,
    free: u64,
    allocated: u64,
    /// Allocated, and not freed yet.
    in_use: u64,
    mapped: u64,
}

impl Pacer {
    /// Read until its parts fit each other, as the runtime itself does; none where they never do.
    fn read(memory: &impl Memory, at: u64) -> Result<Option<Self>, Fault> {
        for _ in 0..TRIES {
            let mut bytes = [0; pacer::LENGTH];
            if !memory.fill(at, &mut bytes)? {
                return Ok(None);
            }
            let pacer = Self::of(&bytes);
            let is_plausible = pacer.mapped.max(pacer.marked) <= ADDRESSES;
            if is_plausible && pacer.free.saturating_add(pacer.in_use) <= pacer.mapped {
                return Ok(Some(pacer));
            }
        }
        Ok(None)
    }

    fn of(bytes: &[u8]) -> Self {
        let word = |offset| word_at(bytes, offset);
        Self {
            percent: word(pacer::PERCENT) as i32,
            limit: word(pacer::LIMIT),
            goal: word(pacer::GOAL),
            sweep: word(pacer::SWEEP),
            triggered: word(pacer::TRIGGERED),
            marked: word(pacer::MARKED),
            free: word(pacer::FREE),
            allocated: word(pacer::ALLOCATED),
            in_use: word(pacer::ALLOCATED).wrapping_sub(word(pacer::FREED)),
            mapped: word(pacer::MAPPED),
        }
    }

    /// `heapGoalInternal`.
    fn goal(&self) -> u64 {
        let limited = self.goal_of_limit();
        if limited < self.goal {
            return limited;
        }
        let goal = self.goal.max(self.sweep);
        if self.triggered == u64::MAX { goal } else { goal.max(self.triggered.saturating_add(RUNWAY)) }
    }

    /// `memoryLimitHeapGoal`.
    fn goal_of_limit(&self) -> u64 {
        let others = self.mapped.saturating_sub(self.free).saturating_sub(self.in_use);
        let overage = self.mapped.saturating_sub(self.limit);
        let Some(goal) = self.limit.checked_sub(others.saturating_add(overage)).filter(|goal| *goal > 0) else {
            return self.marked;
        };
        let headroom = (goal / 100 * HEADROOM_PERCENT).max(HEADROOM);
        let below = goal.saturating_sub(headroom).max(headroom);
        below.max(self.marked)
    }
}
