//! Listens on one address and answers HTTP/1.1 there.
//!
//! In: connections, on the runtime of the thread that runs [`Bound::run`]. Out: each with a seat, perhaps encrypted, to [`converse`]. How many there
//! are at once is bounded.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{HEAD_TIMEOUT, converse};
use super::seats::{Seat, Seats};
use super::security::{Security, Token};
use super::site::Site;
use super::source::Source;
use super::store::Store;
use super::tls::Acceptor;
use crate::error::Error;
use crate::watched::watched;

/// Connections at once; for more, those that are idle longest go.
const MOST_CONNECTIONS: usize = 64;
/// Bytes of answers that may wait to be read.
const MOST_UNREAD: usize = 64 << 20;
/// Pause after the system refused a connection (no descriptors, no memory): it will not have more at once.
const REST: Duration = Duration::from_millis(250);

/// The server of profiles.
#[derive(Debug)]
pub struct Server;

/// A server that has its address and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<Token>,
    acceptor: Option<Acceptor>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Takes the address `address`: `IP:port` or `localhost:port`; port 0 is any free one.
    ///
    /// # Errors
    /// The address cannot be read, or cannot be had: in use, not this machine's, not allowed.
    pub fn bind(address: &str) -> Result<Bound, Error> {
        Self::bind_by("serve", address)
    }

    /// The same, by `setting`, which errors name: a flag, a variable, a line of a file.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_by(setting: &str, address: &str) -> Result<Bound, Error> {
        let wanted = parse(setting, address)?;
        let refused = |error: io::Error| {
            let remedy = remedy(&error);
            Error::environment(format!("{setting}={address:?}: take {wanted}"), error, remedy)
        };
        let listener = TcpListener::bind(wanted).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Bound { listener, address, token: None, acceptor: None })
    }
}

impl Bound {
    /// The address, with the port that was found where 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where the page is: `https://` where [`Self::secured`] has a certificate.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.acceptor.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The same with a token, TLS, or both.
    ///
    /// # Errors
    /// The token is too short, or the files cannot be read or used.
    pub fn secured(self, security: &Security) -> Result<Self, Error> {
        Ok(Self { token: security.checked_token()?, acceptor: security.acceptor()?, ..self })
    }

    /// Says what others can do who reach the address.
    fn warn(&self) {
        let (address, is_open) = (self.address, !self.address.ip().to_canonical().is_loopback());
        let warning = match (&self.token, &self.acceptor) {
            _ if !is_open => return,
            (None, _) => "profiles are served to everybody who can reach this address; set PROFILER_SERVE_TOKEN",
            (Some(_), None) => {
                "profiles and their token go over the network unencrypted; set a certificate and its key"
            }
            (Some(_), Some(_)) => {
                return tracing::info!(%address, "profiles are served over TLS to those who know the token");
            }
        };
        tracing::warn!(%address, warning);
    }

    /// Answers until it is dropped; spawn it on a tokio runtime with I/O and time. Connections end with it.
    pub async fn run(self, source: Arc<dyn Source>, store: Arc<Store>) {
        self.warn();
        let site = Arc::new(Site::new(source, store, Some(self.address), self.token));
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "cannot serve profiles: the runtime does not take the socket"),
        };
        let seats = Seats::new(MOST_CONNECTIONS, MOST_UNREAD);
        let mut connections = JoinSet::new();
        // This loop has no other end than being dropped.
        loop {
            let stream = accept(&listener).await;
            let (seat, site, acceptor) = (seats.take().await, Arc::clone(&site), self.acceptor.clone());
            connections.spawn(watched(async move {
                unless(seat.leave(), greet(stream, acceptor, &site, &seat)).await;
            }));
            while connections.try_join_next().is_some() {}
        }
    }
}

/// Does `work` to its end, or until `end`.
async fn unless(end: impl Future<Output = ()>, work: impl Future<Output = ()>) {
    let (mut end, mut work) = (pin!(end), pin!(work));
    poll_fn(|cx| if end.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { work.as_mut().poll(cx) }).await;
}

/// Encrypts a connection, if it is to be, and answers on it.
async fn greet(stream: TcpStream, acceptor: Option<Acceptor>, site: &Arc<Site>, seat: &Arc<Seat>) {
    let Some(acceptor) = acceptor else { return converse(Box::new(stream), site, seat).await };
    match timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => converse(Box::new(stream), site, seat).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the profile server did not become TLS"),
        Err(_) => tracing::debug!("a connection to the profile server did not become TLS in time"),
    }
}

/// The next connection.
async fn accept(listener: &tokio::net::TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // The client has gone again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::debug!(%error, "a connection to the profile server was not accepted");
                sleep(REST).await;
            }
        }
    }
}

/// Reads `IP:port` or `localhost:port`, which `setting` set; other names would need a resolver, which may block for long.
pub(crate) fn parse(setting: &str, address: &str) -> Result<SocketAddr, Error> {
    let numeric = match address.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => address.to_owned(),
    };
    let unreadable = |_| Error::setting(setting, address, "not an address", "write IP:port, such as 127.0.0.1:6060");
    numeric.parse().map_err(unreadable)
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "choose another port, or 0 for any free one",
        io::ErrorKind::AddrNotAvailable => "choose an address that this machine has, such as 127.0.0.1",
        io::ErrorKind::PermissionDenied => "choose a port above 1023",
        _ => "choose another address",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Check that an address in use is an error that names it and what to do, and that port 0 finds a free one.
    #[test]
    fn an_address_in_use_is_named() {
        let first = Server::bind("localhost:0").unwrap();
        let taken = first.local_addr().to_string();
        let error = Server::bind(&taken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Environment);
        let text = error.to_string();
        assert!(text.contains(&taken) && text.contains("another port"), "{text}");
        let text = Server::bind_by("PROFILER_SERVE", &taken).unwrap_err().to_string();
        assert!(text.starts_with(&format!("PROFILER_SERVE={taken:?}: ")), "{text}");
    }

    /// Check that what is no address is an error that names it and shows one.
    #[test]
    fn what_is_no_address_is_named() {
        for bad in ["", "6060", ":6060", "example.com:80", "127.0.0.1", "127.0.0.1:99999", "localhost:x"] {
            let error = Server::bind(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misuse);
            assert!(error.to_string().starts_with(&format!("serve={bad:?}: ")), "{error}");
        }
        assert!(Server::bind("203.0.113.1:1").unwrap_err().to_string().contains("this machine"));
    }
}
