//! A connection that ends when its client stops reading.
//!
//! In: any stream. Out: the same stream, whose writes fail once one has waited for [`PATIENCE`], and word of when all that was to be written
//! is. Without it, a client that asks and never reads would hold its place, and a whole answer in memory, for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may leave its buffers full.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stream whose writes do not wait for ever.
pub(super) struct Impatient<S, W> {
    stream: S,
    /// Called whenever nothing is left to be written: hyper flushes when it has written all that it has (`Buffered::poll_flush`, 1.12).
    written: W,
    patience: Duration,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S, W> Impatient<S, W> {
    /// Bounds the writes of `stream`, and calls `written` when they are done.
    pub(super) fn new(stream: S, written: W) -> Self {
        Self { stream, written, patience: PATIENCE, deadline: None }
    }

    /// Lets the outcome of a write through; a wait that is too long becomes an error.
    fn bounded<T>(&mut self, outcome: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.deadline = None;
            return outcome;
        }
        let patience = self.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(patience)));
        deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin, W: FnMut() + Unpin> AsyncWrite for Impatient<S, W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(outcome, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bounded(outcome, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(outcome, Poll::Ready(Ok(()))) {
            (self.written)();
        }
        self.bounded(outcome, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(outcome, cx)
    }
}

impl<S: AsyncRead + Unpin, W: Unpin> AsyncRead for Impatient<S, W> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Check that writing to a client that never reads fails in time, and that it succeeds while the client reads.
    #[test]
    fn a_client_that_never_reads_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let server = listener.accept().unwrap().0;
            server.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(server).unwrap();
            let mut stream = Impatient { patience: Duration::from_millis(50), ..Impatient::new(stream, || {}) };
            let chunk = vec![0; 1 << 16];
            let mut written = 0;
            let error = loop {
                match poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, &chunk)).await {
                    Ok(n) => written += n,
                    Err(error) => break error,
                }
            };
            assert_eq!((error.kind(), written >= chunk.len()), (io::ErrorKind::TimedOut, true));
            drop(client);
        });
    }
}
