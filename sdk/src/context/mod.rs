//! What the current thread is working for: tags, and later spans, in a record that the signal handler reads.
//!
//! In: scopes entered and left by the thread itself ([`tags`]). Out: [`current`], called by the handler on the same
//! thread at any instruction. Each thread owns two records: the one in force and a spare. A change fills the spare and
//! then makes it the one in force by a single store, so the handler sees the old record or the new one, never a mix.
//! Nothing here allocates, locks or makes a system call.

pub(crate) mod tags;

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{Ordering, compiler_fence};

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

/// The two records of a thread.
///
/// Invariant: `records[in_force]` is not written while it is in force.
struct ThreadContext {
    in_force: Cell<bool>,
    records: [UnsafeCell<Record>; 2],
}

thread_local! {
    // Constant and without a destructor, so that reading it from the handler is one load and never runs code: the
    // executable's thread-locals are laid out by the linker (ELF TLS, local-exec model).
    static CONTEXT: ThreadContext = const {
        ThreadContext { in_force: Cell::new(false), records: [const { UnsafeCell::new(Record::EMPTY) }; 2] }
    };
}

/// What the calling thread is working for. Callable from a signal handler.
pub(crate) fn current() -> Current {
    CONTEXT.with(|context| {
        let record = context.record();
        let (trace_high, trace_low) = record.trace_id.split_at(8);
        Current {
            tag_set: record.tag_set,
            trace_id: [big_endian(trace_high), big_endian(trace_low)],
            span_id: u64::from_be_bytes(record.span_id),
        }
    })
}

/// Puts `tag_set` in force on the calling thread and returns the one that was.
pub(crate) fn replace_tag_set(tag_set: u32) -> u32 {
    CONTEXT.with(|context| {
        let old = context.record();
        context.publish(Record { tag_set, ..old });
        old.tag_set
    })
}

impl ThreadContext {
    fn record(&self) -> Record {
        // SAFETY: the record in force is not written (invariant), and only this thread reaches its records: the cell is
        //         thread-local and a signal handler on this thread only reads.
        unsafe { *self.records[usize::from(self.in_force.get())].get() }
    }

    fn publish(&self, record: Record) {
        let spare = !self.in_force.get();
        // SAFETY: the spare record is not in force, so a handler that interrupts this write does not read it.
        unsafe { self.records[usize::from(spare)].get().write(record) };
        // The handler runs on this thread: program order is all that it needs, and this keeps the compiler to it.
        compiler_fence(Ordering::Release);
        self.in_force.set(spare);
        compiler_fence(Ordering::Release);
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
        assert_eq!(current().tag_set, 5);
        assert_eq!(std::thread::spawn(|| current().tag_set).join().unwrap(), 0);
        assert_eq!(replace_tag_set(0), 5);
        assert_eq!(current(), Current::default());
    }
}
