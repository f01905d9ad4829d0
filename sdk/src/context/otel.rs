//! Spans of OpenTelemetry: whichever is current on a thread is in that thread's record.
//!
//! In: the calls that `opentelemetry` makes whenever a context becomes current on a thread, by its own `attach`, by
//! `tracing-opentelemetry` on every entry of a span, by futures with a context at every poll. Out: the ids in the record. User code; no
//! allocation, no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::Context;
use opentelemetry::context::{ContextObserver, GlobalContextObserver};
use opentelemetry::trace::TraceContextExt;

use super::{Span, set_span};

/// Spans that are not sampled are in the record, too.
static UNSAMPLED: AtomicBool = AtomicBool::new(false);

/// Sees contexts come and go.
struct Observer;

/// Follows the spans of this process from now on, those that are not sampled only if asked. Whoever calls
/// this again changes that alone.
pub(crate) fn observe(unsampled: bool) {
    UNSAMPLED.store(unsampled, Ordering::Relaxed);
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| GlobalContextObserver::set(Arc::new(Observer)));
}

impl ContextObserver for Observer {
    fn on_context_enter(&self, _from: &Context, to: &Context) {
        show(to);
    }

    fn on_context_exit(&self, _from: &Context, to: &Context) {
        show(to);
    }
}

/// Makes the span of a context the thread's. A span of another process, which is there only to be the parent, is none.
fn show(context: &Context) {
    let (mut span, mut flags) = (Span::default(), 0);
    if context.has_active_span() {
        let current = context.span();
        let current = current.span_context();
        let wanted = current.is_sampled() || UNSAMPLED.load(Ordering::Relaxed);
        if current.is_valid() && !current.is_remote() && wanted {
            span = Span { trace_id: current.trace_id().to_bytes(), span_id: current.span_id().to_bytes() };
            flags = current.trace_flags().to_u8();
        }
    }
    set_span(span, flags);
}
