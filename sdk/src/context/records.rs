//! The two records of a thread: the one in force, and a spare.
//!
//! In: changes, by the thread itself. Out: a pointer to the record in force, which a single store moves: a signal handler on the
//! thread, and a reader in another process while the thread stands still, see the record before a change or the one after
//! it, never a mix.

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use super::attributes::MAX_TAG_BYTES;

/// What a thread is working for, laid out as the OpenTelemetry thread context record, so that profilers outside can read it.
///
/// Source: OTEP 4947, "Thread Context: Sharing Thread-Level Information with the OpenTelemetry eBPF Profiler".
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Record {
    pub(super) span: Span,
    /// 1: the record is whole. A record that is not is never in force.
    valid: u8,
    pub(super) trace_flags: u8,
    /// Bytes of `attrs_data` that hold tags.
    attrs_data_size: u16,
    attrs_data: [u8; MAX_TAG_BYTES],
}

const _: () = {
    assert!(size_of::<Record>() == 640);
    assert!(align_of::<Record>() == 2);
    assert!(std::mem::offset_of!(Record, span) == 0);
    assert!(std::mem::offset_of!(Record, valid) == 24);
    assert!(std::mem::offset_of!(Record, trace_flags) == 25);
    assert!(std::mem::offset_of!(Record, attrs_data_size) == 26);
    assert!(std::mem::offset_of!(Record, attrs_data) == 28);
};

/// A span, as W3C Trace Context writes it; all zero: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
}

impl Span {
    /// Whether it is one.
    pub(crate) fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

impl Record {
    /// What is in force where nothing is.
    pub(super) const EMPTY: Self = Self {
        span: Span { trace_id: [0; 16], span_id: [0; 8] },
        valid: 1,
        trace_flags: 0,
        attrs_data_size: 0,
        attrs_data: [0; MAX_TAG_BYTES],
    };

    /// The tags, as `attributes` writes them.
    pub(super) fn tags(&self) -> &[u8] {
        self.attrs_data.get(..self.attrs_data_size.into()).unwrap_or(&[])
    }

    /// Writes tags: `fill` says how many bytes they take.
    pub(super) fn fill_tags(&mut self, fill: impl FnOnce(&mut [u8; MAX_TAG_BYTES]) -> usize) {
        self.attrs_data_size = fill(&mut self.attrs_data).min(MAX_TAG_BYTES) as u16;
    }

    /// Copies the tags of another record, and nothing but those.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    pub(super) fn copy_tags(&mut self, other: &Self) {
        let tags = other.tags();
        self.attrs_data[..tags.len()].copy_from_slice(tags);
        self.attrs_data_size = other.attrs_data_size;
    }
}

/// Two records. Invariant: the one that the thread's pointer points to is not written.
#[derive(Debug)]
pub(super) struct Records([UnsafeCell<Record>; 2]);

/// What is in force where nothing is.
static EMPTY: Record = Record::EMPTY;

impl Records {
    /// Two empty ones.
    pub(super) const fn new() -> Self {
        Self([UnsafeCell::new(Record::EMPTY), UnsafeCell::new(Record::EMPTY)])
    }

    /// The record that `in_force` points to, which is null or one of these.
    pub(super) fn current(&self, in_force: &Cell<*const Record>) -> &Record {
        // SAFETY: null or one of `self`, which is not written while it is in force (invariant), and the reference goes before
        //         the next change: `change` borrows nothing that outlives it, and is not called while one is held.
        unsafe { in_force.get().as_ref() }.unwrap_or(&EMPTY)
    }

    /// Has `fill` write the spare record, of which all but the tags is as in the record in force, and puts it in force.
    pub(super) fn change(&self, in_force: &Cell<*const Record>, fill: impl FnOnce(&Record, &mut Record)) {
        let Self([first, second]) = self;
        let spare = if ptr::eq(in_force.get(), first.get()) { second } else { first };
        let old = self.current(in_force);
        // SAFETY: the spare record is not in force, so neither `old` nor a handler that interrupts this reads it.
        let new = unsafe { &mut *spare.get() };
        (new.span, new.trace_flags) = (old.span, old.trace_flags);
        fill(old, new);
        let nothing = new.attrs_data_size == 0 && !new.span.is_some();
        // The handler runs on this thread, and who looks from outside looks while it stands still: program order is all that
        // they need, and this keeps the compiler to it.
        compiler_fence(Ordering::Release);
        in_force.set(if nothing { ptr::null() } else { spare.get() });
        compiler_fence(Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a change leaves the record that was in force as it was, and that nothing in force is null.
    #[test]
    fn a_change_leaves_the_old_record_alone() {
        let (records, in_force) = (Records::new(), Cell::new(ptr::null()));
        let enter = |byte: u8| {
            records.change(&in_force, |_, new| {
                new.fill_tags(|tags| {
                    tags[0] = byte;
                    1
                });
            });
        };
        enter(1);
        let first = in_force.get();
        enter(2);
        // SAFETY: both are in `records`; nothing is changed while these are read.
        let bytes = unsafe { ((*first).tags()[0], (*in_force.get()).tags()[0]) };
        assert_eq!(bytes, (1, 2));
        records.change(&in_force, |_, new| new.fill_tags(|_| 0));
        assert!(in_force.get().is_null());
        assert!(records.current(&in_force).tags().is_empty());
    }
}
