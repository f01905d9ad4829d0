//! What the signal handler asks of the thread that it runs on.
//!
//! In: the thread's record, as the thread left it at any instruction. Out: tags and span of a sample, and what the sampler
//! notes of a thread. Callable from a signal handler: nothing here allocates, locks or makes a system call.

use super::Record;
use super::thread::Thread;

/// What the handler reads of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Current {
    /// Id of the tag set in force; 0 for none.
    pub(crate) tag_set: u32,
    /// Trace id as two big-endian halves; zero for none.
    pub(crate) trace_id: [u64; 2],
    /// Span id, big-endian; zero for none.
    pub(crate) span_id: u64,
}

/// What the calling thread is working for, for its signal handler.
pub(crate) fn current_of_signal() -> Current {
    Thread::of_signal(Thread::record).map(Current::from).unwrap_or_default()
}

/// The generation of the sampler in which the calling thread's own timer fired on it; `None` where that is not known.
/// For its signal handler.
pub(crate) fn covered() -> Option<u32> {
    Thread::of_signal(|thread| thread.covered().get())
}

/// The calling thread's own timer has fired on it in `generation`. For its signal handler.
pub(crate) fn mark_covered(generation: u32) {
    Thread::of_signal(|thread| thread.covered().set(generation));
}

/// Does `work`, unless it is what called this on this thread; where the thread cannot be told, too. For a signal handler that
/// calls another one, which may call it back.
pub(crate) fn once_at_a_time(work: impl FnOnce()) {
    let mut work = Some(work);
    let known = Thread::of_signal(|thread| work.take().map(|work| thread.once_at_a_time(work)));
    if let (None, Some(work)) = (known, work) {
        work();
    }
}

impl From<Record> for Current {
    fn from(record: Record) -> Self {
        let (trace_high, trace_low) = record.trace_id.split_at(8);
        Self {
            tag_set: record.tag_set,
            trace_id: [big_endian(trace_high), big_endian(trace_low)],
            span_id: u64::from_be_bytes(record.span_id),
        }
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
