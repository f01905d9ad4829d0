//! One connection to one peer, opened when it is needed and replaced when it fails, is old, or was idle.
//!
//! In: a request with its body. Out: the whole answer, bounded in time and in bytes, or why there is none. HTTP/1.1 for
//! OTLP/HTTP, HTTP/2 for gRPC, over TCP, TLS or a socket of Unix. Names are resolved again for each new connection, so that a peer that
//! moved is found; of its addresses, one that is dead hides no other. Runs on the exporting thread's runtime; redirects are not followed, proxies not used.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpStream, lookup_host};

use super::answer::chain;
use super::protocol::Version;
use super::tasks::Tasks;
use super::tls::{self, Tls};
use super::wire::{Break, Flow, Stream, TURN, Wire};
use crate::watched::watched;

/// No answer is read further than this (OTLP specification: response size limit of 4 MiB).
pub(super) const LONGEST_ANSWER: usize = 4 << 20;
/// Nor is more read for it, with all that is no body: heads, informational answers, frames.
const MOST_READ: usize = LONGEST_ANSWER + (1 << 20);

/// How long a connection is used.
#[derive(Debug, Clone, Copy)]
struct Ages {
    /// In all: behind a name that now leads elsewhere, the old peer would be sent to for ever.
    most: Duration,
    /// Without a request: servers and balancers close after a minute and more, and a request that meets with that is sent twice.
    idle: Duration,
    /// In HTTP/2, the peer is asked for a sign of life while a request is under way, so often.
    ping: Duration,
    /// And has so long to give it.
    pong: Duration,
}

impl Default for Ages {
    fn default() -> Self {
        let [most, idle, ping, pong] = [300, 50, 60, 20].map(Duration::from_secs);
        Self { most, idle, ping, pong }
    }
}

/// Bytes that a peer may send over HTTP/2 before they are read. Source: RFC 9113, section 6.9.2, the initial window.
const WINDOW: u32 = 65_535;

/// No address of several is waited for longer, but for the last.
const LONGEST_SHARE: Duration = Duration::from_secs(2);

/// A peer and, while there is one, the connection to it.
#[derive(Debug)]
pub(super) struct Connection {
    host: String,
    port: u16,
    version: Version,
    /// `None` speaks in the clear.
    tls: Option<Tls>,
    /// A socket of Unix that is connected to instead of host and port.
    socket: Option<PathBuf>,
    ages: Ages,
    open: Option<Open>,
    /// The address that was connected to last, and whether it answered.
    last: Option<(SocketAddr, bool)>,
    /// Bytes of bodies that were handed to an open connection.
    sent_bytes: u64,
}

/// What a peer answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: HeaderMap,
    /// Whether the body ended within the bound.
    pub(super) whole: bool,
}

/// A connection whose tasks end with it, even if the peer never closes its side.
#[derive(Debug)]
struct Open {
    requests: Requests,
    _tasks: Tasks,
    opened: Instant,
    usage: Arc<Usage>,
    flow: Arc<Flow>,
}

/// What a connection and those who send on it know of each other.
#[derive(Debug)]
struct Usage {
    idle: Duration,
    state: Mutex<Use>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// A request is under way.
    Busy,
    IdleSince(Instant),
    /// It was idle for too long.
    Ending,
}

#[derive(Debug)]
enum Requests {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// A peer that is not connected to yet.
    pub(super) fn new(host: String, port: u16, version: Version, tls: Option<Tls>) -> Self {
        Self { host, port, version, tls, socket: None, ages: Ages::default(), open: None, last: None, sent_bytes: 0 }
    }

    /// The same peer at a socket of Unix.
    pub(super) fn at(self, socket: PathBuf) -> Self {
        Self { socket: Some(socket), ..self }
    }

    /// Sends `request` and reads the answer, all within `timeout`.
    ///
    /// # Errors
    /// Why there is no answer, for people. The request may or may not have been taken in.
    pub(super) async fn exchange(&mut self, request: Request<Full<Bytes>>, timeout: Duration) -> Result<Reply, String> {
        // Taken out, so that a failure or a timeout leaves nothing behind: the next request starts afresh.
        let open = self.open.take();
        let (bytes, mut sent_bytes) = (request.body().size_hint().lower(), 0);
        let attempt = async {
            let mut open = self.ready(open, Instant::now() + timeout).await?;
            sent_bytes = bytes;
            let reply = open.exchange(request).await.map_err(|Break { why, refused }| {
                // A peer that did not let us in has got nothing.
                sent_bytes = if refused { 0 } else { bytes };
                why
            })?;
            Ok::<_, String>((open, reply))
        };
        let outcome = tokio::time::timeout(timeout, attempt).await;
        self.sent_bytes += sent_bytes;
        if sent_bytes > 0 {
            self.last = self.last.map(|(address, _)| (address, matches!(outcome, Ok(Ok(_)))));
        }
        let (open, reply) = match outcome {
            Ok(outcome) => outcome?,
            Err(_) => return Err(format!("{}: no answer within {timeout:?}", self.peer())),
        };
        // A body that was left unread would stand before the next answer.
        self.open = reply.whole.then_some(open);
        Ok(reply)
    }

