//! The shop of `examples`, its source as it stands there, under whichever profiler a subject has.
//!
//! In: requests, which `shop client` sends. Out: answers, until standard input ends. The shop's own program starts our
//! profiler; here it is the subject that starts one, so that all of them have the same work. Its modules name each other from
//! the root of the crate: a subject brings them there with `use`.

#[path = "../../../../examples/src/bin/shop/book.rs"]
pub(crate) mod book;
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

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use opentelemetry::trace::{FutureExt, TraceContextExt, Tracer};
use opentelemetry::{Context, global};
use opentelemetry_sdk::trace::SdkTracerProvider;
use profiler_tests::Result;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Opens the shop on a free port, which `ready` is told, until standard input ends. `spans`: makes a span for each request.
pub(crate) fn serve(spans: bool, ready: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    open(spans, |router| router, ready)
}

/// The same with tags for each request that has a span.
pub(crate) fn serve_tagged(spans: bool, ready: &mut dyn FnMut(SocketAddr)) -> Result<()> {
    open(spans, |router| router.layer(profiler::tower::TagLayer::new()), ready)
}

/// A request in a span of its own, which goes nowhere.
async fn trace(request: Request, next: Next) -> Response {
    let context = Context::new();
    let span = global::tracer("shop").start_with_context("request", &context);
    next.run(request).with_context(context.with_span(span)).await
}

fn open(spans: bool, tagged: fn(Router) -> Router, ready: &mut dyn FnMut(SocketAddr)) -> Result<()> {
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
        let mut router = routes::router(service::Shop::open(None));
        if spans {
            global::set_tracer_provider(SdkTracerProvider::builder().build());
            router = tagged(router).layer(middleware::from_fn(trace));
        }
        let server = axum::serve(listener, router);
        tokio::select! {
            outcome = server.into_future() => Ok(outcome?),
            _ = ended => Ok(()),
        }
    })
}
