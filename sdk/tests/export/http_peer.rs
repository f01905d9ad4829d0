//! A real HTTP server that does what a script says, request by request, and keeps what it got.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::profiles::{assert_lawful, gunzip};
use super::push::Push;

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    /// Answers with status, headers and body.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Takes the request and never answers.
    Hang,
    /// Takes the request, and answers 200 when the test says so.
    Hold(Arc<Notify>),
    /// Takes the request and closes the connection.
    Close,
    /// Begins a body and breaks off in it.
    BreakOff,
    /// Answers 200 with a body that never ends.
    Endless,
}

impl Reaction {
    /// An answer without headers.
    pub(crate) fn answer(status: u16, body: &[u8]) -> Self {
        Self::Answer(status, Vec::new(), body.to_vec())
    }
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// As it came.
    pub(crate) body: Vec<u8>,
    /// When it had come.
    pub(crate) at: Instant,
}

impl Received {
    /// The body, decompressed as the headers say.
    pub(crate) fn message(&self) -> Vec<u8> {
        match self.headers.get("content-encoding") {
            Some(encoding) => {
                assert_eq!(encoding, "gzip");
                gunzip(&self.body)
            }
            None => self.body.clone(),
        }
    }

    /// Checks that the body keeps the rules of its form.
    fn assert_lawful(&self) {
        match self.headers["content-type"].as_bytes() {
            b"application/proto" => drop(Push::of(&self.message())),
            _ => assert_lawful(&self.message()),
        }
    }
}

/// The server. Ends when it is dropped, and panics then if a body broke a rule of OTLP or of a backend.
pub(crate) struct HttpPeer {
    address: SocketAddr,
    seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    script: Mutex<VecDeque<Reaction>>,
    requests: Mutex<Vec<Received>>,
    connections: Mutex<usize>,
}

impl HttpPeer {
    /// A server on a free port; after its script it answers 200 with nothing.
    pub(crate) async fn start(script: impl IntoIterator<Item = Reaction>) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script).await
    }

    /// The same at `address`.
    pub(crate) async fn start_at(address: SocketAddr, script: impl IntoIterator<Item = Reaction>) -> Self {
        let listener = bind(address).listen(64).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen { script: Mutex::new(script.into_iter().collect()), ..Seen::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&seen)));
        Self { address, seen, accepting }
    }

    /// Its URL without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that arrived, in order.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        *self.seen.connections.lock().unwrap()
    }
}

/// A socket at `address`, a free port if its is 0. While it lives nobody else gets that port, and until a peer is started there, who
/// connects is refused.
pub(crate) fn bind(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    // A socket that keeps a port lets peers listen at it.
    socket.set_reuseport(true).expect("a socket");
    socket.bind(address).expect("a port on loopback");
    socket
}

/// An address that nobody listens at, for as long as the socket lives.
pub(crate) fn free_address() -> (TcpSocket, SocketAddr) {
    let socket = bind(SocketAddr::from(([127, 0, 0, 1], 0)));
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

impl Drop for HttpPeer {
    fn drop(&mut self) {
        self.accepting.abort();
        // A second panic would hide the first.
        if !std::thread::panicking() {
            self.requests().iter().for_each(Received::assert_lawful);
        }
    }
}

async fn accept(listener: TcpListener, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        *seen.connections.lock().unwrap() += 1;
        let seen = Arc::clone(&seen);
        let service = service_fn(move |request| react(request, Arc::clone(&seen)));
        tokio::spawn(async move { drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await) });
    }
}

/// Keeps the request and does what the script says; an error closes the connection.
async fn react(request: Request<Incoming>, seen: Arc<Seen>) -> io::Result<Response<ScriptedBody>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
    let (method, path) = (head.method.to_string(), head.uri.to_string());
    seen.requests.lock().unwrap().push(Received { method, path, headers: head.headers, body, at: Instant::now() });
    let next = seen.script.lock().unwrap().pop_front();
    match next.unwrap_or(Reaction::answer(200, b"")) {
        Reaction::Hang => std::future::pending::<Result<Infallible, _>>().await.map(|never| match never {}),
        Reaction::Hold(until) => {
            until.notified().await;
            Ok(Response::new(ScriptedBody::Whole(None)))
        }
        Reaction::Close => Err(io::Error::other("as the script says")),
        Reaction::BreakOff => Ok(Response::new(ScriptedBody::BreaksOff { begun: false })),
        Reaction::Endless => Ok(Response::new(ScriptedBody::Endless)),
        Reaction::Answer(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(ScriptedBody::Whole(Some(body.into()))).expect("a good script"))
        }
    }
}

enum ScriptedBody {
    Whole(Option<Bytes>),
    BreaksOff { begun: bool },
    Endless,
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(match &mut *self {
            Self::Whole(body) => body.take().map(|body| Ok(Frame::data(body))),
            Self::BreaksOff { begun: true } => Some(Err(io::Error::other("as the script says"))),
            Self::BreaksOff { begun } => {
                *begun = true;
                Some(Ok(Frame::data(Bytes::from_static(b"\x0a"))))
            }
            Self::Endless => Some(Ok(Frame::data(Bytes::from_static(&[0; 65536])))),
        })
    }
}
