//! The stock, which another service keeps: the shop's side of the call.
//!
//! In: the lines of an order. Out: `POST /reservations` to `shop inventory`, over connections that are kept, with `traceparent`, so that
//! the other service's spans are in the same trace.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry::propagation::Injector;
use opentelemetry::trace::{FutureExt, SpanKind, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use tokio::net::TcpStream;

use crate::orders::{Item, Receipt};

/// How long the other service may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are kept while nobody uses them.
const MAX_IDLE: usize = 64;

/// Why nothing is reserved.
#[derive(Debug, thiserror::Error)]
#[error("the inventory at {address} did not reserve the items: {reason}")]
pub(crate) struct NotReserved {
    address: SocketAddr,
    reason: String,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The service that keeps the stock.
#[derive(Debug)]
pub(crate) struct Stock {
    address: SocketAddr,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Stock {
    /// The one that listens there.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Has what was ordered set aside.
    pub(crate) async fn reserve(&self, receipt: &Receipt) -> Result<(), NotReserved> {
        let tracer = global::tracer("shop");
        let span = tracer.span_builder("POST /reservations").with_kind(SpanKind::Client).start(&tracer);
        let context = Context::current_with_span(span);
        let exchange = self.exchange(receipt).with_context(context.clone());
        let reason = match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(status)) => {
                context.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
                if status.is_success() {
                    return Ok(());
                }
                format!("it answered {status}")
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        Err(NotReserved { address: self.address, reason })
    }

    /// One request and its whole answer.
    async fn exchange(&self, receipt: &Receipt) -> Result<StatusCode, Failed> {
        let item = |line: &crate::pricing::Line| Item { sku: line.sku.clone(), quantity: line.quantity };
        let body = serde_json::to_vec(&receipt.lines.iter().map(item).collect::<Vec<_>>())?;
        let request = Request::post("/reservations").header("host", self.address.to_string());
        let mut request = request.body(Full::new(body.into()))?;
        global::get_text_map_propagator(|propagator| {
            propagator.inject_context(&Context::current(), &mut Head(request.headers_mut()));
        });
        let mut connection = self.connection().await?;
        let answer = connection.send_request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
        Ok(status)
    }

    /// One that is kept and still open, or a new one.
    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, Failed> {
        while let Some(mut kept) = self.take() {
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the sender; how is seen by whoever sends. In no request's context, for it serves many.
        tokio::spawn(connection.with_context(Context::new()));
        sender.ready().await?;
        Ok(sender)
    }

    fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// The head of a request, as OpenTelemetry writes it.
struct Head<'a>(&'a mut HeaderMap);

impl Injector for Head<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}
