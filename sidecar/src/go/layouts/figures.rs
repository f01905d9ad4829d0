//! Where Go's runtime keeps the figures of its heap, its collections and its processors. The same from 1.21 to 1.27, on amd64 and arm64; compared with
//! DWARF in `sidecar/tests/runtime/layouts.rs`. Pure tables.

/// `runtime.gcController` (mgcpacer.go, `gcControllerState`).
pub mod pacer {
    /// `gcPercent`, 4 bytes: `GOGC`; below 0 it is off.
    pub const PERCENT: usize = 0;
    /// `memoryLimit`: `GOMEMLIMIT`; `math.MaxInt64` where there is none.
    pub const LIMIT: usize = 8;
    /// `gcPercentHeapGoal`.
    pub const GOAL: usize = 72;
    /// `sweepDistMinTrigger`.
    pub const SWEEP: usize = 80;
    /// `triggered`: at which heap the collection under way began; all ones between two of them.
    pub const TRIGGERED: usize = 88;
    /// `lastHeapGoal`.
    pub const LAST_GOAL: usize = 96;
    /// `heapLive`.
    pub const LIVE: usize = 104;
    /// `heapMarked`: what the last collection found in use.
    pub const MARKED: usize = 152;
    /// `heapFree`: free, and not given back.
    pub const FREE: usize = 288;
    /// `totalAlloc`.
    pub const ALLOCATED: usize = 296;
    /// `totalFree`.
    pub const FREED: usize = 304;
    /// `mappedReady`: what is mapped and not given back, of the heap and all else.
    pub const MAPPED: usize = 312;
    /// As much of it as is read.
    pub const LENGTH: usize = MAPPED + 8;
}

/// `runtime.memstats` (mstats.go, `mstats`) from its `last_gc_unix` on, which is at another place of it by version.
pub mod collections {
    /// `last_gc_unix`.
    pub const LAST: usize = 0;
    /// `pause_total_ns`.
    pub const PAUSED: usize = 8;
    /// `pause_ns`, of the last [`KEPT`] collections, in a circle.
    pub const PAUSES: usize = 16;
    /// How many pauses are kept.
    pub const KEPT: usize = 256;
    /// `numgc`, 4 bytes.
    pub const COUNT: usize = 4112;
    /// `last_gc_nanotime`.
    pub const LAST_NANOTIME: usize = 4128;
    /// As much of it as is read.
    pub const LENGTH: usize = COUNT + 8;
}
