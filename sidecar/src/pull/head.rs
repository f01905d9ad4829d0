//! A connection of which only so much is read before an answer has begun.
//!
//! HTTP lets a peer say "100 Continue" for as long as it likes, and hyper goes on from one to the next without letting anybody else work: on a thread that many share,
//! whoever says nothing else would have it for itself.
//!
//! In: a connection. Out: the same, which fails once too much came before an answer ([`Left`]), and afterwards has no bound of its own. On the main thread's runtime.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes up to the end of the head, with what comes of the body at once: heads have some hundred.
pub(super) const MOST_BYTES: usize = 128 << 10;
/// So many are read at once until then.
const PIECE: usize = 4 << 10;

/// How much may still be read.
#[derive(Debug, Clone)]
pub(super) struct Left(Arc<AtomicUsize>);

impl Left {
    /// The answer has begun: its body has other bounds.
    pub(super) fn is_answered(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }

    /// Whether too much came before it.
    pub(super) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// The connection.
#[derive(Debug)]
pub(super) struct UntilAnswered<S> {
    stream: S,
    left: Left,
}

impl<S> UntilAnswered<S> {
    pub(super) fn new(stream: S) -> (Self, Left) {
        let left = Left(Arc::new(AtomicUsize::new(MOST_BYTES)));
        (Self { stream, left: left.clone() }, left)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UntilAnswered<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.left.0.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Pin::new(&mut self.stream).poll_read(context, to);
        }
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let mut piece = [0; PIECE];
        let most = left.min(PIECE).min(to.remaining());
        let mut read = ReadBuf::new(piece.split_at_mut(most).0);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        to.put_slice(read.filled());
        // Whoever has the answer may have said so meanwhile.
        let less = |now: usize| (now != usize::MAX).then(|| now.saturating_sub(read.filled().len()));
        let _was = self.left.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UntilAnswered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
