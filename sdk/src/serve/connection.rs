//! One connection: requests of HTTP/1.0 and 1.1, one after another.
//!
//! In: a stream of bytes, plain or from TLS, on the server's runtime. Out: answers of the [`Site`]. The size of a request's head, the time it may take
//! and the time a client may leave an answer unread are bounded; the seat knows while an answer is made and while it is on its way.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::reply::Reply;
use super::seats::{Answering, Seat};
use super::site::Site;
use super::stall::Impatient;

/// Time to send a request's head, and to think between requests.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a request's head in bytes, and how many headers may stand in it.
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// What a client is at the other end of: one type for all, so that a program holds one HTTP server and not one for TLS besides.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Answers the requests of one connection until its end.
pub(super) async fn converse(stream: Box<dyn Stream>, site: &Arc<Site>, seat: &Arc<Seat>) {
    let answer = |request: Request<Incoming>| {
        let (site, answering) = (Arc::clone(site), seat.answering());
        async move { Ok::<_, Infallible>(sent(site, request.into_parts().0, answering).await) }
    };
    let stream = Impatient::new(stream, || seat.written());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the profile server ended early");
    }
}

/// The answer to a request, unless too much waits to be read already.
async fn sent(site: Arc<Site>, request: Parts, answering: Answering) -> Response<Sent> {
    let mut response = site.answer(&request).await;
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    if !answering.answers(usize::try_from(bytes).unwrap_or(usize::MAX), Instant::now()) {
        let why = "too many answers wait to be read; try again when they are";
        let refusal = Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, why);
        response = refusal.with(RETRY_AFTER, HeaderValue::from_static("10")).response(&request.headers);
    }
    response.map(|body| Sent { body, _answering: answering })
}

/// The body of an answer. It is dropped when hyper has taken all of it, before that is written.
struct Sent {
    body: Full<Bytes>,
    _answering: Answering,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::super::seats::Seats;
    use super::super::security::Security;
    use super::super::testing::Idle;
    use super::*;

    /// Check that the seat of a client that reads slowly is not taken while its answer is on its way, and is idle once that is written.
    #[test]
    fn a_slow_reader_keeps_its_seat() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let within = async |work| timeout(Duration::from_secs(60), work).await.unwrap();
        runtime.block_on(within(async {
            let seats = Seats::new(1, usize::MAX);
            let (seat, now) = (seats.try_take(Instant::now()).unwrap(), Instant::now());
            let (mut client, server) = tokio::io::duplex(64);
            let site = Arc::new(Site::new(Arc::new(Idle::default()), Arc::default(), None, None));
            tokio::spawn(async move { converse(Box::new(server), &site, &seat).await });
            for _ in 0..2 {
                client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
                let mut answer = vec![0; 100];
                client.read_exact(&mut answer).await.unwrap();
                assert!(seats.try_take(now).is_none(), "its answer is cut");
                while !answer.ends_with(b"</noscript>\n") {
                    answer.push(client.read_u8().await.unwrap());
                }
                // The server may not have looked yet whether all is taken.
                while !seats.has_idle() {
                    tokio::task::yield_now().await;
                }
            }
            drop(client);
        }));
    }

    /// Check that a wrong token ends the connection: what was sent behind it does not keep the seat from others.
    #[test]
    fn a_wrong_token_ends_the_connection() {
        const REQUEST: &[u8] = b"GET /stats HTTP/1.1\r\nhost: 127.0.0.1:4040\r\nauthorization: Bearer wrong\r\n\r\n";
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let seats = Seats::new(1, usize::MAX);
            let seat = seats.try_take(Instant::now()).unwrap();
            let (mut client, server) = tokio::io::duplex(4096);
            let token = Security::new().token("0123456789abcdef").checked_token().unwrap();
            let listening = Some(([127, 0, 0, 1], 4040).into());
            let site = Arc::new(Site::new(Arc::new(Idle::default()), Arc::default(), listening, token));
            client.write_all(&REQUEST.repeat(3)).await.unwrap();
            tokio::spawn(async move { converse(Box::new(server), &site, &seat).await });
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).await.unwrap();
            let answers = String::from_utf8_lossy(&answers);
            assert_eq!(answers.matches("HTTP/1.1 401 ").count(), 1, "{answers}");
        });
    }
}
