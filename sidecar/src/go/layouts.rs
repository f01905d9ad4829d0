//! Where Go's runtime keeps what is read from outside, by version: offsets in `g`, in the buckets of profiles, names of wait reasons. What the eBPF
//! programs get of it comes from here, too ([`super::offsets`]).
//!
//! Pure tables: no I/O. Each number is compared with the DWARF of a program built by that version (`sidecar/tests/runtime/layouts.rs`). They are the same
//! on amd64 and arm64. A version that is not here is refused by whoever asks, never guessed.

pub mod figures;
mod reasons;

use reasons::{WAIT_21, WAIT_22, WAIT_23, WAIT_24, WAIT_25, WAIT_26};

/// The oldest minor version of Go 1 in the table.
pub const OLDEST: u32 = 21;
/// The newest one.
pub const NEWEST: u32 = 27;

/// Offsets of one version of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// `runtime.memRecordCycle`, four of which make a `memRecord`: `active`, then `future`.
    pub cycle: Cycle,
    /// `runtime.g`.
    pub g: G,
    /// `runtime.m`: `curg`.
    pub m_curg: usize,
    /// `runtime.mstats`: `last_gc_unix`, from which [`figures::collections`] counts.
    pub last_gc_unix: usize,
    /// `runtime.ticks`.
    pub ticks: Ticks,
    /// `runtime.waitReasonStrings`, by `g.waitreason`.
    pub wait_reasons: &'static [&'static str],
    /// How `g.labels` points to labels.
    pub labels: Labels,
}

/// The header of `runtime.bucket` (mprof.go; the same from 1.21 to 1.27), behind which its stack stands, then its record.
pub mod bucket {
    /// `*bucket`: the next one of the same type.
    pub const ALL_NEXT: usize = 8;
    /// `bucketType`: see [`MEMORY`], [`BLOCK`], [`MUTEX`].
    pub const TYPE: usize = 16;
    /// `uintptr`: size of an object, of the heap's.
    pub const SIZE: usize = 32;
    /// `uintptr`: length of the stack.
    pub const DEPTH: usize = 40;
    /// Length of the header: `unsafe.Sizeof(bucket{})`.
    pub const HEADER: usize = 48;
    /// `memProfile`.
    pub const MEMORY: u64 = 1;
    /// `blockProfile`.
    pub const BLOCK: u64 = 2;
    /// `mutexProfile`.
    pub const MUTEX: u64 = 3;
    /// `maxProfStackDepth`: no stack is deeper (1.23 and newer; `maxStack`, 32, before).
    pub const DEPTH_LIMIT: u64 = 1024;
    /// Size of a `blockRecord`: `count` (`float64`), then `cycles` (`int64`).
    pub const BLOCK_RECORD: usize = 16;
}

/// `runtime.memRecordCycle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycle {
    /// `allocs`, `frees`, `alloc_bytes`, `free_bytes`.
    Counted,
    /// `allocs`, `frees` (1.27 and newer): bytes are these times the bucket's size.
    Derived,
}

impl Cycle {
    /// Its size.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Counted => 32,
            Self::Derived => 16,
        }
    }
}

/// `runtime.g`, and what stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct G {
    /// `m`.
    pub m: usize,
    /// `sched.sp`; `sched.pc` stands behind it.
    pub sched: usize,
    /// `sched.lr`.
    pub lr: usize,
    /// `sched.bp`.
    pub bp: usize,
    /// `syscallsp`; `syscallpc` stands behind it.
    pub syscall: usize,
    /// `atomicstatus`, 4 bytes.
    pub status: usize,
    /// `goid`.
    pub id: usize,
    /// `waitsince`.
    pub wait_since: usize,
    /// `waitreason`, 1 byte.
    pub wait_reason: usize,
    /// `trackingSeq`, 1 byte: how often it stopped to run.
    pub stops: usize,
    /// `lockedm`: 0 is none.
    pub locked_m: usize,
    /// `parentGoid`.
    pub parent: usize,
    /// `gopc`.
    pub go_pc: usize,
    /// `startpc`.
    pub start_pc: usize,
    /// `labels`.
    pub labels: usize,
}

impl G {
    /// `stack.lo`.
    pub const STACK_LO: usize = 0;
    /// `stack.hi`.
    pub const STACK_HI: usize = 8;

    /// As much of `g` as is read.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.labels + 8
    }
}

/// `runtime.ticks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticks {
    /// `lock`, `val`.
    Rate,
    /// `lock`, `startTicks`, `startTime`, `val` (1.22 and newer).
    Start,
}

impl Ticks {
    /// Offset of `val`.
    #[must_use]
    pub const fn rate(self) -> usize {
        match self {
            Self::Rate => 8,
            Self::Start => 24,
        }
    }
}

/// How `g.labels` points to labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// `*labelMap`, which is a `map[string]string` (`hmap` of runtime/map.go).
    Map,
    /// `*labelMap`, which is a slice of pairs (1.24 and newer).
    Slice,
}

