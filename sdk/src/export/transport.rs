//! One connection to one peer, opened when it is needed and replaced when it fails.
//!
//! In: a request with its body. Out: the whole answer, bounded in time and in bytes, or why there is none. HTTP/1.1 for
//! OTLP/HTTP, HTTP/2 for gRPC, over TCP or TLS. Names are resolved again for each new connection, so that a peer that
//! moved is found; of its addresses, one that is dead hides no other. Runs on the exporting thread's runtime; redirects are not followed, proxies not used.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;

use super::answer::chain;
use super::protocol::Version;
use super::tls::Tls;

/// No answer is read further than this (OTLP specification: response size limit of 4 MiB).
pub(super) const LONGEST_ANSWER: usize = 4 << 20;

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

/// A connection whose task ends with it, even if the peer never closes its side.
#[derive(Debug)]
struct Open {
    requests: Requests,
    task: AbortHandle,
}

#[derive(Debug)]
enum Requests {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// A peer that is not connected to yet.
    pub(super) fn new(host: String, port: u16, version: Version, tls: Option<Tls>) -> Self {
        Self { host, port, version, tls, open: None, last: None, sent_bytes: 0 }
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
            let reply = open.exchange(request).await?;
            Ok::<_, String>((open, reply))
        };
        let outcome = tokio::time::timeout(timeout, attempt).await;
        self.sent_bytes += sent_bytes;
        if sent_bytes > 0 {
            self.last = self.last.map(|(address, _)| (address, matches!(outcome, Ok(Ok(_)))));
        }
        let (open, reply) = match outcome {
            Ok(outcome) => outcome?,
            Err(_) => return Err(format!("{}:{}: no answer within {timeout:?}", self.host, self.port)),
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
        if let Some(mut open) = open
            && open.ready().await
        {
            return Ok(open);
        }
        let found = lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| format!("connect to {}:{}: {}", self.host, self.port, chain(&error)))?;
        self.connect(found.collect(), deadline).await
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
        Err(format!("connect to {}:{}: {why}", self.host, self.port))
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
            None => Open::new(tcp, self.version).await,
            Some(tls) => {
                let stream = tls.handshake(tcp, &self.host, self.version).await.map_err(|error| chain(&error))?;
                Open::new(stream, self.version).await
            }
        };
        open.map_err(|error| chain(&error))
    }
}

impl Open {
    async fn new<T>(stream: T, version: Version) -> hyper::Result<Self>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        // The connections' own errors reach us through the request that they break.
        match version {
            Version::Http1 => {
                let (requests, connection) = http1::handshake(io).await?;
                let task = tokio::spawn(async { drop(connection.await) }).abort_handle();
                Ok(Self { requests: Requests::Http1(requests), task })
            }
            Version::Http2 => {
                let (requests, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                let task = tokio::spawn(async { drop(connection.await) }).abort_handle();
                Ok(Self { requests: Requests::Http2(requests), task })
            }
        }
    }

    async fn ready(&mut self) -> bool {
        match &mut self.requests {
            Requests::Http1(requests) => requests.ready().await.is_ok(),
            Requests::Http2(requests) => requests.ready().await.is_ok(),
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, String> {
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

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
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
