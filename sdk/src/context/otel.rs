//! Spans of OpenTelemetry: whichever is current on a thread is in that thread's record.
//!
//! In: the calls that `opentelemetry` makes whenever a context becomes current on a thread, by its own `attach`, by
//! `tracing-opentelemetry` on every entry of a span, by futures with a context at every poll. Out: the ids in the record. User code,
//! which is called while `opentelemetry` has its stack of contexts borrowed: nothing here may attach a context or look for the
//! current one, nor log, for a log may do both. Nothing here locks, but what keeps local roots (`roots`).

use std::any::Any;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use opentelemetry::Context;
use opentelemetry::context::{ContextObserver, GlobalContextObserver, ObserverContextView};
use opentelemetry::trace::{SpanContext, TraceContextExt};

use super::shown::Source;
#[cfg(feature = "opentelemetry-sdk")]
use super::spans::SpanLink;
use super::spans::{NOT_OBSERVED, SpanSettings, asked, note_observed, note_seen};
use super::{Linked, Span, show, show_span};

/// Sees contexts come and go.
struct Observer;

/// What our observer leaves in a context by which it can tell that it is the one in force.
struct Mark;

/// Contexts get a mark: for as long as it takes to see whether they do.
static MARKING: AtomicBool = AtomicBool::new(false);

/// Follows the spans of this process from now on, beginning with the one that is current on this thread.
pub(crate) fn observe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        GlobalContextObserver::set(Arc::new(Observer));
        if is_in_force() {
            note_observed();
        } else {
            tracing::warn!("{NOT_OBSERVED}");
        }
    });
    if super::spans::stats().observed {
        // It panics on a thread whose thread-locals are gone, as behind `exit`: no request runs there.
        drop(catch_unwind(|| Context::map_current(show_context)));
    }
}

/// Whether new contexts are shown to our observer: there is one in a process, and whoever sets one first has it.
fn is_in_force() -> bool {
    MARKING.store(true, Ordering::Relaxed);
    let context = Context::new().with_value(Mark);
    MARKING.store(false, Ordering::Relaxed);
    context.observer_view().as_ref().is_some_and(|view| view.as_any().is::<Mark>())
}

impl ContextObserver for Observer {
    fn on_context_enter(&self, _from: &Context, to: &Context) {
        show_context(to);
    }

    fn on_context_exit(&self, _from: &Context, to: &Context) {
        show_context(to);
    }

    fn make_view(&self, context: &Context) -> Option<Arc<dyn ObserverContextView>> {
        if MARKING.load(Ordering::Relaxed) && context.get::<Mark>().is_some() {
            return Some(Arc::new(Mark));
        }
        #[cfg(feature = "opentelemetry-sdk")]
        if asked().is_some_and(|asked| asked.link == SpanLink::LocalRoot) && context.has_active_span() {
            let root = super::roots::of_span(context.span().span_context())?;
            return Some(root);
        }
        None
    }
}

impl ObserverContextView for Mark {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes the span of a context the thread's, or the one that it descends from.
fn show_context(context: &Context) {
    let asked = asked().unwrap_or_default();
    let current = context.span();
    let current = current.span_context();
    if !runs_here(current) {
        return show_span(Linked::NONE);
    }
    if !is_linked(current, asked) {
        return show(Source::Unlinked, &[], Some(Linked::NONE));
    }
    note_seen();
    let flags = current.trace_flags().to_u8();
    #[cfg(feature = "opentelemetry-sdk")]
    if asked.link == SpanLink::LocalRoot && show_root(context, flags) {
        return;
    }
    show_span(Linked::new(Span::from(current), flags));
}

/// Makes the local root of a context's span the thread's; `false` if it is not known. Apart, so that what everybody pays for has no more than it needs.
#[cfg(feature = "opentelemetry-sdk")]
#[inline(never)]
fn show_root(context: &Context, flags: u8) -> bool {
    let Some(root) = super::roots::of_context(context) else { return false };
    show(Source::OpenTelemetry, root.tags(), Some(Linked::new(root.span, flags)));
    true
}

/// Whether a span may be what runs. One of another process is there only to be the parent.
fn runs_here(span: &SpanContext) -> bool {
    span.is_valid() && !span.is_remote()
}

/// Whether samples link to a span. One that is not sampled is nowhere to be found.
fn is_linked(span: &SpanContext, asked: SpanSettings) -> bool {
    span.is_sampled() || asked.unsampled
}

#[cfg(test)]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
