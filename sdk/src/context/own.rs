//! What a thread has of ours: its scopes, and with them its records.
//!
//! In: scopes entered and left, spans that become current, all by the thread itself. Out: the record in force. Never touched by a
//! signal handler, which sees the record alone.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::MAX_TAG_BYTES;
use super::records::Record;
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use super::records::Span;
use super::scopes::Scopes;
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use super::scopes::Source;

/// Tags that found no room, in this process.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Tags that were left out since the process began: see [`TagStats`](crate::TagStats).
pub(crate) fn left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

/// Counts tags that are left out.
#[inline]
pub(super) fn leave_out(tags: u64) {
    if tags > 0 {
        LEFT_OUT.fetch_add(tags, Ordering::Relaxed);
    }
}

/// A thread's own. Its scopes are not to be had only for who comes here while this thread changes them: an allocator may.
#[derive(Debug)]
pub(super) struct Own {
    scopes: RefCell<Scopes>,
}

impl Own {
    /// Of a thread for which nothing is in force.
    pub(super) fn new() -> Self {
        Self { scopes: RefCell::new(Scopes::new()) }
    }

    /// Puts tags in force on top of those that are; the number by which the scope is left, `None` if it was not entered.
    #[inline]
    pub(super) fn enter(&self, in_force: &Cell<*const Record>, tags: &[u8]) -> Option<u32> {
        self.scopes.try_borrow_mut().ok().map(|mut scopes| scopes.enter(in_force, tags))
    }

    /// Takes back what a scope put in force.
    #[inline]
    pub(super) fn leave(&self, in_force: &Cell<*const Record>, number: u32) {
        if let Ok(mut scopes) = self.scopes.try_borrow_mut() {
            scopes.leave(in_force, number);
        }
    }

    /// Shows which span is current: its tags, and its ids and flags where its source has any to say.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    #[inline]
    pub(super) fn show(&self, in_force: &Cell<*const Record>, source: Source, tags: &[u8], span: Option<(&Span, u8)>) {
        // Whoever is called while this thread changes its scopes has nothing to say: no code of users runs there.
        if let Ok(mut scopes) = self.scopes.try_borrow_mut() {
            scopes.show(in_force, source, tags, span);
        }
    }

    /// Has `look` look at the tags in force, without those of spans.
    pub(super) fn tags<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        let mut into = [0; MAX_TAG_BYTES];
        let length = self.scopes.try_borrow().map_or(0, |scopes| scopes.of_scopes(&mut into));
        look(&into[..length])
    }
}
