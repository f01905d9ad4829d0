//! Where goroutines waited for each other: the runtime's block and mutex profiles.
//!
//! In: `runtime.bbuckets` or `xbuckets`, the rate and the speed of the processor's clock. Out: [`Contention`]: events and nanoseconds for each
//! stack, already unsampled by the runtime when it counts them; and a state where it is off, as it is by default.
//!
//! Sources: runtime/mprof.go (`saveBlockEventStack`, `blockProfileInternal`), runtime/pprof/pprof.go (`printCountCycleProfile`).

pub use profiler_proto::model::Contention as Kind;

use crate::go::layouts::{Layout, bucket};
use crate::target::Fault;

use super::buckets::{LOGICAL, List, Walk};
use super::memory::{Memory, word_at};
use super::ticks;
use super::variables::{Code, Variables};

/// What a person is told where a profile is off.
#[must_use]
pub fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Block => {
            "block profiling is off: `runtime.SetBlockProfileRate(10_000)` in main turns it on, one event each 10 µs of waiting"
        }
        Kind::Mutex => {
            "mutex profiling is off: `runtime.SetMutexProfileFraction(100)` in main turns it on, one event in 100"
        }
    }
}

/// What is known of contention.
#[derive(Debug, Clone, PartialEq)]
pub struct Contention {
    /// Which profile.
    pub kind: Kind,
    /// `blockprofilerate` (ticks) or `mutexprofilerate` (events): 0 is off.
    pub rate: u64,
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
    pub stack: Vec<u64>,
    /// Events.
    pub count: i64,
    /// Nanoseconds waited.
    pub delay_nanos: i64,
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
    (kind, most): (Kind, usize),
) -> Result<Option<Contention>, Fault> {
    let (Some(heads), Some(rates)) = (variables.buckets, variables.block_rate) else { return Ok(None) };
    let (typ, head, rate) = match kind {
        Kind::Block => (bucket::BLOCK, heads.wrapping_add(8), rates),
        Kind::Mutex => (bucket::MUTEX, heads.wrapping_add(16), rates.wrapping_add(8)),
    };
    let Some(rate) = memory.word(rate)? else { return Ok(None) };
    let mut records = Vec::new();
    let list = List { head, kind: typ, record: bucket::BLOCK_RECORD, most };
    let walk = list.walk(memory, code, |bucket| {
        let stack = bucket.stack.strip_prefix(&[LOGICAL]).unwrap_or(&bucket.stack).to_vec();
        // A count below one event is shown as one, as Go does.
        let count = (f64::from_bits(word_at(&bucket.record, 0)) as i64).max(1);
        let cycles = word_at(&bucket.record, 8) as i64;
        records.push(Record { at: bucket.at, stack, count, delay_nanos: cycles });
    })?;
    if !records.is_empty() {
        let speed = ticks::per_second(memory, code.machine(), variables.ticks, layout.ticks)? as f64 / 1e9;
        for record in &mut records {
            record.delay_nanos = (record.delay_nanos.max(0) as f64 / speed) as i64;
        }
    }
    Ok(Some(Contention { kind, rate, records, walk }))
}
