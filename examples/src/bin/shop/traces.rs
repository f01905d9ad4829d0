//! Traces: a span for each request, in the trace of whoever sent it, exported if the environment says where to.
//!
//! In: requests with or without `traceparent`. Out: spans over OTLP, and `x-trace-id` on each answer. Nothing here speaks of profiles:
//! the profiler follows OpenTelemetry by itself, and a sample links to the span in which it was taken.

use std::error::Error;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{FutureExt, SpanKind, TraceContextExt, Tracer};
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;

use crate::otlp;

const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");

/// Makes spans from now on for the service of this name; the provider is to be shut down at the end. Needs a runtime, on which an
/// exporter sends.
pub(crate) fn open(service: &'static str) -> Result<SdkTracerProvider, Box<dyn Error>> {
    global::set_text_map_propagator(TraceContextPropagator::new());
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name(service).build())
        // Marks the spans that profiles belong to, for Grafana.
        .with_span_processor(profiler::ProfiledSpans::new());
    let provider = match otlp::is_sent("TRACES") {
        true => provider.with_batch_exporter(SpanExporter::builder().with_tonic().build()?).build(),
        false => provider.build(),
    };
    global::set_tracer_provider(provider.clone());
    Ok(provider)
}

/// Sends what is left.
pub(crate) fn close(provider: &SdkTracerProvider) {
    if let Err(error) = provider.shutdown() {
        tracing::warn!(%error, "not all spans were sent");
    }
}

/// Answers a request in a span of its own, named after its route.
pub(crate) async fn trace(request: Request, next: Next) -> Response {
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&Head(request.headers())));
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str);
    let tracer = global::tracer("shop");
    let span = tracer
        .span_builder(format!("{} {route}", request.method()))
        .with_kind(SpanKind::Server)
        .with_attributes([KeyValue::new("http.route", route.to_owned())])
        .start_with_context(&tracer, &parent);
    let context = parent.with_span(span);
    // Current at every poll, on whichever thread that is.
    let mut response = next.run(request).with_context(context.clone()).await;
    let span = context.span();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(response.status().as_u16())));
    if let Ok(id) = HeaderValue::try_from(span.span_context().trace_id().to_string()) {
        response.headers_mut().insert(TRACE_ID, id);
    }
    response
}

/// The head of a request, as OpenTelemetry reads it.
struct Head<'a>(&'a HeaderMap);

impl Extractor for Head<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