    /// Bytes of bodies that were handed to an open connection until now, by all requests.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// The connection at hand if it is still good, else a new one, by `deadline`.
    async fn ready(&mut self, open: Option<Open>, deadline: Instant) -> Result<Open, String> {
        let mut old = None;
        if let Some(mut open) = open
            && open.ready().await
        {
            if open.opened.elapsed() < self.ages.most {
                return Ok(open);
            }
            old = Some(open);
        }
        // An old one is given up when there is a new one. Where there is none, it is as good as it was, and is asked for half of the time at
        // most.
        let until = if old.is_some() { Instant::now() + deadline.duration_since(Instant::now()) / 2 } else { deadline };
        let new = match tokio::time::timeout_at(until.into(), self.anew(until)).await {
            Ok(new) => new,
            Err(_) => Err(format!("connect to {}: no connection in time", self.peer())),
        };
        if let (Err(_), Some(mut old)) = (&new, old)
            && old.ready().await
        {
            return Ok(old);
        }
        new
    }

    /// A new connection.
    async fn anew(&mut self, deadline: Instant) -> Result<Open, String> {
        let failed = |why: &str| format!("connect to {}: {why}", self.peer());
        if let Some(socket) = &self.socket {
            return self.open_socket(socket).await.map_err(|why| failed(&why));
        }
        let found = lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| failed(&chain(&error)))?;
        self.connect(found.collect(), deadline).await
    }

    /// The peer, for people.
    fn peer(&self) -> String {
        match &self.socket {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    /// Connects to the first of `addresses` that lets us, each within its share of the time that is left.
    async fn connect(&mut self, mut addresses: Vec<SocketAddr>, deadline: Instant) -> Result<Open, String> {
        addresses.sort_by_key(|address| self.rank(*address));
        let mut why = "the name has no address".to_owned();
        for (index, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = match u32::try_from(addresses.len() - index) {
                Ok(several @ 2..) => (left / several).min(LONGEST_SHARE),
                _ => left,
            };
            match tokio::time::timeout(share, self.open(*address)).await {
                Ok(Ok(open)) => {
                    self.last = Some((*address, false));
                    return Ok(open);
                }
                Ok(Err(error)) => why = error,
                Err(_) => why = format!("{address}: no connection within {share:?}"),
            }
        }
        Err(format!("connect to {}: {why}", self.peer()))
    }

    /// In which order addresses are tried: first the one that answered last; one that did not, at the end.
    fn rank(&self, address: SocketAddr) -> u8 {
        match self.last {
            Some((last, true)) if last == address => 0,
            Some((last, false)) if last == address => 2,
            _ => 1,
        }
    }

    async fn open(&self, address: SocketAddr) -> Result<Open, String> {
        let tcp = TcpStream::connect(address).await.map_err(|error| chain(&error))?;
        tcp.set_nodelay(true).map_err(|error| chain(&error))?;
        let open = match &self.tls {
            None => Open::new(Box::new(tcp), self.version, self.ages).await,
            Some(tls) => {
                let stream = tls.handshake(tcp, &self.host, self.version).await.map_err(|error| tls::why(&error))?;
                Open::new(Box::new(stream), self.version, self.ages).await
            }
        };
        open.map_err(|error| chain(&error))
    }

    #[cfg(unix)]
    async fn open_socket(&self, socket: &Path) -> Result<Open, String> {
        let stream = tokio::net::UnixStream::connect(socket).await.map_err(|error| chain(&error))?;
        Open::new(Box::new(stream), self.version, self.ages).await.map_err(|error| chain(&error))
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_async, reason = "as the other one, which waits")]
    async fn open_socket(&self, _: &Path) -> Result<Open, String> {
        Err("this system has no sockets of Unix".to_owned())
    }
}

