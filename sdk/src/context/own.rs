//! What a thread has of ours: its records and its scopes.
//!
//! In: scopes entered and left, spans that become current, all by the thread itself. Out: the record in force. Never touched by a
//! signal handler, which sees the record alone.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::{MAX_TAG_BYTES, merge};
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use super::records::Span;
use super::records::{Record, Records};
use super::scopes::Scopes;
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use super::scopes::Source;

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
        // Not to be had, as below, only for who comes here while this thread changes its scopes: an allocator may.
        let Some(number) = self.scopes.try_borrow_mut().ok().and_then(|mut scopes| scopes.enter(tags)) else {
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
        let Ok(mut scopes) = self.scopes.try_borrow_mut() else { return };
        scopes.leave(number);
        self.records.change(in_force, |_, new| new.fill_tags(|into| scopes.in_force(into)));
    }

    /// Shows which span is current: its tags, and its ids and flags where its source has any to say. Where nothing changes, nothing is
    /// written.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    #[inline]
    pub(super) fn show(&self, in_force: &Cell<*const Record>, source: Source, tags: &[u8], span: Option<(Span, u8)>) {
        // Whoever is called while this thread changes its scopes has nothing to say: no code of users runs there.
        let Ok(mut scopes) = self.scopes.try_borrow_mut() else { return };
        let retagged = scopes.set_span_tags(source, tags);
        let old = self.records.current(in_force);
        let span = span.filter(|span| *span != (old.span, old.trace_flags));
        if !retagged && span.is_none() {
            return;
        }
        self.records.change(in_force, |old, new| {
            match retagged {
                true => new.fill_tags(|into| scopes.in_force(into)),
                false => new.copy_tags(old),
            }
            if let Some((span, trace_flags)) = span {
                (new.span, new.trace_flags) = (span, trace_flags);
            }
        });
    }

    /// Has `look` look at the tags in force, without those of spans.
    pub(super) fn tags<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        let mut into = [0; MAX_TAG_BYTES];
        let length = self.scopes.try_borrow().map_or(0, |scopes| scopes.of_scopes(&mut into));
        look(&into[..length])
    }
}
