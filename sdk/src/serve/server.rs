//! Listens on one address and answers HTTP/1.1 there.
//!
//! In: connections, on the runtime of the thread that runs [`Bound::run`]. Out: answers of the [`Site`]. Connections, the
//! size of a request's head, the time it may take and the time a client may leave an answer unread are bounded; one slow
//! client is no other's concern.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::site::Site;
use super::source::Source;
use super::stall::Impatient;
use super::store::Store;
use crate::error::Error;

/// Connections at once; more wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 64;
/// Time to send a request's head, and to think between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a request's head in bytes, and how many headers may stand in it.
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// Pause after the system refused a connection (no descriptors, no memory): it will not have more at once.
const REST: Duration = Duration::from_millis(250);

/// The server of profiles.
#[derive(Debug)]
pub struct Server;

/// A server that has its address and does not answer yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes the address `address`: `IP:port` or `localhost:port`; port 0 is any free one.
    ///
    /// # Errors
    /// The address cannot be read, or cannot be had: in use, not this machine's, not allowed.
    pub fn bind(address: &str) -> Result<Bound, Error> {
        let wanted = parse(address)?;
        let refused = |error: io::Error| {
            let remedy = remedy(&error);
            Error::environment(format!("serve profiles on {wanted}"), error, remedy)
        };
        let listener = TcpListener::bind(wanted).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        if !address.ip().to_canonical().is_loopback() {
            tracing::warn!(%address, "profiles are served to everybody who can reach this address; there is no password");
        }
        Ok(Bound { listener, address })
    }
}

impl Bound {
    /// The address, with the port that was found where 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is dropped; spawn it on a tokio runtime with I/O and time. Connections end with it.
    pub async fn run(self, source: Arc<dyn Source>, store: Arc<Store>) {
        let site = Arc::new(Site::new(source, store, self.address));
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "cannot serve profiles: the runtime does not take the socket"),
        };
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut connections = JoinSet::new();
        // The semaphore is never closed: this loop has no other end than being dropped.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let stream = accept(&listener).await;
            let site = Arc::clone(&site);
            connections.spawn(async move {
                converse(stream, site).await;
                drop(place);
            });
            while connections.try_join_next().is_some() {}
        }
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

/// Answers the requests of one connection until its end.
async fn converse(stream: TcpStream, site: Arc<Site>) {
    let answer = |request: Request<Incoming>| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(&request.into_parts().0).await) }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(Impatient::new(stream)), service_fn(answer));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the profile server ended early");
    }
}

/// Reads `IP:port` or `localhost:port`; other names would need a resolver, which may block for long.
fn parse(address: &str) -> Result<SocketAddr, Error> {
    let numeric = match address.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => address.to_owned(),
    };
    let unreadable = |_| Error::setting("serve", address, "not an address", "write IP:port, such as 127.0.0.1:6060");
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
