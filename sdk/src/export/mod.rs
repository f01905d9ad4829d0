//! Sends profiles to where they are kept: split, encode, queue, compress, retry.
//!
//! In: sets of profiles ([`Exporter::offer`], from any thread). Out: requests of OTLP and of other backends, files, and for every
//! on-CPU stack and every profile one entry in the ledger: exported, or lost with its cause. Everything is bounded: what waits, in bytes;
//! an attempt and its retries, in time; an answer, in bytes. Runs on a `tokio` runtime that the caller owns; nothing here
//! blocks it or ever fails the host.
//!
//! ```text
//! offer ─► split ─► write + compress, once a form ─► queue of A ─► deliver, retry ─► A
//!    └───► local destinations                     ├► queue of B ─► deliver, retry ─► B
//!                                                 ╰► spool ─► replay, beside both
//! ```
//!
//! A destination names its form (`outlet`, `form`). What waits in its queue is a parcel: a body of that form, and the fate that the
//! same profiles share at all destinations.

mod access;
mod answer;
mod body;
mod delivery;
mod destination;
mod endpoint;
mod env;
mod exporter;
mod files;
mod form;
mod grpc;
mod headers;
mod limits;
mod manifest;
mod metrics;
mod otlp;
mod otlp_http;
mod outlet;
mod pace;
mod parca;
mod parcel;
mod post;
mod protocol;
mod push;
mod pusher;
mod pyroscope;
mod queue;
mod replay;
mod retry;
mod settings;
mod shelf;
mod spool;
mod spooling;
mod tasks;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod transport;
mod wire;

pub use destination::{Deliver, Destination, Target, check_interval, resolve};
pub use exporter::Exporter;
pub use files::Files;
pub use limits::Limits;
pub use metrics::MetricsTarget;
pub use otlp::Otlp;
pub use parca::Parca;
pub use protocol::Compression;
pub use pyroscope::Pyroscope;
pub use retry::Retry;
pub use spooling::SpoolSettings;

pub use crate::unknown::unknown_variables;
