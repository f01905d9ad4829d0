//! Sends profiles to where they are kept: split, encode, queue, compress, retry.
//!
//! In: sets of profiles ([`Exporter::offer`], from any thread). Out: OTLP requests over gRPC or HTTP, and for every
//! on-CPU stack one entry in the ledger: exported, or lost with its cause. Everything is bounded: what waits, in bytes;
//! an attempt and its retries, in time; an answer, in bytes. Runs on a `tokio` runtime that the caller owns; nothing here
//! blocks it or ever fails the host.
//!
//! ```text
//! offer ─► split ─► encode + compress, once ─► queue of A ─► deliver, retry ─► A
//!    └───► local destinations                ╰► queue of B ─► deliver, retry ─► B
//! ```

mod answer;
mod batch;
mod delivery;
mod destination;
mod endpoint;
mod env;
mod exporter;
mod otlp_grpc;
mod otlp_http;
mod protocol;
mod queue;
mod retry;
mod settings;
mod tls;
mod transport;

pub use destination::{Deliver, Destination, Otlp};
pub use env::from_env;
pub use exporter::{Exporter, Limits};
pub use protocol::Compression;
pub use retry::Retry;
