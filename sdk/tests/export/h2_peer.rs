//! A server of gRPC in bare frames of HTTP/2, which does to connections and streams what no library lets a server do.
//!
//! Source: RFC 9113, sections 4.1 (frames), 6.4 (`RST_STREAM`), 6.5 (`SETTINGS`), 6.8 (`GOAWAY`), 7 (error codes); RFC 7541,
//! sections 6.1, 6.2 and appendix A (headers); gRPC over HTTP/2, "Responses".

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is done to a call when it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is acknowledged.
    Answer,
    /// Its stream is reset with this code.
    Reset(u32),
    /// It is acknowledged with the connection said to end.
    AnswerAndGoAway,
    /// The connection is said to end with this code before it, and is closed.
    GoAway(u32),
    /// A frame comes that is longer than any may be.
    LongFrame,
    /// What comes is no frame at all.
    Garbage,
    /// It is refused when its head has come, and the rest of it is not wanted.
    RefuseEarly,
    /// The status is no number, and its details are no base64.
    OddStatus,
}

/// The server; it ends when it is dropped.
pub(crate) struct H2Peer {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    script: VecDeque<Fault>,
    calls: usize,
    connections: usize,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const PREFACE: usize = 24;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

impl H2Peer {
    /// A server that does so to one call after the other, and acknowledges those after them.
    pub(crate) async fn start(script: impl IntoIterator<Item = Fault>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen { script: script.into_iter().collect(), ..Seen::default() }));
        let shared = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().unwrap().connections += 1;
                let shared = Arc::clone(&shared);
                // How a connection ends is the business of its two sides.
                tokio::spawn(async move { drop(serve(stream, &shared).await) });
            }
        });
        Self { address, seen, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Calls that came whole, and connections.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap();
        (seen.calls, seen.connections)
    }
}

impl Drop for H2Peer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header whose name and value are told in full.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// A call's answer: OK with an empty message, or what `status` is instead.
fn answer(stream: u32, status: &[(&str, &str)]) -> Vec<u8> {
    // 0x88 is `:status: 200`.
    let head = [vec![0x88], literal("content-type", "application/grpc")].concat();
    let trailers: Vec<u8> = status.iter().flat_map(|(name, value)| literal(name, value)).collect();
    [
        frame(HEADERS, END_HEADERS, stream, &head),
        frame(DATA, 0, stream, &[0; 5]),
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers),
    ]
    .concat()
}

async fn serve(mut stream: TcpStream, seen: &Mutex<Seen>) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        match (kind, flags & END_STREAM) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, 1, 0, &[])).await?,
            (HEADERS, 0) if seen.lock().unwrap().script.front() == Some(&Fault::RefuseEarly) => {
                seen.lock().unwrap().script.pop_front();
                react(&mut stream, u32::from_be_bytes(id), Fault::RefuseEarly).await?;
            }
            (DATA | HEADERS, END_STREAM) => {
                let fault = {
                    let mut seen = seen.lock().unwrap();
                    seen.calls += 1;
                    seen.script.pop_front().unwrap_or(Fault::Answer)
                };
                if !react(&mut stream, u32::from_be_bytes(id), fault).await? {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// Whether the connection goes on.
async fn react(stream: &mut TcpStream, id: u32, fault: Fault) -> io::Result<bool> {
    let ok = answer(id, &[("grpc-status", "0")]);
    let go_away = |last: u32, code: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
    let (bytes, goes_on) = match fault {
        Fault::Answer => (ok, true),
        // 16 is UNAUTHENTICATED. Without an error, for the answer is whole (RFC 9113, section 8.1).
        Fault::RefuseEarly => {
            let head = [vec![0x88], literal("content-type", "application/grpc"), literal("grpc-status", "16")].concat();
            ([frame(HEADERS, END_HEADERS | END_STREAM, id, &head), frame(RST_STREAM, 0, id, &[0; 4])].concat(), true)
        }
        Fault::Reset(code) => (frame(RST_STREAM, 0, id, &code.to_be_bytes()), true),
        Fault::AnswerAndGoAway => ([go_away(id, 0), ok].concat(), true),
        Fault::GoAway(code) => (go_away(0, code), false),
        Fault::LongFrame => (frame(DATA, 0, id, &[0; 20_000]), true),
        Fault::Garbage => (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".repeat(10), false),
        Fault::OddStatus => (answer(id, &[("grpc-status", "fine"), ("grpc-status-details-bin", "***")]), true),
    };
    stream.write_all(&bytes).await?;
    Ok(goes_on)
}
