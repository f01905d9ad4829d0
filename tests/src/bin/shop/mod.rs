//! The shop of `examples`, its source as it stands there, under whichever profiler a subject has.
//!
//! In: requests, which `shop client` sends. Out: answers, until standard input ends. The shop's own program starts our
//! profiler; here it is the subject that starts one, so that all of them have the same work. Its modules name each other from
//! the root of the crate: a subject brings them there with `use`.

#[path = "../../../../examples/src/bin/shop/book.rs"]
pub(crate) mod book;
#[path = "../../../../examples/src/bin/shop/cache.rs"]
pub(crate) mod cache;
#[path = "../../../../examples/src/bin/shop/catalogue.rs"]
pub(crate) mod catalogue;
#[path = "../../../../examples/src/bin/shop/dice.rs"]
pub(crate) mod dice;
#[path = "../../../../examples/src/bin/shop/orders.rs"]
pub(crate) mod orders;
#[path = "../../../../examples/src/bin/shop/pricing.rs"]
pub(crate) mod pricing;
#[path = "../../../../examples/src/bin/shop/report.rs"]
pub(crate) mod report;
#[path = "../../../../examples/src/bin/shop/routes.rs"]
pub(crate) mod routes;
#[path = "../../../../examples/src/bin/shop/search.rs"]
pub(crate) mod search;
#[path = "../../../../examples/src/bin/shop/service.rs"]
pub(crate) mod service;
#[path = "../../../../examples/src/bin/shop/stock.rs"]
pub(crate) mod stock;
pub(crate) mod turns;

use std::future::poll_fn;
use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Uri;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use http_body_util::BodyExt;
use opentelemetry::trace::{FutureExt, TraceContextExt, Tracer};
use opentelemetry::{Context, global};
use opentelemetry_sdk::trace::SdkTracerProvider;
use profiler_tests::Result;
use profiler_tests::subject::Rounds;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower_service::Service;

/// Polls of futures of requests that have a span.
static POLLS: AtomicU64 = AtomicU64::new(0);
/// Those requests.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Requests with a span that came until now.
pub(crate) fn requests_until_now() -> u64 {
    REQUESTS.load(Ordering::Relaxed)
}

/// Opens the shop on a free port, which `ready` is told, until standard input ends. `spans`: makes a span for each request. How often
/// futures of these were polled.
pub(crate) fn serve(spans: bool, ready: &mut dyn FnMut(SocketAddr)) -> Result<u64> {
    open(spans, |router| router, ready)
}

/// The same with tags for each request that has a span.
pub(crate) fn serve_tagged(spans: bool, ready: &mut dyn FnMut(SocketAddr)) -> Result<u64> {
    open(spans, tagged, ready)
}

/// The same with tags in turn, as [`turns::switch`] says.
pub(crate) fn serve_in_turn(spans: bool, ready: &mut dyn FnMut(SocketAddr)) -> Result<u64> {
    open(spans, turns::tagged_in_turn, ready)
}

fn tagged(router: Router) -> Router {
    router.layer(profiler::tower::TagLayer::new())
}

/// Answers a request that is no work, within a span of its own and a layer that does nothing: each round is one.
pub(crate) fn requests() -> Rounds<'static> {
    answering(|router| router.layer(tower_layer::Identity::new()))
}

/// The same with the layer that has tags.
pub(crate) fn tagged_requests() -> Rounds<'static> {
    answering(tagged)
}

fn answering(tagged: fn(Router) -> Router) -> Rounds<'static> {
    let router = traced(Router::new().route("/orders/{id}", get(|| async { "paid" })), tagged);
    Box::new(move |rounds| {
        let mut router = router.clone();
        for _ in 0..rounds {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static("/orders/17");
            let answer = async {
                let Ok(answer) = router.call(request).await;
                answer.into_body().collect().await
            };
            let outcome = black_box(pin!(answer).poll(&mut std::task::Context::from_waker(Waker::noop())));
            assert!(matches!(outcome, std::task::Poll::Ready(Ok(_))), "nothing is waited for");
        }
    })
}

/// Has each request in a span of its own, which goes nowhere.
fn traced(router: Router, tagged: fn(Router) -> Router) -> Router {
    global::set_tracer_provider(SdkTracerProvider::builder().build());
    tagged(router).layer(middleware::from_fn(trace))
}

async fn trace(request: Request, next: Next) -> Response {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    let context = Context::new();
    let span = global::tracer("shop").start_with_context("request", &context);
    let mut answer = pin!(next.run(request));
    let counted = poll_fn(|task| {
        POLLS.fetch_add(1, Ordering::Relaxed);
        answer.as_mut().poll(task)
    });
    counted.with_context(context.with_span(span)).await
}

fn open(spans: bool, tagged: fn(Router) -> Router, ready: &mut dyn FnMut(SocketAddr)) -> Result<u64> {
    let (end, ended) = oneshot::channel();
    // A thread of its own that nobody joins: a read cannot be called off.
    std::thread::spawn(move || {
        // An error ends the input, too.
        let _read = io::copy(&mut io::stdin(), &mut io::sink());
        end.send(())
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        ready(listener.local_addr()?);
        let mut router = routes::router(service::Shop::open(None, None));
        if spans {
            router = traced(router, tagged);
        }
        let server = axum::serve(listener, router);
        tokio::select! {
            outcome = server.into_future() => outcome?,
            _ = ended => {}
        }
        Ok(POLLS.load(Ordering::Relaxed))
    })
}
