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
    /// A request had its answer: the peer has accepted who we are.
    answered: bool,
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

    /// A request has had its answer.
    pub(super) fn answered(&self) {
        self.state().answered = true;
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
        let mut state = self.state();
        if let Some(why) = tls::refusal(error).filter(|_| !state.answered) {
            state.broke.get_or_insert(Break { why, refused: true });
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn poll(wire: &mut Wire, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = vec![0; TURN / 2];
        let mut bytes = ReadBuf::new(&mut bytes);
        Pin::new(wire).poll_read(context, &mut bytes).map_ok(|()| bytes.filled().len())
    }

    /// Check that a peer that says something without end is read in turns, up to the bound, and that the bound is each request's.
    #[test]
    fn an_endless_peer_is_read_in_turns_and_within_the_bound() {
        let flow = Flow::new(3 * TURN);
        let mut wire = Wire::new(Box::new(tokio::io::join(tokio::io::repeat(7), tokio::io::sink())), Arc::clone(&flow));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..5 {
            flow.begin();
            for _ in 0..2 {
                let reads = [(); 3].map(|()| poll(&mut wire, &mut context).map(Result::unwrap));
                assert_eq!(reads, [Poll::Ready(TURN / 2), Poll::Ready(TURN / 2), Poll::Pending]);
            }
            assert_eq!(flow.broke(), None);
        }
        let refused = (0..9).find_map(|_| match poll(&mut wire, &mut context) {
            Poll::Ready(Err(error)) => Some(error.to_string()),
            _ => None,
        });
        let broke = flow.broke().unwrap();
        assert_eq!((refused, broke.refused), (Some(broke.why), false));
    }

    /// Check that an alert about our certificate is a refusal as long as nothing was answered, and nothing to do with it afterwards.
    #[cfg(feature = "tls")]
    #[test]
    fn a_refusal_comes_before_any_answer() {
        use tokio_rustls::rustls::{AlertDescription, Error};
        let alert = |alert| io::Error::new(io::ErrorKind::InvalidData, Error::AlertReceived(alert));
        let flow = Flow::new(TURN);
        flow.failed(&alert(AlertDescription::InternalError));
        assert_eq!(flow.broke(), None);
        flow.failed(&alert(AlertDescription::CertificateExpired));
        assert!(flow.broke().is_some_and(|broke| broke.refused && broke.why.contains("has expired")));
        let flow = Flow::new(TURN);
        flow.answered();
        flow.failed(&alert(AlertDescription::CertificateExpired));
        assert_eq!(flow.broke(), None);
    }
}