impl Open {
    async fn new(stream: Box<dyn Stream>, version: Version, ages: Ages) -> hyper::Result<Self> {
        let (flow, opened) = (Flow::new(MOST_READ), Instant::now());
        let io = TokioIo::new(Wire::new(stream, Arc::clone(&flow)));
        let usage = Arc::new(Usage { idle: ages.idle, state: Mutex::new(Use::IdleSince(opened)) });
        let tasks = Tasks::new();
        let spawner = tasks.spawner();
        let requests = match version {
            Version::Http1 => {
                let (requests, connection) = http1::Builder::new().max_buf_size(TURN).handshake(io).await?;
                spawner.execute(watched(until_idle(connection, Arc::clone(&usage))));
                Requests::Http1(requests)
            }
            Version::Http2 => {
                let mut builder = http2::Builder::new(spawner.clone());
                builder.timer(TokioTimer::new()).keep_alive_interval(ages.ping).keep_alive_timeout(ages.pong);
                // Answers are short: what comes before we have asked for it stays within the bound.
                builder.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
                let (requests, connection) = builder.handshake(io).await?;
                spawner.execute(watched(until_idle(connection, Arc::clone(&usage))));
                Requests::Http2(requests)
            }
        };
        Ok(Self { requests, _tasks: tasks, opened, usage, flow })
    }

    /// Whether a request can be sent, which it then must be, or this dropped.
    async fn ready(&mut self) -> bool {
        if !self.usage.begin() {
            return false;
        }
        match &mut self.requests {
            Requests::Http1(requests) => requests.ready().await.is_ok(),
            Requests::Http2(requests) => requests.ready().await.is_ok(),
        }
    }

    /// Sends a request and reads the answer. Who keeps this afterwards says that it is idle.
    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, Break> {
        self.usage.begin();
        self.flow.begin();
        let outcome = self.send(request).await;
        self.usage.end();
        match outcome {
            Ok(reply) => {
                self.flow.answered();
                Ok(reply)
            }
            Err(why) => Err(self.flow.broke().unwrap_or(Break { why, refused: false })),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
        let response = match &mut self.requests {
            Requests::Http1(requests) => requests.send_request(request).await,
            Requests::Http2(requests) => requests.send_request(request).await,
        };
        let (head, body) = response.map_err(|error| format!("send: {}", chain(&error)))?.into_parts();
        let mut reply = Reply {
            status: head.status,
            headers: head.headers,
            body: Bytes::new(),
            trailers: HeaderMap::new(),
            whole: false,
        };
        reply.read(body).await.map_err(|error| format!("read the answer: {}", chain(&error)))?;
        Ok(reply)
    }
}

impl Usage {
    /// A request is to be sent; `false` if it is too late for that.
    fn begin(&self) -> bool {
        let mut state = self.state();
        if *state != Use::Ending {
            *state = Use::Busy;
        }
        *state == Use::Busy
    }

    /// The request has ended.
    fn end(&self) {
        *self.state() = Use::IdleSince(Instant::now());
    }

    /// Comes when it has been idle for too long.
    async fn ended(&self) {
        loop {
            let wait = {
                let mut state = self.state();
                match *state {
                    Use::IdleSince(since) if since.elapsed() >= self.idle => {
                        *state = Use::Ending;
                        return;
                    }
                    Use::IdleSince(since) => self.idle.saturating_sub(since.elapsed()),
                    Use::Busy | Use::Ending => self.idle,
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, Use> {
        // A plain value, changed in one step: what a poisoned lock guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a connection to its end. Its own errors reach us through the request that they break.
async fn until_idle(connection: impl Future<Output = hyper::Result<()>>, usage: Arc<Usage>) {
    let (mut connection, mut ended) = (pin!(connection), pin!(usage.ended()));
    poll_fn(|context| {
        let ended = connection.as_mut().poll(context).is_ready() || ended.as_mut().poll(context).is_ready();
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl Reply {
    /// Reads the body up to its end or the bound.
    async fn read(&mut self, mut incoming: Incoming) -> hyper::Result<()> {
        let mut body = BytesMut::new();
        while let Some(frame) = incoming.frame().await.transpose()? {
            match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data[..data.len().min(LONGEST_ANSWER + 1 - body.len())]),
                Err(frame) => self.trailers = frame.into_trailers().unwrap_or_default(),
            }
            if body.len() > LONGEST_ANSWER {
                break;
            }
        }
        self.whole = body.len() <= LONGEST_ANSWER;
        self.body = body.freeze();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
