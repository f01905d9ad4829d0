//! The stream below one connection: how much was read since the last request, and why it broke.
//!
//! In: a stream to a peer, of TCP, TLS or a socket of Unix. Out: the same bytes, up to a bound for each request, in turns: a peer that fills the
//! stream faster than it is parsed, be it with what the parser skips, neither keeps the thread from others nor goes on for ever. Whoever
//! sends learns what the parsers above do not pass on: HTTP/2 keeps of an error its text alone, and of a connection that broke while it was
//! written to nobody reads what the peer said. Runs on the exporting thread's runtime.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tls;

/// Bytes that are read in one turn; those who parse them take no more at a time.
pub(super) const TURN: usize = 64 << 10;

/// What requests are written to: one type for all, so that a program holds one HTTP/1 and one HTTP/2 client and not three of each.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The stream, as those have it who speak HTTP over it.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    flow: Arc<Flow>,
    /// Bytes that were read since others had their turn.
    turn: usize,
}

/// The stream, as those know it who send on it.
#[derive(Debug)]
pub(super) struct Flow {
    /// Most bytes that are read for a request.
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that were read since the last request began.
    read: usize,
    broke: Option<Break>,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Break {
    /// For people.
    pub(super) why: String,
    /// The peer did not accept who we are: it has taken nothing.
    pub(super) refused: bool,
}

impl Flow {
    /// Of a stream of which at most so many bytes are read for a request.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    /// A request begins.
    pub(super) fn begin(&self) {
        self.state().read = 0;
    }

    /// Why the stream broke, where that is known here and nowhere else.
    pub(super) fn broke(&self) -> Option<Break> {
        self.state().broke.clone()
    }

    /// Counts what was read.
    fn read(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.state();
        state.read = state.read.saturating_add(bytes);
        if state.read <= self.most {
            return Ok(());
        }
        let why = "the peer says more than an answer may have";
        state.broke.get_or_insert_with(|| Break { why: why.to_owned(), refused: false });
        Err(io::Error::other(why))
    }

    /// Keeps it if the peer says with this that it does not accept who we are.
    fn failed(&self, error: &io::Error) {
        if let Some(why) = tls::refusal(error) {
            self.state().broke.get_or_insert(Break { why, refused: true });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain values, changed in steps that cannot panic: what a poisoned lock guards is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>, flow: Arc<Flow>) -> Self {
        Self { stream, flow, turn: 0 }
    }

    /// Passes on how writing went. Where it failed, what the peer said before is read, which whoever writes would not do any more.
    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &written {
            let mut rest = [0; 256];
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_read(context, &mut ReadBuf::new(&mut rest))
            {
                self.flow.failed(&error);
            }
        }
        written
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.turn >= TURN {
            self.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = bytes.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, bytes);
        match &read {
            Poll::Pending => self.turn = 0,
            Poll::Ready(Err(error)) => self.flow.failed(error),
            Poll::Ready(Ok(())) => {
                let count = bytes.filled().len() - before;
                self.turn += count;
                self.flow.read(count)?;
            }
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
