//! Listens on one address, for HTTP/1.1 and HTTP/2 without TLS.
//!
//! In: connections. Out: requests to `http` and `grpc`. A connection without a request holds its seat for a bounded time, and goes at once where
//! another needs it ([`Seats`]); it has few of the places for bodies: one slow client is no other's concern, many are.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use profiler::serve::{Answering, Seat, Seats};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::intake::Intake;
use super::{Bounds, grpc, http};
use crate::error::Error;

/// The body of an answer.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Pause after the system refused a connection: it will not have more at once.
const REST: Duration = Duration::from_millis(250);
/// How often it is said that connections go for others.
const SAY: Duration = Duration::from_secs(60);
/// How HTTP/2 begins without TLS (RFC 9113, section 3.4): no method of HTTP/1.1 does.
const PREFACE: &[u8] = b"PRI ";

/// A receiver that has its address and does not answer yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Takes the address.
///
/// # Errors
/// The address cannot be had: in use, not this machine's, not allowed.
pub fn bind(address: SocketAddr) -> Result<Bound, Error> {
    let refused = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => "choose another port: another receiver may have this one",
            io::ErrorKind::AddrNotAvailable => "choose an address that this machine has, such as 127.0.0.1",
            io::ErrorKind::PermissionDenied => "choose a port above 1023",
            _ => "choose another address",
        };
        Error::new(format!("receive profiles on {address}"), error.to_string(), remedy)
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    if !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "profiles are taken from everybody who can reach this address; there is no password");
    }
    Ok(Bound { listener, address })
}

impl Bound {
    /// The address, with the port that was found where 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Receives until it is dropped; spawn it on a tokio runtime with I/O and time. Connections end with it.
    pub async fn run(self, intake: Arc<Intake>, bounds: Bounds) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "no profiles are received: the runtime refuses the socket"),
        };
        let seats = Seats::new(bounds.connections, usize::MAX);
        let door = Arc::new(Door::new(intake, bounds));
        let mut connections = JoinSet::new();
        // This loop has no other end than being dropped.
        loop {
            let stream = accept(&listener).await;
            let (seat, door) = (seats.take().await, Arc::clone(&door));
            connections.spawn(async move {
                tokio::select! {
                    () = seat.leave() => door.crowded_out(),
                    () = converse(stream, &door, &seat) => {}
                }
            });
            while connections.try_join_next().is_some() {}
        }
    }
}

/// What every request meets.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) intake: Arc<Intake>,
    pub(super) bounds: Bounds,
    /// Places for bodies under way.
    requests: Semaphore,
    /// When it was last said that connections go for others.
    said: Mutex<Option<Instant>>,
}

impl Door {
    fn new(intake: Arc<Intake>, bounds: Bounds) -> Self {
        Self { intake, bounds, requests: Semaphore::new(bounds.requests), said: Mutex::default() }
    }

    /// A place for a body, or why there is none now.
    pub(super) fn admit(&self) -> Result<SemaphorePermit<'_>, Later> {
        if self.intake.puts_off() {
            return Err(Later { why: "too much CPU is used, and this waits for now", seconds: "5" });
        }
        let crowded = |_| Later { why: "too many requests are under way", seconds: "1" };
        self.requests.try_acquire().map_err(crowded)
    }

    /// An idle connection went for a new one.
    fn crowded_out(&self) {
        self.intake.closed_idle();
        // A plain time: whole even if the lock is poisoned.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SAY) {
            *said = Some(Instant::now());
            let most = self.bounds.connections;
            tracing::warn!("the receiver has {most} connections: those that are idle longest are closed for new ones");
        }
    }
}

/// Why a request is to come again, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Later {
    pub(super) why: &'static str,
    pub(super) seconds: &'static str,
}

/// The next connection.
async fn accept(listener: &tokio::net::TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::debug!(%error, "a connection to the receiver was not accepted");
                sleep(REST).await;
            }
        }
    }
}

/// Answers the requests of one connection until its end.
async fn converse(stream: TcpStream, door: &Arc<Door>, seat: &Arc<Seat>) {
    let patience = door.bounds.patience;
    let ended = match timeout(patience, is_http2(&stream)).await {
        Ok(Ok(true)) => converse_http2(stream, door, seat).await,
        Ok(Ok(false)) => converse_http1(stream, door, seat).await,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection to the receiver said nothing"),
        Err(_) => return tracing::debug!("a connection to the receiver said nothing for too long"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the receiver ended early");
    }
}

/// Whether the client begins as HTTP/2 does; looks without taking.
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut begun = [0; PREFACE.len()];
    loop {
        let read = stream.peek(&mut begun).await?;
        let begun = begun.get(..read).unwrap_or_default();
        if !PREFACE.starts_with(begun) || read == 0 {
            return Ok(false);
        }
        if read == PREFACE.len() {
            return Ok(true);
        }
        // What is there already makes a socket readable, so that only time tells of more.
        sleep(Duration::from_millis(5)).await;
    }
}

async fn converse_http1(stream: TcpStream, door: &Arc<Door>, seat: &Arc<Seat>) -> hyper::Result<()> {
    let service = service_fn(|request| answer(request, Arc::clone(door), seat.answering()));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(door.bounds.patience)
        .max_buf_size(16 << 10)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn converse_http2(stream: TcpStream, door: &Arc<Door>, seat: &Arc<Seat>) -> hyper::Result<()> {
    let bounds = door.bounds;
    let service = service_fn(|request| answer(request, Arc::clone(door), seat.answering()));
    let mut connection = pin!(
        http2::Builder::new(OnThisThread)
            .timer(TokioTimer::new())
            .max_concurrent_streams(bounds.streams)
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(1 << 20)
            .max_header_list_size(16 << 10)
            .keep_alive_interval(bounds.patience)
            .keep_alive_timeout(bounds.patience)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = seat.idle(bounds.idle) => {}
    }
    door.intake.closed_idle();
    // A request that is on its way at this moment is still answered.
    connection.as_mut().graceful_shutdown();
    timeout(bounds.patience, connection).await.unwrap_or(Ok(()))
}

/// A request of either protocol is of gRPC if it says so; then the answer is, too.
async fn answer(request: Request<Incoming>, door: Arc<Door>, _answering: Answering) -> Result<Answer, Infallible> {
    Ok(if grpc::is_call(&request) { grpc::answer(request, &door).await } else { http::answer(request, &door).await })
}

/// Runs what HTTP/2 does beside the connection on the runtime of whoever polls it.
#[derive(Debug, Clone, Copy)]
struct OnThisThread;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for OnThisThread {
    fn execute(&self, future: F) {
        tokio::spawn(Quiet(Box::pin(future)));
    }
}

/// A future whose output is of no interest.
struct Quiet<F>(Pin<Box<F>>);

impl<F: Future> Future for Quiet<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context).map(drop)
    }
}
