//! OTLP profiles from the pod's SDKs, over gRPC and HTTP.
//!
//! In: connections on one address, of either protocol, told apart by their first bytes. Out: sets of profiles to a [`Sink`], an answer to
//! every request, [`Figures`]. On the exporting thread's runtime; nothing here blocks it for longer than decoding one request takes.
//!
//! Everything is bounded: connections, requests under way, the size of a body before and after decompression, what its content may
//! occupy, and the time each of these may take. Beyond a bound the sender is told so, in a way that its retries are made for.
//!
//! One connection that opens bodies and sends nothing has two of eight places, for five seconds each. Four such connections, or of bodies
//! that trickle, have all of them for as long as they go on: on loopback all have one address, so nobody can be told from the others. These
//! are put off, and are taken when they come while a place is free. Of connections, those that have been idle longest go for new ones.
//!
//! The way of a request: `server` (connections) → `http` or `grpc` (form of request and answer) → `body` (collected, decompressed) →
//! `intake` (decoded, judged, handed on).

mod body;
mod grpc;
mod http;
mod intake;
mod server;

pub use self::intake::{Figures, Intake, Sink};
pub use self::server::{Bound, bind};

/// What a receiver takes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of a body as it arrives.
    pub body: usize,
    /// Bytes of it after decompression, and of what it is decoded to.
    pub content: usize,
    /// Requests whose bodies are under way at once; with `body`, the memory that strangers can have.
    pub requests: usize,
    /// Requests of one connection at once; HTTP/2's client keeps the others back, or is refused them.
    pub streams: u32,
    /// Connections at once; for more, those go that have been idle longest.
    pub connections: usize,
    /// Time for a head, for a body, and between requests of HTTP/1.1.
    pub patience: std::time::Duration,
    /// Time without a request of HTTP/2, whose clients keep their connections.
    pub idle: std::time::Duration,
    /// Time within a body in which nothing of it comes.
    pub pause: std::time::Duration,
}

impl Default for Bounds {
    /// A request of the SDK is 2 MB before compression at most (`export::Limits::request_bytes`).
    fn default() -> Self {
        let [patience, idle, pause] = [20, 180, 5].map(std::time::Duration::from_secs);
        Self { body: 4 << 20, content: 16 << 20, requests: 8, streams: 2, connections: 128, patience, idle, pause }
    }
}

#[cfg(test)]
mod tests;
