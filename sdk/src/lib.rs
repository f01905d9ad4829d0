//! Continuous profiling for Rust services.
//!
//! [`start`] in `main`, tags around the work of a request, and from then on every sample of CPU time says which function
//! ran, for which endpoint. Profiles leave as OTLP, and are served inside the process: a flame graph page and the
//! endpoints that `go tool pprof` knows.
//!
//! ```no_run
//! fn main() -> Result<(), profiler::Error> {
//!     let _profiler = profiler::start(profiler::Config::new("checkout").serve("127.0.0.1:6060"))?;
//!     serve_orders();
//!     Ok(())
//! }
//!
//! fn serve_orders() {
//!     let _scope = profiler::tag!("endpoint" => "/orders", "method" => "POST");
//!     // Whatever runs on this thread until `_scope` is dropped carries these tags.
//! }
//! ```
//!
//! # Async code
//!
//! A task moves from thread to thread, and its tags move along where they are given to the future: they are in force whenever it is polled, and at no other
//! time. For whole services there is `tower::TagLayer` (features `tower` and `axum`).
//!
//! ```
//! use profiler::FutureExt;
//!
//! # async fn price(order: u64) -> u64 { order }
//! # async fn send_mail(order: u64) {}
//! # async fn handle(order: u64) -> u64 {
//! let tags = profiler::tags!("endpoint" => "/orders", "method" => "POST");
//! let price = price(order).with_tags(tags).await;
//! // What is spawned takes nothing along by itself. This one takes the tags of here:
//! let mail = send_mail(order).with_current_tags();
//! # mail.await;
//! # price
//! # }
//! ```
//!
//! On functions, async ones too, `#[profiler::tagged(endpoint = "/orders")]`.
//!
//! # Spans
//!
//! Samples link to the span of OpenTelemetry 0.33 that is current where they are taken, alone or below `tracing-opentelemetry`, with nothing to add but
//! [`start`]. For an older OpenTelemetry, or none, there is `tracing_layer` (feature `tracing-layer`). Which span: [`Config::span_link`]; why there is
//! none: [`SpanStats::notes`].
//!
//! ```
//! # #[cfg(feature = "opentelemetry")] {
//! use opentelemetry::Context;
//! use opentelemetry::trace::{FutureExt, TraceContextExt, Tracer};
//!
//! # async fn price(order: u64) -> u64 { order }
//! # async fn handle(order: u64) -> u64 {
//! let span = opentelemetry::global::tracer("checkout").start("price");
//! let context = Context::current_with_span(span);
//! price(order).with_context(context).await // samples in it link to the span, on whichever thread it runs
//! # }
//! # }
//! ```
//!
//! # The heap
//!
//! With the feature `heap` and the line `profiler::jemalloc!();` in a program's `main.rs`, what lives on the heap and what was
//! allocated is known by function, tag and span. What keeps a program from it is in [`Stats::heap`].
//!
//! # Settings
//!
//! Code wins over `PROFILER_*`, that over `OTEL_EXPORTER_OTLP_PROFILES_*`, that over other `OTEL_*`, each setting by itself. What
//! code and environment both set is named in the log at the start, and so is a `PROFILER_*` that is no setting. Methods and variables of all destinations: `docs/settings.md`.
//!
//! | variable | code | default |
//! |---|---|---|
//! | `PROFILER_ENABLED` | | `1`; with `0`, [`start`] returns a guard that does nothing |
//! | `PROFILER_RATE_HZ` | [`Config::rate_hz`] | `100`; 1 to 10000 |
//! | `PROFILER_INTERVAL` | [`Config::interval`] | `10s`; 100 ms to 1 h |
//! | `PROFILER_ENGINE` | [`Config::engine`] | `auto`; `perf`, `timer`, `process_timer`, `setitimer`: see [`EngineChoice`] |
//! | `PROFILER_HEAP` | [`Config::heap`] | on where the feature `heap` is, and jemalloc with profiling |
//! | `PROFILER_HEAP_INTERVAL` | [`Config::heap_interval`] | jemalloc's; bytes, a power of two |
//! | `PROFILER_SYMBOLIZE` | [`Config::symbolize`] | `1`; with `0`, frames carry addresses and build ids, no names |
//! | `PROFILER_SPAN_LINK` | [`Config::span_link`] | `current`; `local_root`: see [`SpanLink`] |
//! | `PROFILER_LINK_UNSAMPLED_SPANS` | [`Config::link_unsampled_spans`] | `0`; with `1`, samples link also to spans that are not sampled |
//! | `PROFILER_SERVE` | [`Config::serve`] | not served |
//! | `PROFILER_SERVE_TOKEN` | [`Config::serve_token`] | everybody who reaches the address is answered |
//! | `PROFILER_SERVE_CERTIFICATE`, `PROFILER_SERVE_KEY` | [`Config::serve_tls`] | plain HTTP; paths of PEM files |
//! | `PROFILER_QUEUE_BYTES` | [`Config::queue_bytes`] | `16777216` for each destination; 2000000 to 1073741824 |
//! | `PROFILER_SPOOL_DIR` | [`Config::spool`] | none: what waits is in memory alone |
//! | `PROFILER_SPOOL_BYTES` | [`Config::spool_bytes`] | `268435456`; 16777216 to 1099511627776 |
//! | `OTEL_EXPORTER_OTLP_[PROFILES_]{ENDPOINT,PROTOCOL,INSECURE}` | [`Config::export`] | no endpoint: nothing is sent |
//! | `OTEL_EXPORTER_OTLP_[PROFILES_]{HEADERS,TIMEOUT,COMPRESSION}` | [`export::Otlp`], each by itself | none, `10000` ms, `gzip` |
//! | `OTEL_EXPORTER_OTLP_[PROFILES_]{CERTIFICATE,CLIENT_CERTIFICATE,CLIENT_KEY}` | [`export::Otlp`], each by itself | the machine's authorities |
//! | `PYROSCOPE_SERVER_ADDRESS` | [`export::Pyroscope`] | no server: nothing is pushed |
//! | `PYROSCOPE_BASIC_AUTH_USER`, `PYROSCOPE_BASIC_AUTH_PASSWORD`, `PYROSCOPE_TENANT_ID` | [`export::Pyroscope`], each by itself | none |
//! | `PARCA_BEARER_TOKEN` | [`export::Parca::bearer_token`] | none |
//! | `PROFILER_FILES_DIR` | [`export::Files`], [`Config::export`] | no files |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | [`Config::new`], [`Config::tag`] | |
//!
//! TLS, of endpoints and of the server, is the feature `tls`. Without it, where everything goes to an agent beside the service, a program has no `rustls` and
//! no `ring` in it, and an `https://` endpoint or a certificate is an error that names the feature.
//!
//! # A guest in the process
//!
//! The profiler never prints (it logs with `tracing`), never panics, and bounds its memory and its time. What it could
//! not deliver is counted by cause: [`Profiler::stats`]. It owns two threads, `profiler` and `profiler-io`, others, `profiler-wait`,
//! while it waits for a disk or for the address of a name, and the signal SIGPROF; a handler of SIGPROF that was there before still gets the signals that are not ours.
//!
//! # Platforms
//!
//! Linux on x86_64 and aarch64, with glibc or musl. Elsewhere (macOS, Windows, other processors) the crate builds with all of
//! its interface, tags cost what they cost, and [`start`] gives an error of the kind [`ErrorKind::Environment`] that says
//! what is missing: go on without a profiler there, or set `PROFILER_ENABLED=0`.

