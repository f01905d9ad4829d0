//! A server on a thread of its own, and clients that are plain sockets: they can send what no HTTP library would.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use profiler::serve::{Security, Server, Source, Store};
use serde_json::Value;

use crate::source::Waiting;

/// A server that runs until the test binary ends.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Where it says that it is.
    pub(crate) url: String,
    pub(crate) source: Arc<Waiting>,
}

pub(crate) fn serve(store: Store) -> Running {
    serve_securely(store, &Security::new())
}

pub(crate) fn serve_securely(store: Store, security: &Security) -> Running {
    let bound = Server::bind("127.0.0.1:0").unwrap().secured(security).unwrap();
    let (address, url) = (bound.local_addr(), bound.url());
    let (source, store) = (Arc::new(Waiting::default()), Arc::new(store));
    let captures: Arc<dyn Source> = Arc::clone(&source) as Arc<dyn Source>;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(bound.run(captures, store));
    });
    Running { address, url, source }
}

/// A response, its body as it came.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!((self.status, self.header("content-type")), (200, Some("application/json")), "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Running {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends `request` and reads until the server closes.
    pub(crate) fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &str) -> Answer {
        self.raw(&format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n", self.address))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "")
    }
}
