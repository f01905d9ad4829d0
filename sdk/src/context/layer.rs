//! Spans of `tracing`: a layer that puts the current one's name, and its ids where it has any, into the thread's record.
//!
//! In: the spans of a subscriber, as they are made, entered and left, on any thread. Out: the tag `span`, chosen fields as tags, and the
//! link, for as long as the span is current. User code, called by `tracing`; logs nothing, for that would come back here.
//! What is kept of a span is kept with the span, and goes with it.

use std::cell::Cell;
use std::fmt::{self, Debug, Display};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::attributes::{Block, pairs};
use super::counts::leave_out;
use super::nested;
use super::records::{Linked, Span};
use super::shown::Source;
use super::spans::{note, note_seen};
use super::tags::{push, reserve};
use super::{forget_what_is_gone, show};

/// Key of the name.
const NAME: &str = "span";

/// Trace flags of a span whose ids a program wrote down itself: sampled, as W3C Trace Context writes it.
const SAMPLED: u8 = 1;

/// Some layer has been dropped: until then nobody asks for what it left behind.
static SOME_GONE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread asks the program for ids.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// A layer that puts the span of `tracing` that is current into the samples: for programs without OpenTelemetry, or with a version of it
/// that the profiler cannot follow.
///
/// Samples carry the name of the innermost span as the tag `span`, and the fields that [`TracingLayer::with_field`] names as tags. Where
/// a span has fields `trace_id` and `span_id`, of 32 and 16 hexadecimal digits, samples in it and in its children link to it; the fields may
/// be recorded later.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(profiler::tracing_layer().with_field("route"));
/// # tracing::subscriber::with_default(subscriber, || {
/// let _span = tracing::info_span!("request", route = "/orders").entered();
/// // Samples here carry `span=request` and `route=/orders`.
/// # });
/// ```
#[must_use = "a layer does nothing until it is added to a subscriber"]
pub fn tracing_layer() -> TracingLayer {
    reserve(&[NAME]);
    TracingLayer { fields: Vec::new(), ids_here: None, ids: AtomicBool::new(false), life: Arc::new(()) }
}

/// Trace id and span id, as W3C Trace Context has their bytes.
pub type SpanIds = ([u8; 16], [u8; 8]);

/// The ids of the current span of the calling thread, as whoever is called knows them.
type IdsHere = fn() -> Option<SpanIds>;

/// See [`tracing_layer`].
#[derive(Debug)]
pub struct TracingLayer {
    fields: Vec<&'static str>,
    ids_here: Option<IdsHere>,
    /// Some span has had ids: only then are a span's ancestors asked for theirs.
    ids: AtomicBool,
    /// Goes with the layer, and with it what it showed on threads.
    life: Arc<()>,
}

impl TracingLayer {
    /// Makes the value of this field a tag with the field's name, in spans that have it and in their children. Of fields of one name in a span the
    /// first holds, and earlier fields have room before later ones.
    #[must_use = "this returns the layer"]
    pub fn with_field(mut self, name: &'static str) -> Self {
        reserve(&[name]);
        self.fields.push(name);
        self
    }

    /// Has `ids` say the trace id and the span id of the span that is current, where no fields do: for `tracing-opentelemetry` with a version of
    /// OpenTelemetry that the profiler cannot follow by itself. It is asked when a span is entered, until it has an answer for that
    /// span, which holds from then on. Say `None` for spans to which nothing shall link, as those that are not sampled.
    ///
    /// Add this layer behind that of `tracing-opentelemetry`:
    ///
    /// ```
    /// # use opentelemetry::trace::{TraceContextExt, TracerProvider};
    /// # use opentelemetry_sdk::trace::SdkTracerProvider;
    /// # use tracing_subscriber::layer::SubscriberExt;
    /// use tracing_opentelemetry::OpenTelemetrySpanExt;
    ///
    /// # let tracer = SdkTracerProvider::default().tracer("test");
    /// let profiled = profiler::tracing_layer().with_ids(|| {
    ///     let context = tracing::Span::current().context();
    ///     let span = context.span().span_context().clone();
    ///     span.is_sampled().then(|| (span.trace_id().to_bytes(), span.span_id().to_bytes()))
    /// });
    /// let traced = tracing_opentelemetry::layer().with_tracer(tracer);
    /// let subscriber = tracing_subscriber::registry().with(traced).with(profiled);
    /// ```
    #[must_use = "this returns the layer"]
    pub fn with_ids(mut self, ids: fn() -> Option<SpanIds>) -> Self {
        self.ids_here = Some(ids);
        self
    }
}

