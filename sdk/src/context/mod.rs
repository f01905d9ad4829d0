//! What the current thread is working for: tags, and later spans, in a record that the signal handler reads.
//!
//! In: scopes entered and left by the thread itself ([`tags`]). Out: [`current_of_signal`], called by the handler on the same
//! thread at any instruction. Each thread owns two records: the one in force and a spare. A change fills the spare and
//! then makes it the one in force by a single store, so the handler sees the old record or the new one, never a mix.
//! Nothing that a handler calls here allocates, locks or makes a system call; where the records are: [`thread`].

pub(crate) mod tags;
pub(crate) mod thread;
#[cfg(target_arch = "aarch64")]
mod tls_aarch64;
#[cfg(target_arch = "x86_64")]
mod tls_x86_64;

use self::thread::Thread;

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

/// A thread's record, laid out as the OpenTelemetry thread context record, so that profilers outside can read it once it
/// is published; our tag-set id stands behind its attributes.
///
/// Source: OTEP 4947, "Thread Context: Sharing Thread-Level Information with the OpenTelemetry eBPF Profiler".
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Record {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    /// 1: the ids are valid.
    valid: u8,
    trace_flags: u8,
    /// Bytes of attributes between here and the tag set; none yet.
    attrs_data_size: u16,
    tag_set: u32,
}

const _: () = {
    assert!(size_of::<Record>() == 32);
    assert!(std::mem::offset_of!(Record, span_id) == 16);
    assert!(std::mem::offset_of!(Record, valid) == 24);
    assert!(std::mem::offset_of!(Record, trace_flags) == 25);
    assert!(std::mem::offset_of!(Record, attrs_data_size) == 26);
    assert!(std::mem::offset_of!(Record, tag_set) == 28);
};

impl Record {
    const EMPTY: Self =
        Self { trace_id: [0; 16], span_id: [0; 8], valid: 0, trace_flags: 0, attrs_data_size: 0, tag_set: 0 };
}

/// What the calling thread is working for, for its signal handler.
pub(crate) fn current_of_signal() -> Current {
    Thread::of_signal(Thread::record).map(Current::from).unwrap_or_default()
}

/// The tag set in force on the calling thread. Not callable from a signal handler.
pub(crate) fn tag_set() -> u32 {
    Thread::with_here(|thread| thread.record().tag_set)
}

/// Puts `tag_set` in force on the calling thread and returns the one that was. Not callable from a signal handler.
pub(crate) fn replace_tag_set(tag_set: u32) -> u32 {
    Thread::with_here(|thread| {
        let old = thread.record();
        thread.publish(Record { tag_set, ..old });
        old.tag_set
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a change is seen by this thread and by no other.
    #[test]
    fn a_change_belongs_to_its_thread() {
        assert_eq!(replace_tag_set(5), 0);
        assert_eq!((tag_set(), current_of_signal().tag_set), (5, 5));
        assert_eq!(std::thread::spawn(|| (tag_set(), current_of_signal().tag_set)).join().unwrap(), (0, 0));
        assert_eq!(replace_tag_set(0), 5);
        assert_eq!(current_of_signal(), Current::default());
    }
}