/// A pair of a slice of labels: `runtime/pprof.label`, `internal/runtime/pprof/label.Label` since 1.26.
pub mod pair {
    /// `string`: its address, then its length.
    pub const KEY: usize = 0;
    /// The same.
    pub const VALUE: usize = 16;
    /// Its size.
    pub const SIZE: usize = 32;
}

/// `runtime.hmap` of strings by strings, and its buckets (runtime/map.go; the same in 1.21 to 1.23).
pub mod map {
    /// `int`: pairs in it.
    pub const COUNT: usize = 0;
    /// 1 byte; see [`SAME_SIZE`].
    pub const FLAGS: usize = 8;
    /// `B`, 1 byte: logarithm of how many buckets there are.
    pub const LOG: usize = 9;
    /// The buckets, side by side.
    pub const BUCKETS: usize = 16;
    /// Those from which pairs are moved, while it grows.
    pub const OLD_BUCKETS: usize = 24;
    /// As much of it as is read.
    pub const LENGTH: usize = 32;
    /// `sameSizeGrow`, of its flags: there are as many old buckets as new ones, not half as many.
    pub const SAME_SIZE: u8 = 8;

    /// `bucketCnt`, `abi.MapBucketCount`: places of a bucket.
    pub const PLACES: usize = 8;
    /// `minTopHash`: the first of the bytes of a bucket of which one that is a key's is no less.
    pub const LEAST_TOP: u8 = 5;
    /// Keys of a bucket.
    pub const KEYS: usize = 8;
    /// Its values.
    pub const VALUES: usize = 136;
    /// The bucket that it overflows into.
    pub const OVERFLOW: usize = 264;
    /// Its size.
    pub const BUCKET: usize = 272;
}

/// States of `g.atomicstatus` (runtime2.go), without the bit [`status::SCAN`].
pub mod status {
    /// Just allocated.
    pub const IDLE: u32 = 0;
    /// On a run queue.
    pub const RUNNABLE: u32 = 1;
    /// On a processor.
    pub const RUNNING: u32 = 2;
    /// In a system call.
    pub const SYSCALL: u32 = 3;
    /// Parked.
    pub const WAITING: u32 = 4;
    /// Unused.
    pub const DEAD: u32 = 6;
    /// Its stack is being moved.
    pub const COPYING: u32 = 8;
    /// Stopped by itself for a suspension.
    pub const PREEMPTED: u32 = 9;
    /// Parked for ever, as the garbage collector found (1.26 and newer).
    pub const LEAKED: u32 = 10;
    /// Of a thread that is not Go's (1.26 and newer).
    pub const DEAD_EXTRA: u32 = 11;
    /// Its stack is being scanned.
    pub const SCAN: u32 = 0x1000;
}

/// The layout of Go 1.`minor`, none for a version that is not in the table.
#[must_use]
pub fn of(minor: u32) -> Option<Layout> {
    Some(match minor {
        21 => Layout { ticks: Ticks::Rate, ..layout(G_21, &WAIT_21) },
        22 => layout(G_22, &WAIT_22),
        23 => layout(G_23, &WAIT_23),
        24 => with_slices(layout(G_23, &WAIT_24)),
        25 => newer(G_25, &WAIT_25),
        26 => newer(G_26, &WAIT_26),
        27 => Layout { cycle: Cycle::Derived, ..newer(G_26, &WAIT_26) },
        _ => return None,
    })
}

const fn layout(g: G, wait_reasons: &'static [&'static str]) -> Layout {
    let (cycle, ticks, labels) = (Cycle::Counted, Ticks::Start, Labels::Map);
    Layout { cycle, g, m_curg: 192, last_gc_unix: 3592, ticks, wait_reasons, labels }
}

const fn with_slices(layout: Layout) -> Layout {
    Layout { labels: Labels::Slice, ..layout }
}

const fn newer(g: G, wait_reasons: &'static [&'static str]) -> Layout {
    Layout { m_curg: 184, last_gc_unix: 3568, ..with_slices(layout(g, wait_reasons)) }
}

const G_21: G = G {
    m: 48,
    sched: 56,
    lr: 96,
    bp: 104,
    syscall: 112,
    status: 144,
    id: 152,
    wait_since: 168,
    wait_reason: 176,
    stops: 188,
    locked_m: 208,
    parent: 272,
    go_pc: 280,
    start_pc: 296,
    labels: 344,
};

const G_22: G = G { stops: 191, ..G_21 };

const G_23: G = G {
    status: 152,
    id: 160,
    wait_since: 176,
    wait_reason: 184,
    stops: 199,
    locked_m: 216,
    parent: 280,
    go_pc: 288,
    start_pc: 304,
    labels: 352,
    ..G_21
};

const G_25: G = G { lr: 88, bp: 96, syscall: 104, ..G_22 };

const G_26: G = G { parent: 280, go_pc: 288, start_pc: 304, labels: 352, ..G_25 };