impl Default for TracingLayer {
    fn default() -> Self {
        tracing_layer()
    }
}

/// What is kept with a span.
struct Kept {
    /// As `attributes` writes them.
    tags: Box<[u8]>,
    trace_id: Option<[u8; 16]>,
    span_id: Option<[u8; 8]>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TracingLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Visitor::new(&self.fields);
        attributes.record(&mut fields);
        // Last: a field of the same name is what the program chose.
        fields.add(NAME, &attributes.metadata().name());
        let kept = Kept::from(fields);
        self.note_ids(&kept);
        span.extensions_mut().replace(kept);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        // Values show themselves with code of the program, which may come back to this span: before it is locked.
        let mut news = Visitor::new(&self.fields);
        values.record(&mut news);
        if let Some(kept) = span.extensions_mut().get_mut::<Kept>() {
            kept.update(news);
            self.note_ids(kept);
        }
        // It may be what runs here, or what runs here may be its child.
        self.show(context.lookup_current().as_ref());
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = context.span(id);
        if let (Some(span), Some(ids_here)) = (&span, self.ids_here) {
            self.ask(span, ids_here);
        }
        self.show(span.as_ref());
    }

    fn on_exit(&self, _id: &Id, context: Context<'_, S>) {
        // The registry has taken it off the thread's stack by now, wherever it stood there.
        self.show(context.lookup_current().as_ref());
    }
}

impl TracingLayer {
    /// Asks for the ids of the span that is being entered, unless they are known.
    fn ask<'a, R: LookupSpan<'a>>(&self, span: &SpanRef<'a, R>, ids_here: IdsHere) {
        let is_known = span.extensions().get::<Kept>().is_none_or(|kept| kept.ids().is_some());
        if is_known || !self.is_current() {
            return;
        }
        // Code of the program, which looks at this span, too: before it is locked. It may enter spans of its own.
        let ids = nested::once(&ASKS, ids_here).flatten();
        let Some((trace_id, span_id)) = ids.filter(|ids| ids.0 != [0; 16] && ids.1 != [0; 8]) else { return };
        if let Some(kept) = span.extensions_mut().get_mut::<Kept>() {
            (kept.trace_id, kept.span_id) = (Some(trace_id), Some(span_id));
            self.note_ids(kept);
        }
    }

    /// Whether what is current on this thread is of the subscriber that this layer belongs to, as far as it can be told.
    fn is_current(&self) -> bool {
        let is_another = |layer: &Self| !ptr::eq(layer, self);
        tracing::dispatcher::get_default(|dispatch| !dispatch.downcast_ref::<Self>().is_some_and(is_another))
    }

    /// Makes a span the thread's, or none.
    fn show<'a, R: LookupSpan<'a>>(&self, span: Option<&SpanRef<'a, R>>) {
        let (mut tags, mut ids) = (Block::new(), None);
        for span in span.into_iter().flat_map(SpanRef::scope) {
            if let Some(kept) = span.extensions().get::<Kept>() {
                // What is there already is of an inner span, and stays.
                let left_out = pairs(&kept.tags).filter(|(key, value)| !tags.push(*key, value));
                leave_out(left_out.count() as u64);
                ids = ids.or_else(|| kept.ids());
            }
            if self.fields.is_empty() && (ids.is_some() || !self.has_ids()) {
                break;
            }
        }
        if ids.is_some() {
            note_seen();
            // Those that a layer before this one read, too.
            note(&self.ids);
        }
        // Where no span had any it has nothing to say about links.
        let ids = self.has_ids().then(|| ids.map_or(Linked::NONE, |ids| Linked::new(ids, SAMPLED)));
        show(Source::Tracing(&self.life), tags.as_bytes(), ids);
    }

