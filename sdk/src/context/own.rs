//! What a thread has of ours: its records and its scopes.
//!
//! In: scopes entered and left, spans that become current, all by the thread itself. Out: the record in force. Never touched by a
//! signal handler, which sees the record alone.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::merge;
use super::records::{Record, Records, Span};
use super::scopes::Scopes;

/// Tags that found no room, in this process.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Tags that were left out since the process began: there was no room, no key to be had, or too many scopes.
pub(crate) fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Counts tags that are left out.
pub(super) fn leave_out(tags: u64) {
    if tags > 0 {
        LEFT_OUT.fetch_add(tags, Ordering::Relaxed);
    }
}

/// A thread's own.
#[derive(Debug)]
pub(super) struct Own {
    records: Records,
    scopes: RefCell<Scopes>,
}

impl Own {
    /// Of a thread for which nothing is in force.
    pub(super) fn new() -> Self {
        Self { records: Records::new(), scopes: RefCell::default() }
    }

    /// Puts tags in force on top of those that are; the number by which the scope is left, `None` if it was not entered.
    #[inline]
    pub(super) fn enter(&self, in_force: &Cell<*const Record>, tags: &[u8]) -> Option<u32> {
        let Some(number) = self.scopes.borrow_mut().enter(tags) else {
            leave_out(1);
            return None;
        };
        self.records.change(in_force, |old, new| {
            new.fill_tags(|into| {
                let (length, without_room) = merge(tags, old.tags(), into);
                leave_out(without_room);
                length
            });
        });
        Some(number)
    }

    /// Takes back what a scope put in force.
    #[inline]
    pub(super) fn leave(&self, in_force: &Cell<*const Record>, number: u32) {
        let mut scopes = self.scopes.borrow_mut();
        scopes.leave(number);
        self.records.change(in_force, |_, new| new.fill_tags(|into| scopes.in_force(into)));
    }

    /// Makes a span current, or none.
    #[inline]
    pub(super) fn set_span(&self, in_force: &Cell<*const Record>, span: Span, trace_flags: u8) {
        self.records.change(in_force, |old, new| {
            new.copy_tags(old);
            (new.span, new.trace_flags) = (span, trace_flags);
        });
    }

    /// Has `look` look at the tags in force.
    pub(super) fn tags<R>(&self, in_force: &Cell<*const Record>, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.records.current(in_force).tags())
    }
}
