//! The local roots of spans: the first span of this process in each trace, for the mode in which samples link to it.
//!
//! In: spans as they begin and end, from the program's `TracerProvider` ([`ProfiledSpans`]). Out: the root of a span, which a
//! context keeps from its birth on (`otel`), so that a thread that the context comes to needs no look here. User code. Bounded in
//! number, and in a forked child in patience: it may have inherited locks that nobody opens.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use opentelemetry::context::ObserverContextView;
use opentelemetry::trace::{Span as _, SpanContext, SpanId, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span as SdkSpan, SpanData, SpanProcessor};

use super::records::Span;
use super::spans::{SpanLink, asked, note_processed};
use super::tags::{Tags, reserve};

/// What Pyroscope looks for on a span, to show its profile.
///
/// Source: Grafana, otel-profiling-go, `profileIDSpanAttributeKey`: the span's id in hexadecimal.
const PROFILE_ID: &str = "pyroscope.profile.id";
/// The label for the name of the root, as there.
const SPAN_NAME: &str = "span_name";

/// Maps, so that few threads meet at one.
const SHARDS: usize = 32;
/// Most spans of one map at once; further ones stand for themselves.
const MAX_SPANS: usize = 4096;
/// How often a forked child asks for a map that another thread has, which has it for some ten nanoseconds.
const TRIES: u32 = 1000;

/// Tells the profiler how spans descend from each other, and marks those that samples link to with `pyroscope.profile.id`.
///
/// Add it to the program's `TracerProvider`, before the processor that exports:
///
/// ```
/// # use opentelemetry_sdk::trace::SdkTracerProvider;
/// let provider = SdkTracerProvider::builder()
///     .with_span_processor(profiler::ProfiledSpans::new())
///     // .with_batch_exporter(exporter)
///     .build();
/// ```
///
/// With [`SpanLink::LocalRoot`] the first span of this process in a trace has the attribute; with [`SpanLink::Current`] every span has
/// one, for each has samples of its own; while no profiler runs, none has. Only sampled spans are marked, unless
/// [`Config::link_unsampled_spans`](crate::Config::link_unsampled_spans) asks for the others. `span_name` is the name that a root has when it
/// begins. Each provider has one of its own ([`ProfiledSpans::new`]): when the provider is shut down, the roots that it was told of are forgotten.
#[derive(Debug, Clone, Copy)]
pub struct ProfiledSpans {
    /// Tells it from those of other providers.
    number: u32,
}

/// A local root.
#[derive(Debug, Clone)]
pub(super) struct Root {
    pub(super) span: Span,
    /// Its name.
    tags: Tags,
}

/// Roots by the spans that descend from them, for a span's id need be unique in its trace alone; with the number of whoever was told of
/// the span.
type Roots = HashMap<(TraceId, SpanId), (u32, Arc<Root>)>;

/// One of the maps. On lines of its own: processors fetch two at once.
#[repr(align(128))]
struct Shard {
    roots: Mutex<Option<Roots>>,
    /// The process that asked for the map in vain: there it is asked for once each time, until it is to be had.
    shut_in: AtomicU32,
}

/// The roots of the spans that have begun and not ended.
static ROOTS: [Shard; SHARDS] = [const { Shard { roots: Mutex::new(None), shut_in: AtomicU32::new(0) } }; SHARDS];
/// The process in which the first root was kept: until then, while it is 0, no map is looked at.
static KEEPER: AtomicU32 = AtomicU32::new(0);

/// The number of the next [`ProfiledSpans`].
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The root of a span that has not ended.
pub(super) fn of_span(span: &SpanContext) -> Option<Arc<Root>> {
    if KEEPER.load(Ordering::Relaxed) == 0 {
        return None;
    }
    shard(span)?.as_ref()?.get(&key(span)).map(|(_, root)| Arc::clone(root))
}

/// The root that a context keeps.
pub(super) fn of_context(context: &Context) -> Option<&Root> {
    context.observer_view().as_ref()?.as_any().downcast_ref()
}

fn key(span: &SpanContext) -> (TraceId, SpanId) {
    (span.trace_id(), span.span_id())
}

/// The map that a span is in; `None` when it is not to be had.
fn shard(span: &SpanContext) -> Option<MutexGuard<'static, Option<Roots>>> {
    // Ids are random; their last byte is, too, where the first ones are a time.
    ROOTS.get(usize::from(span.span_id().to_bytes()[7]) % SHARDS).and_then(lock)
}

