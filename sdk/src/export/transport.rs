//! One connection to one peer, opened when it is needed and replaced when it fails.
//!
//! In: a request with its body. Out: the whole answer, bounded in time and in bytes, or why there is none. HTTP/1.1 for
//! OTLP/HTTP, HTTP/2 for gRPC, over TCP or TLS. Names are resolved again for each new connection, so that a peer that
//! moved is found. Runs on the exporting thread's runtime; redirects are not followed, proxies not used.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::answer::chain;
use super::protocol::Version;
use super::tls::Tls;

/// No answer is read further than this (OTLP specification: response size limit of 4 MiB).
pub(super) const LONGEST_ANSWER: usize = 4 << 20;

/// A peer and, while there is one, the connection to it.
#[derive(Debug)]
pub(super) struct Connection {
    host: String,
    port: u16,
    version: Version,
    /// `None` speaks in the clear.
    tls: Option<Tls>,
    open: Option<Open>,
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
        Self { host, port, version, tls, open: None, sent_bytes: 0 }
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
            let mut open = self.ready(open).await?;
            sent_bytes = bytes;
            let reply = open.exchange(request).await?;
            Ok::<_, String>((open, reply))
        };
        let outcome = tokio::time::timeout(timeout, attempt).await;
        self.sent_bytes += sent_bytes;
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

    /// The connection at hand if it is still good, else a new one.
    async fn ready(&self, open: Option<Open>) -> Result<Open, String> {
        if let Some(mut open) = open
            && open.ready().await
        {
            return Ok(open);
        }
        let (host, port) = (&self.host, self.port);
        let connect = |error: &dyn std::error::Error| format!("connect to {host}:{port}: {}", chain(error));
        let tcp = TcpStream::connect((host.as_str(), port)).await.map_err(|error| connect(&error))?;
        tcp.set_nodelay(true).map_err(|error| connect(&error))?;
        match &self.tls {
            None => Open::new(tcp, self.version).await.map_err(|error| connect(&error)),
            Some(tls) => {
                let stream = tls.handshake(tcp, host, self.version).await.map_err(|error| connect(&error))?;
                Open::new(stream, self.version).await.map_err(|error| connect(&error))
            }
        }
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