#![cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    expect(dead_code, reason = "settings and tags are checked and kept where nothing samples, and nobody reads them")
)]

#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod aggregate;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod assemble;
#[cfg(feature = "cpu")]
mod config;
#[cfg(feature = "cpu")]
mod context;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod cpu;
#[cfg(feature = "cpu")]
mod engine;
mod error;
#[cfg(feature = "export")]
pub mod export;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod fork;
#[cfg(feature = "cpu")]
mod heap;
#[cfg(feature = "opentelemetry-metrics")]
mod metrics;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod others;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod own_file;
#[cfg(feature = "cpu")]
mod profiler;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod publish;
#[cfg(any(feature = "export", feature = "serve"))]
mod seldom;
#[cfg(feature = "serve")]
pub mod serve;
mod stats;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod symbolize;
#[cfg(feature = "export")]
mod unknown;
#[cfg(all(feature = "cpu", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unwind;
#[cfg(any(feature = "export", feature = "serve"))]
mod variables;
#[cfg(any(feature = "export", feature = "serve"))]
mod watched;

#[cfg(feature = "cpu")]
pub use config::Config;
#[cfg(feature = "cpu")]
pub use context::attributes::MAX_TAG_BYTES;
#[cfg(feature = "cpu")]
pub use context::future::{FutureExt, StreamExt, WithTags, inherit};
#[cfg(feature = "cpu")]
pub use context::keys::MAX_KEYS;
#[cfg(feature = "tracing-layer")]
pub use context::layer::{SpanIds, TracingLayer, tracing_layer};
#[cfg(feature = "opentelemetry-sdk")]
pub use context::roots::ProfiledSpans;
#[cfg(feature = "cpu")]
pub use context::spans::SpanLink;
#[cfg(feature = "cpu")]
pub use context::tags::{MAX_KEY, MAX_VALUE, Scope, Tags, with_tags};
#[cfg(feature = "tower")]
pub use context::tower;
#[cfg(feature = "cpu")]
pub use engine::EngineChoice;
pub use error::{Error, ErrorKind};
#[cfg(feature = "cpu")]
pub use profiler::{ProfileKind, Profiler, start};
pub use profiler_proto as proto;
/// Puts tags in force while a function works, on top of those that are:
///
/// ```
/// # struct User { tier: u8 }
/// # struct Order;
/// #[profiler::tagged(endpoint = "/orders", user.tier = user.tier)]
/// fn price(user: &User, order: &Order) -> u64 {
///     // Samples taken here, and in all that this calls, say endpoint=/orders and user.tier=3.
/// #    42
/// }
///
/// #[profiler::tagged(endpoint = "/orders", "order-id" = id)]
/// async fn place(id: u64) {
///     // The same, on whichever thread the task runs, before and after each `.await`.
/// }
/// ```
#[cfg(feature = "macros")]
pub use profiler_sdk_macros::tagged;
pub use stats::{
    AllocatorStats, DestinationStats, EngineStats, Figure, HeapDumps, HeapLost, HeapStats, KindStats, Ledger,
    SpanStats, SpoolStats, Stats, StatsSection, SymbolStats, TagStats,
};

/// What macros of this crate need in other crates: not for use.
#[doc(hidden)]
pub mod __private {
    #[cfg(all(feature = "heap", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub use tikv_jemallocator::Jemalloc;

    #[cfg(feature = "macros")]
    pub use crate::context::fixed::FixedTags;
    #[cfg(all(feature = "heap", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub use crate::heap::{Options, refuse_memory};
}
