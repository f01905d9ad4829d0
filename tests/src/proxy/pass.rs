//! One connection through the proxy: bytes both ways, as far as its fault lets them.
//!
//! In: the connection of a client, and a fault. Out: a connection to the receiver, and both closed or reset.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::{Fault, wire};

/// Hands `client` on to `receiver` as `fault` says.
pub(super) async fn on(mut client: TcpStream, receiver: SocketAddr, fault: Fault) -> io::Result<()> {
    match fault {
        Fault::Swallow => return tokio::io::copy(&mut client, &mut tokio::io::sink()).await.map(|_| ()),
        Fault::SlowAccept(time) => tokio::time::sleep(time).await,
        _ => {}
    }
    let mut server = TcpStream::connect(receiver).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (up, down) = Way::both(fault);
    let broken = {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let up = up.pass(&mut from_client, &mut to_server);
        let down = down.pass(&mut from_server, &mut to_client);
        tokio::try_join!(up, down).is_err()
    };
    if broken {
        client.set_zero_linger()?;
        server.set_zero_linger()?;
    }
    Ok(())
}

/// Finds a position in all that came.
type Mark = fn(&[u8]) -> Option<usize>;

/// One direction.
struct Way {
    /// Where it breaks: so many bytes after the mark.
    cut: Option<(Mark, usize)>,
    /// Bytes in one piece.
    piece: usize,
}

impl Way {
    /// What `fault` makes of the ways to the receiver and back.
    fn both(fault: Fault) -> (Self, Self) {
        let whole = || Self { cut: None, piece: usize::MAX };
        let until = |mark: Mark, bytes| Self { cut: Some((mark, bytes)), piece: usize::MAX };
        match fault {
            Fault::ResetBeforeBody => (until(wire::request_body, 0), whole()),
            Fault::ResetInBody(bytes) => (until(wire::request_body, bytes), whole()),
            Fault::ResetAfterBody => (whole(), until(wire::answer, 0)),
            Fault::CutAnswer(bytes) => (whole(), until(wire::answer, bytes)),
            Fault::Dribble => (Self { cut: None, piece: 1 }, Self { cut: None, piece: 1 }),
            Fault::Pass | Fault::Swallow | Fault::SlowAccept(_) => (whole(), whole()),
        }
    }

    /// Hands on what comes `from` one side `to` the other, to its end; an error where it is cut.
    async fn pass(&self, from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>) -> io::Result<()> {
        let (mut came, mut passed) = (Vec::new(), 0);
        while from.read_buf(&mut came).await? > 0 {
            let cut = self.cut.and_then(|(mark, bytes)| Some(mark(&came)? + bytes)).filter(|cut| *cut <= came.len());
            for piece in came[passed..cut.unwrap_or(came.len()).max(passed)].chunks(self.piece) {
                to.write_all(piece).await?;
            }
            passed = came.len();
            if cut.is_some() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        to.shutdown().await
    }
}