    fn has_ids(&self) -> bool {
        self.ids.load(Ordering::Relaxed)
    }

    fn note_ids(&self, kept: &Kept) {
        if kept.ids().is_some() {
            note(&self.ids);
        }
    }
}

impl Drop for TracingLayer {
    fn drop(&mut self) {
        note(&SOME_GONE);
    }
}

impl Drop for Kept {
    /// A span that ends when its layer is gone was left without a word: here at the latest nothing of it stays with the thread.
    fn drop(&mut self) {
        if SOME_GONE.load(Ordering::Relaxed) {
            forget_what_is_gone();
        }
    }
}

impl Kept {
    /// Adds what was recorded later, over what is there.
    fn update(&mut self, mut news: Visitor<'_>) {
        leave_out(pairs(&self.tags).filter(|(key, value)| !news.tags.push(*key, value)).count() as u64);
        news.trace_id = news.trace_id.or(self.trace_id);
        news.span_id = news.span_id.or(self.span_id);
        *self = Self::from(news);
    }

    fn ids(&self) -> Option<Span> {
        Some(Span { trace_id: self.trace_id?, span_id: self.span_id? })
    }
}

/// Reads fields.
struct Visitor<'a> {
    /// The names of those that are tags.
    chosen: &'a [&'static str],
    tags: Block,
    trace_id: Option<[u8; 16]>,
    span_id: Option<[u8; 8]>,
}

impl From<Visitor<'_>> for Kept {
    fn from(read: Visitor<'_>) -> Self {
        Self { tags: read.tags.as_bytes().into(), trace_id: read.trace_id, span_id: read.span_id }
    }
}

impl Visit for Visitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.read(field, &format_args!("{value:?}"));
    }

    // `Debug` would put it in quotes.
    fn record_str(&mut self, field: &Field, value: &str) {
        self.read(field, &value);
    }

    // An integer is no id, for its digits are decimal.
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.tag(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.tag(field, &value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.tag(field, &value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.tag(field, &value);
    }
}

impl<'a> Visitor<'a> {
    fn new(chosen: &'a [&'static str]) -> Self {
        Self { chosen, tags: Block::new(), trace_id: None, span_id: None }
    }

    fn read(&mut self, field: &Field, value: &dyn Display) {
        match field.name() {
            "trace_id" => self.trace_id = id(value).or(self.trace_id),
            "span_id" => self.span_id = id(value).or(self.span_id),
            _ => {}
        }
        self.tag(field, value);
    }

    /// As a tag, where it is asked for.
    fn tag(&mut self, field: &Field, value: &dyn Display) {
        if self.chosen.contains(&field.name()) {
            self.add(field.name(), value);
        }
    }

    /// Adds a tag, unless there is one with this key.
    fn add(&mut self, key: &str, value: &dyn Display) {
        leave_out(u64::from(!push(&mut self.tags, key, value)));
    }
}

/// An id of `N` bytes, written in hexadecimal; zeros are none.
fn id<const N: usize>(value: &dyn Display) -> Option<[u8; N]> {
    let mut digits = Digits { id: [0; N], count: 0, is_other: false };
    fmt::write(&mut digits, format_args!("{value}")).ok()?;
    (digits.count == 2 * N && !digits.is_other && digits.id != [0; N]).then_some(digits.id)
}

/// An id while it is written.
struct Digits<const N: usize> {
    id: [u8; N],
    count: usize,
    /// What is written is no id: there are other characters, or too many.
    is_other: bool,
}

impl<const N: usize> Digits<N> {
    fn push(&mut self, digit: char) -> Option<()> {
        let digit = u8::try_from(digit.to_digit(16)?).ok()?;
        let byte = self.id.get_mut(self.count / 2)?;
        *byte = *byte << 4 | digit;
        self.count += 1;
        Some(())
    }
}

impl<const N: usize> fmt::Write for Digits<N> {
    /// Never an error, for values may rely on it, as `format!` gives none.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.is_other = self.is_other || !text.chars().all(|digit| self.push(digit).is_some());
        Ok(())
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