/// A map, unless it is not to be had: in a child of the process that had it first, whoever opens its lock may not be there.
fn lock(shard: &'static Shard) -> Option<MutexGuard<'static, Option<Roots>>> {
    let found = shard.roots.try_lock();
    let shut_in = shard.shut_in.load(Ordering::Relaxed);
    if matches!(found, Err(TryLockError::WouldBlock)) {
        return (shut_in == 0 || shut_in != std::process::id()).then(|| wait(shard)).flatten();
    }
    if shut_in != 0 {
        shard.shut_in.store(0, Ordering::Relaxed);
    }
    opened(found)
}

/// A map that somebody has.
#[cold]
fn wait(shard: &'static Shard) -> Option<MutexGuard<'static, Option<Roots>>> {
    // Whoever has it is here, and gives it back: a root that is not taken out now would stay for good.
    if KEEPER.load(Ordering::Relaxed) == std::process::id() {
        return Some(shard.roots.lock().unwrap_or_else(PoisonError::into_inner));
    }
    for _ in 0..TRIES {
        std::thread::yield_now();
        let map = opened(shard.roots.try_lock());
        if map.is_some() {
            return map;
        }
    }
    shard.shut_in.store(std::process::id(), Ordering::Relaxed);
    None
}

fn opened<T>(found: Result<T, TryLockError<T>>) -> Option<T> {
    match found {
        Ok(map) => Some(map),
        // Maps are changed by calls that do not panic half-way.
        Err(TryLockError::Poisoned(map)) => Some(map.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl ProfiledSpans {
    /// One for a `TracerProvider`.
    #[must_use]
    pub fn new() -> Self {
        reserve(&[SPAN_NAME]);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Keeps the root of a span until the span ends; `false` if there is no room.
    fn insert(self, span: &SpanContext, root: Arc<Root>) -> bool {
        if KEEPER.load(Ordering::Relaxed) == 0 {
            // Whoever was first stays it.
            _ = KEEPER.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
        }
        let Some(mut map) = shard(span) else { return false };
        let map = map.get_or_insert_default();
        let has_room = map.len() < MAX_SPANS;
        if has_room {
            map.insert(key(span), (self.number, root));
        }
        has_room
    }
}

impl Default for ProfiledSpans {
    fn default() -> Self {
        Self::new()
    }
}

impl SpanProcessor for ProfiledSpans {
    fn on_start(&self, span: &mut SdkSpan, parent: &Context) {
        note_processed();
        let Some(asked) = asked() else { return };
        let context = span.span_context().clone();
        if !context.is_sampled() && !asked.unsampled {
            return;
        }
        if asked.link == SpanLink::LocalRoot {
            // Where there is no room for it, it stands for itself.
            if root_of_parent(parent).is_some_and(|root| self.insert(&context, root)) {
                return;
            }
            let name = span.exported_data().map(|data| data.name).unwrap_or_default();
            self.insert(&context, Arc::new(Root::new(&context, &name)));
        }
        span.set_attribute(KeyValue::new(PROFILE_ID, context.span_id().to_string()));
    }

    fn on_end(&self, span: SpanData) {
        if KEEPER.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Whatever was asked for when it began.
        let removed = shard(&span.span_context).and_then(|mut map| map.as_mut()?.remove(&key(&span.span_context)));
        drop(removed);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Behind it nobody says any more that a span has ended.
    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        for mut map in ROOTS.iter().filter_map(lock) {
            map.iter_mut().for_each(|roots| roots.retain(|_, (number, _)| *number != self.number));
        }
        Ok(())
    }
}

/// The root of the span that a new one descends from, if that is a span of this process.
fn root_of_parent(parent: &Context) -> Option<Arc<Root>> {
    let span = parent.has_active_span().then(|| parent.span())?;
    let context = span.span_context();
    if !context.is_valid() || context.is_remote() {
        return None;
    }
    // What the context keeps is there also when its span has ended.
    of_span(context).or_else(|| of_context(parent).cloned().map(Arc::new))
}

impl Root {
    fn new(context: &SpanContext, name: &str) -> Self {
        Self { span: Span::from(context), tags: Tags::new([(SPAN_NAME, &name as &dyn std::fmt::Display)]) }
    }

    /// Its name, as a tag.
    pub(super) fn tags(&self) -> &[u8] {
        self.tags.as_bytes()
    }
}

impl ObserverContextView for Root {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
