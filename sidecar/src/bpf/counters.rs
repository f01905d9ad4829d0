//! What the kernel side counts, summed over processors.

use aya::maps::{MapData, PerCpuArray};
use profiler_sidecar_ebpf::Counter;

use crate::error::Error;

/// Figures since load, of ticks but for the two of events.
///
/// `seen` = `sent` + `ring_full`, but for ticks under way while they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Hit a process to be profiled.
    pub seen: u64,
    /// Became a record in the ring.
    pub sent: u64,
    /// Lost: the ring was full.
    pub ring_full: u64,
    /// Hit a process in a pid namespace below ours.
    pub foreign_pidns: u64,
    /// Hit a process that is left out.
    pub excluded: u64,
    /// Hit a kernel thread, or a process outside of our pid namespace.
    pub outside: u64,
    /// Events of processes in the ring.
    pub events: u64,
    /// Events of processes lost: the ring was full.
    pub events_lost: u64,
    /// Samples of Go processes whose `g` could not be read.
    pub no_goroutine: u64,
}

/// The map they are in.
pub(super) struct Source(pub(super) PerCpuArray<MapData, u64>);

impl Source {
    pub(super) fn read(&self) -> Result<Counters, Error> {
        // `Seen` first: ticks that come meanwhile then make the others larger, not smaller.
        Ok(Counters {
            seen: self.sum(Counter::Seen)?,
            sent: self.sum(Counter::Sent)?,
            ring_full: self.sum(Counter::RingFull)?,
            foreign_pidns: self.sum(Counter::ForeignPidns)?,
            excluded: self.sum(Counter::Excluded)?,
            outside: self.sum(Counter::Outside)?,
            events: self.sum(Counter::Events)?,
            events_lost: self.sum(Counter::EventsLost)?,
            no_goroutine: self.sum(Counter::NoGoroutine)?,
        })
    }

    fn sum(&self, of: Counter) -> Result<u64, Error> {
        let values = self.0.get(&(of as u32), 0).map_err(|error| {
            Error::new("the counters of the kernel side", error.to_string(), "report this: the map is ours")
        })?;
        Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
    }
}
