//! A service whose every task has a span of its own and works in a function whose name says which.
//!
//! In: how spans are made (`way`), on which `runtime`, and how much CPU time to use. Out: the ids of all spans by the function that works in them, which is what the
//! links of a profile must say. Tasks yield, sleep, move between threads and to blocking ones, and have child spans; others
//! between them have no span at all.

use std::collections::BTreeMap;
use std::future::Future;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::context::{ContextObserver, GlobalContextObserver};
use opentelemetry::trace::{FutureExt, SpanContext, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use profiler::{Config, ProfiledSpans, SpanLink};
use profiler_tests::Result;
use profiler_tests::clock::process_cpu;
use profiler_tests::subject::Options;
use profiler_tests::tally::hex;
use profiler_tests::workload::{Random, spin};
use serde_json::{Value, json};
use tracing::{Instrument, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

use profiler_tests::stats;

use crate::FLUSH;
use crate::runtimes::{Runtime, run_on, yield_now};

/// A function that works.
type Work = fn(Duration);

// A body of its own for each, for the linker folds equal functions.
macro_rules! functions {
    ($name:ident: $($function:ident = $number:literal),*) => {
        const $name: &[(&str, Work)] = &[$((stringify!($function), $function)),*];
        $(
            #[inline(never)]
            fn $function(cpu: Duration) {
                black_box($number);
                spin(cpu);
                black_box($number);
            }
        )*
    };
}

functions!(ROOTS: root_0 = 10, root_1 = 11, root_2 = 12, root_3 = 13, root_4 = 14, root_5 = 15, root_6 = 16, root_7 = 17);
functions!(CHILDREN: child_0 = 20, child_1 = 21, child_2 = 22, child_3 = 23, child_4 = 24, child_5 = 25, child_6 = 26, child_7 = 27);
functions!(BARE: bare = 30);

/// The route of each, which is the name of its span where names can be made.
const ROUTES: [&str; 8] = ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7"];

/// Tasks at once.
const TASKS: u64 = 64;

/// An observer that somebody else sets.
struct Other;

impl ContextObserver for Other {
    fn on_context_enter(&self, _: &Context, _: &Context) {}
    fn on_context_exit(&self, _: &Context, _: &Context) {}
}

/// How spans are made.
#[derive(Debug, Clone)]
enum Way {
    /// By `opentelemetry`.
    Plain(SdkTracer),
    /// By `tracing`, through `tracing-opentelemetry`.
    Traced,
    /// By `tracing`, through an older `tracing-opentelemetry`.
    Older,
    /// By `tracing`, with ids of the program's own.
    Layer,
}

/// A span of either kind.
#[derive(Debug, Clone)]
enum Span {
    Plain(Context),
    Traced(tracing::Span),
    Older(tracing::Span),
    Layer(tracing::Span, String),
}

/// The ids of spans, `trace/span`, by function.
type Ids = Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>;

/// Starts in a program that observes contexts itself; what is said of spans then.
pub(crate) fn observed_by_another() -> Result<Value> {
    GlobalContextObserver::set(Arc::new(Other));
    let profiler = profiler::start("observed")?;
    let current = Context::new().with_span(SdkTracerProvider::default().tracer("spans").start("span"));
    let _current = current.attach();
    Ok(stats::to_json(&profiler.stats()))
}

/// Serves until `cpu_seconds` are used; the ids of all spans.
pub(crate) fn spans(options: &Options) -> Result<Value> {
    let name: String = options.value("way")?;
    let config = Config::new("spans").rate_hz(1000).interval(Duration::from_secs(1));
    let profiler = profiler::start(match name.as_str() {
        "roots" | "traced-roots" => config.span_link(SpanLink::LocalRoot),
        "unsampled" => config.link_unsampled_spans(options.value("links")?),
        _ => config,
    })?;
    let (way, ids) = (Way::open(&name)?, Ids::default());
    let noted = Arc::clone(&ids);
    let end = process_cpu() + Duration::from_secs_f64(options.value("cpu_seconds")?);
    run_on(&options.value_or("runtime", "tokio".to_owned())?, |runtime| async move {
        let serve = |seed| (runtime.spawn)(Box::pin(serve(runtime, way.clone(), Arc::clone(&noted), seed, end)));
        let tasks: Vec<_> = (0..TASKS).map(serve).collect();
        for task in tasks {
            task.await;
        }
    })?;
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    let stats = stats::to_json(&profiler.stats());
    let ids = ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(json!({ "flushed": flushed, "ids": ids, "stats": stats }))
}

/// One request after the other, each a task of its own, with tasks without a span between them.
async fn serve(runtime: Runtime, way: Way, ids: Ids, seed: u64, end: Duration) {
    let mut random = Random::new(seed);
    while process_cpu() < end {
        let kind = random.below(8) as usize;
        let root = way.root(kind);
        root.note(ROOTS[kind].0, &ids);
        let request = request(runtime, way.clone(), root.clone(), kind, Arc::clone(&ids), random.draw());
        // A task that panics is missing in what is compared.
        (runtime.spawn)(Box::pin(root.clone().around(request))).await;
        (runtime.spawn)(Box::pin(bare_task())).await;
    }
}

/// Works in its own span, in a child's, on a blocking thread, and in its own again.
async fn request(runtime: Runtime, way: Way, root: Span, kind: usize, ids: Ids, seed: u64) {
    let mut random = Random::new(seed);
    steps(runtime, ROOTS[kind].1, &mut random).await;
    let child = way.child(&root);
    child.note(CHILDREN[kind].0, &ids);
    let child_steps = async { steps(runtime, CHILDREN[kind].1, &mut Random::new(seed ^ 1)).await };
    child.clone().around(child_steps).await;
    let blocking = (runtime.block)(Box::new(move || child.within(|| CHILDREN[kind].1(Duration::from_micros(300)))));
    ROOTS[kind].1(Duration::from_micros(200));
    blocking.await;
    steps(runtime, ROOTS[kind].1, &mut random).await;
}

async fn bare_task() {
    for _ in 0..2 {
        BARE[0].1(Duration::from_micros(300));
        yield_now().await;
    }
}

/// A few slices of work, at random apart.
async fn steps(runtime: Runtime, work: Work, random: &mut Random) {
    for _ in 0..3 {
        work(Duration::from_micros(100 + random.below(400)));
        match random.below(3) {
            0 => (runtime.sleep)(Duration::from_micros(random.below(300))).await,
            _ => yield_now().await,
        }
    }
}

impl Way {
    fn open(name: &str) -> Result<Self> {
        let sampler = if name == "unsampled" { Sampler::AlwaysOff } else { Sampler::AlwaysOn };
        let provider =
            SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(ProfiledSpans::new()).build();
        let tracer = provider.tracer("spans");
        let registry = tracing_subscriber::registry();
        match name {
            "plain" | "roots" | "unsampled" => Ok(Self::Plain(tracer)),
            "traced" | "traced-roots" => {
                let layer = tracing_opentelemetry::layer().with_tracer(tracer);
                tracing::subscriber::set_global_default(registry.with(layer))?;
                Ok(Self::Traced)
            }
            "older" => {
                let provider = opentelemetry_sdk_0_30::trace::SdkTracerProvider::builder().build();
                let tracer = opentelemetry_0_30::trace::TracerProvider::tracer(&provider, "spans");
                let layer = profiler::tracing_layer().with_ids(|| older::ids(&tracing::Span::current()));
                let traced = tracing_opentelemetry_0_31::layer().with_tracer(tracer);
                tracing::subscriber::set_global_default(registry.with(traced).with(layer))?;
                Ok(Self::Older)
            }
            "layer" => {
                let layer = profiler::tracing_layer().with_field("route");
                tracing::subscriber::set_global_default(registry.with(layer))?;
                Ok(Self::Layer)
            }
            other => Err(format!("there is no way {other:?}").into()),
        }
    }

    fn root(&self, kind: usize) -> Span {
        let route = ROUTES[kind];
        match self {
            Self::Plain(tracer) => {
                Span::Plain(Context::new().with_span(tracer.start_with_context(route, &Context::new())))
            }
            // The name under which OpenTelemetry gets it.
            Self::Traced => Span::Traced(info_span!(parent: None, "request", otel.name = route)),
            Self::Older => Span::Older(info_span!(parent: None, "request", otel.name = route)),
            Self::Layer => {
                let (trace_id, span_id) = made_up();
                let span = info_span!(parent: None, "request", route, trace_id, span_id);
                Span::Layer(span, format!("{trace_id}/{span_id}"))
            }
        }
    }

    fn child(&self, root: &Span) -> Span {
        match (self, root) {
            (Self::Plain(tracer), Span::Plain(root)) => {
                Span::Plain(root.with_span(tracer.start_with_context("child", root)))
            }
            (_, Span::Layer(root, _)) => {
                let (trace_id, span_id) = made_up();
                let span = info_span!(parent: root, "child", trace_id, span_id);
                Span::Layer(span, format!("{trace_id}/{span_id}"))
            }
            (_, Span::Traced(root)) => Span::Traced(info_span!(parent: root, "child")),
            (_, Span::Older(root)) => Span::Older(info_span!(parent: root, "child")),
            (_, Span::Plain(root)) => Span::Plain(root.clone()),
        }
    }
}

/// Ids that nobody had before.
fn made_up() -> (String, String) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    (format!("{:032X}", u128::from(next) << 64 | 1), format!("{next:016x}"))
}

impl Span {
    /// Writes down that this function works in it.
    fn note(&self, function: &'static str, ids: &Ids) {
        let written = |span: &SpanContext| format!("{}/{}", span.trace_id(), span.span_id());
        let id = match self {
            Self::Plain(context) => written(context.span().span_context()),
            Self::Traced(span) => written(span.context().span().span_context()),
            Self::Older(span) => {
                let (trace_id, span_id) = older::ids(span).unwrap_or_default();
                format!("{}/{}", hex(&trace_id), hex(&span_id))
            }
            Self::Layer(_, id) => id.to_lowercase(),
        };
        ids.lock().unwrap_or_else(PoisonError::into_inner).entry(function).or_default().push(id);
    }

    /// A future in it.
    async fn around<T>(self, work: impl Future<Output = T>) -> T {
        match self {
            Self::Plain(context) => work.with_context(context).await,
            Self::Traced(span) | Self::Older(span) | Self::Layer(span, _) => work.instrument(span).await,
        }
    }

    /// Work in it on this thread.
    fn within(self, work: impl FnOnce()) {
        match self {
            Self::Plain(context) => {
                let _current = context.attach();
                work();
            }
            Self::Traced(span) | Self::Older(span) | Self::Layer(span, _) => span.in_scope(work),
        }
    }
}

/// What a program with an older OpenTelemetry tells the profiler.
mod older {
    use opentelemetry_0_30::trace::TraceContextExt;
    use tracing_opentelemetry_0_31::OpenTelemetrySpanExt;

    pub(super) fn ids(span: &tracing::Span) -> Option<profiler::SpanIds> {
        let context = span.context();
        let span = context.span().span_context().clone();
        span.is_sampled().then(|| (span.trace_id().to_bytes(), span.span_id().to_bytes()))
    }
}
