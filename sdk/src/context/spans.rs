//! What is asked of spans, and what is known of them: which span a sample links to, and whether spans can be seen at all.
//!
//! In: settings, at `start`, and the word of whoever follows spans. Out: the same, to them, at the price of a load; and to `stats`. Any
//! thread; what is written here is written once, so that threads share the memory and none waits for it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::stats::SpanStats;

/// Which span a sample links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SpanLink {
    /// The span that is current where the sample is taken, as OpenTelemetry means a link.
    #[default]
    Current,
    /// The first span of this process in the same trace, as Grafana's links from traces to Pyroscope expect. Samples carry its name as
    /// `span_name`. Needs `ProfiledSpans` (feature `opentelemetry-sdk`) in the program's `TracerProvider`, for a span does not say what it
    /// descends from; without it samples link to current spans, and [`SpanStats::notes`](crate::SpanStats::notes) says so.
    LocalRoot,
}

impl SpanLink {
    /// As the environment names them.
    pub(crate) const NAMES: [(&'static str, Self); 2] = [("current", Self::Current), ("local_root", Self::LocalRoot)];
}

/// What is asked of spans.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpanSettings {
    pub(crate) link: SpanLink,
    /// Spans that are not sampled are linked to, too.
    pub(crate) unsampled: bool,
}

/// The settings in force: [`ON`], [`LOCAL_ROOT`] and [`UNSAMPLED`].
static ASKED: AtomicU8 = AtomicU8::new(0);
const ON: u8 = 1;
const LOCAL_ROOT: u8 = 2;
const UNSAMPLED: u8 = 4;

/// What was found out, once and for all.
static OBSERVED: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);
static PROCESSED: AtomicBool = AtomicBool::new(false);

/// Puts settings in force; `None`: no profiler runs.
pub(crate) fn ask(settings: Option<SpanSettings>) {
    let asked = settings.map_or(0, |settings| {
        let root = if settings.link == SpanLink::LocalRoot { LOCAL_ROOT } else { 0 };
        ON | root | if settings.unsampled { UNSAMPLED } else { 0 }
    });
    ASKED.store(asked, Ordering::Relaxed);
}

/// The settings in force; `None`: no profiler runs.
#[cfg(feature = "opentelemetry")]
#[inline]
pub(super) fn asked() -> Option<SpanSettings> {
    let asked = ASKED.load(Ordering::Relaxed);
    let link = if asked & LOCAL_ROOT != 0 { SpanLink::LocalRoot } else { SpanLink::Current };
    (asked & ON != 0).then_some(SpanSettings { link, unsampled: asked & UNSAMPLED != 0 })
}

/// Our observer of `opentelemetry`'s contexts is the one that is called.
#[cfg(feature = "opentelemetry")]
pub(super) fn note_observed() {
    note(&OBSERVED);
}

/// A span has become current.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[inline]
pub(super) fn note_seen() {
    note(&SEEN);
}

/// Our span processor has been told of a span.
#[cfg(feature = "opentelemetry-sdk")]
pub(super) fn note_processed() {
    note(&PROCESSED);
}

/// Writes only the first time: memory that all threads read stays in all their caches.
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
#[inline]
pub(super) fn note(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

/// What is known of spans by now.
pub(crate) fn stats() -> SpanStats {
    let [observed, seen, processed] = [&OBSERVED, &SEEN, &PROCESSED].map(|flag| flag.load(Ordering::Relaxed));
    let local_root = ASKED.load(Ordering::Relaxed) & LOCAL_ROOT != 0;
    let notes = [
        (!cfg!(feature = "opentelemetry")).then_some(WITHOUT_FEATURE),
        (cfg!(feature = "opentelemetry") && !observed).then_some(NOT_OBSERVED),
        (observed && !seen).then_some(NONE_SEEN),
        (local_root && !processed).then_some(NO_PROCESSOR),
    ];
    SpanStats { observed, seen, notes: notes.into_iter().flatten().map(str::to_owned).collect() }
}

const WITHOUT_FEATURE: &str =
    "spans of opentelemetry are not seen: the crate was built without its feature `opentelemetry`";
/// Also what the log says.
pub(super) const NOT_OBSERVED: &str = "spans of opentelemetry are not seen: another observer of its contexts was set first; start the profiler before \
                            it, or use profiler::tracing_layer()";
const NONE_SEEN: &str = "no span that is sampled has been current yet (Config::link_unsampled_spans is for the others); of opentelemetry only the \
                         version 0.33 can be seen: with another one use \
                         profiler::tracing_layer()";
const NO_PROCESSOR: &str = "samples link to current spans instead of local roots: profiler::ProfiledSpans was told of no span; add it to the \
                            TracerProvider";
