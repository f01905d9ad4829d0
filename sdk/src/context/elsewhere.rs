//! What each thread has of ours on systems without a sampler: scopes nest and are seen by their thread, and nobody samples.
//!
//! In: the thread itself, which changes what is in force. Out: the same, for the thread. The twin of `thread`.

use std::cell::{Cell, RefCell};

use super::in_force::InForce;
#[cfg(feature = "opentelemetry")]
use super::records::Linked;
use super::scopes::Scopes;

/// What a thread has of ours.
pub(super) struct Thread {
    in_force: InForce,
    scopes: RefCell<Scopes>,
}

thread_local! {
    /// [`THREAD`] is being made, which allocates, and the allocator may come here.
    static BEGINNING: Cell<bool> = const { Cell::new(false) };
    static THREAD: Thread = Thread::begin();
}

impl Thread {
    /// For which nothing is in force.
    fn begin() -> Self {
        BEGINNING.set(true);
        let this = Self { in_force: InForce::nothing(), scopes: RefCell::new(Scopes::new()) };
        BEGINNING.set(false);
        this
    }

    /// Does `work` with the scopes of the calling thread and the pointer to what is in force; `None` when the thread is ending, and
    /// for an allocator that is called while they are made or changed.
    pub(super) fn with_here<R>(work: impl FnOnce(&mut Scopes, &InForce) -> R) -> Option<R> {
        if BEGINNING.get() {
            return None;
        }
        let with = |thread: &Self| Some(work(&mut *thread.scopes.try_borrow_mut().ok()?, &thread.in_force));
        THREAD.try_with(with).ok().flatten()
    }

    /// Enters a scope of the calling thread where that needs no allocator; else `None`, and nothing is done.
    pub(super) fn enter_at_once(tags: &[u8], replaces: bool) -> Option<u32> {
        Self::with_here(|scopes, in_force| scopes.enter_at_once(in_force, tags, replaces)).flatten()
    }

    /// Leaves it likewise.
    pub(super) fn leave_at_once(scope: u32) -> Option<()> {
        Self::with_here(|scopes, in_force| scopes.leave_at_once(in_force, scope)).flatten()
    }

    /// Shows the span of OpenTelemetry likewise, if there is one.
    #[cfg(feature = "opentelemetry")]
    pub(super) fn show_at_once(span: Linked) -> Option<()> {
        Self::with_here(|scopes, in_force| scopes.show_at_once(in_force, span)).flatten()
    }
}
