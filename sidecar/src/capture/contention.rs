//! Where goroutines waited for each other: the runtime's block and mutex profiles.
//!
//! In: `runtime.bbuckets` or `xbuckets`, the rate and the speed of the processor's clock. Out: [`Contention`]: events and ticks for each
//! stack, already unsampled by the runtime when it counts them; and a state where it is off, as it is by default. Ticks become nanoseconds last, for
//! differences are taken of what the runtime counted, and one speed holds for a process as long as it is captured.
//!
//! Sources: runtime/mprof.go (`saveBlockEventStack`, `blockProfileInternal`), runtime/pprof/pprof.go (`printCountCycleProfile`).

use std::sync::Arc;

pub use profiler_proto::model::Contention as Kind;

use crate::go::layouts::{Layout, bucket};
use crate::target::Fault;

use super::buckets::{List, Walk};
use super::memory::{Memory, word_at};
use super::ticks::Speed;
use super::variables::{Code, Variables};
use super::work::Work;

/// Most events that one stack can have: beyond it, a `float64` counts no single one.
const EVENTS: f64 = (1_u64 << 53) as f64;

/// What is known of contention.
#[derive(Debug, Clone, PartialEq)]
pub struct Contention {
    /// Which profile.
    pub kind: Kind,
    /// `blockprofilerate` (ticks) or `mutexprofilerate` (events): 0 is off.
    pub rate: u64,
    /// Ticks in a second, which make of [`Record::ticks`] time.
    pub ticks_per_second: u64,
    /// A record for each stack, also what was counted before it was turned off.
    pub records: Vec<Record>,
    /// What became of the runtime's list.
    pub walk: Walk,
}

/// The figures of one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which one it is: the address of its bucket, the same as long as the program runs.
    pub at: u64,
    /// Return addresses.
    pub stack: Arc<[u64]>,
    /// Events.
    pub count: i64,
    /// Waited, in ticks of the runtime's clock.
    pub ticks: i64,
}

impl Contention {
    /// Why there is nothing, for people, with what to do: off, or on and nobody waited.
    #[must_use]
    pub fn state(&self) -> Option<&'static str> {
        match self.kind {
            _ if self.rate != 0 && self.records.is_empty() && self.walk.is_whole() => {
                Some("it is on, and nobody has waited yet")
            }
            _ if self.rate != 0 => None,
            Kind::Block => Some(
                "block profiling is off: `runtime.SetBlockProfileRate(10_000)` in main turns it on, one event each 10 µs of waiting",
            ),
            Kind::Mutex => Some(
                "mutex profiling is off: `runtime.SetMutexProfileFraction(10)` in main turns it on, one event in 10",
            ),
        }
    }

    /// Nanoseconds waited.
    #[must_use]
    pub fn delay_nanos(&self, record: &Record) -> i64 {
        (record.ticks as f64 / (self.ticks_per_second.max(1) as f64 / 1e9)) as i64
    }
}

/// Reads the records of one profile, `most` of them at most; none where the variables were not found.
///
/// # Errors
/// When the process is gone, or does not let us.
pub fn contention<M: Memory>(
    memory: &M,
    code: &impl Code,
    variables: &Variables,
    layout: &Layout,
    (kind, most, speed): (Kind, usize, &Speed),
) -> Result<Option<Contention>, Fault> {
    let (Some(heads), Some(rates)) = (variables.buckets, variables.block_rate) else { return Ok(None) };
    let (typ, head, rate) = match kind {
        Kind::Block => (bucket::BLOCK, heads.wrapping_add(8), rates),
        Kind::Mutex => (bucket::MUTEX, heads.wrapping_add(16), rates.wrapping_add(8)),
    };
    let Some(rate) = memory.word(rate)? else { return Ok(None) };
    let mut records = Vec::new();
    let list = List { head, end: 0, kind: typ, record: bucket::BLOCK_RECORD, most };
    let walk = list.walk(memory, code, &Work::for_buckets(most), |bucket| {
        let (count, ticks) = (f64::from_bits(word_at(&bucket.record, 0)), word_at(&bucket.record, 8) as i64);
        let is_plausible = (0.0..=EVENTS).contains(&count) && ticks >= 0;
        if is_plausible {
            // A wait that counts for less than one event is shown as one, as Go does; a lock is not.
            let count = (count as i64).max(i64::from(kind == Kind::Block));
            records.push(Record { at: bucket.at, stack: bucket.stack, count, ticks });
        }
        is_plausible
    })?;
    // Where nothing was waited for it need not be known, and may have to be measured.
    let ticks_per_second =
        if records.is_empty() { 0 } else { speed.ticks(memory, code.machine(), variables.ticks, layout.ticks)? };
    Ok(Some(Contention { kind, rate, ticks_per_second, records, walk }))
}
