//! What the allocator says of its memory.
//!
//! In: jemalloc's statistics, made new by the call. Out: figures that explain what lies between the sampled heap and the
//! process's resident memory.

use super::jemalloc;
use crate::stats::AllocatorStats;

/// The figures now; `None` where jemalloc was built without them. Takes jemalloc's locks one by one, for up to some hundred
/// microseconds in all: for our own threads.
pub(super) fn now() -> Option<AllocatorStats> {
    // Any number will do: writing it has the figures made anew (jemalloc(3), `epoch`).
    jemalloc::write(c"epoch", 1_u64).ok()?;
    let figure = |name| jemalloc::read::<usize>(name).ok().map(|bytes| bytes as u64);
    Some(AllocatorStats {
        allocated: figure(c"stats.allocated")?,
        active: figure(c"stats.active")?,
        metadata: figure(c"stats.metadata")?,
        resident: figure(c"stats.resident")?,
        mapped: figure(c"stats.mapped")?,
        retained: figure(c"stats.retained")?,
    })
}
