//! The exporter against real servers: what arrives, what is tried again, what is counted.
//!
//! Each scenario has its own server on loopback and its own ledger, and ends by comparing the ledger's figures with what
//! the server decoded, to the stack. Servers are not ours: `hyper` for HTTP, `tonic`'s generated service for gRPC.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a test's servers and sets cannot do fails the test")]

mod accounting;
mod early;
mod figures;
mod files;
mod flood;
mod grpc;
mod grpc_peer;
mod h2_peer;
mod http;
mod http_peer;
mod kinds;
mod matrix;
mod moved;
mod parca;
mod parca_peer;
mod patience;
mod profiles;
mod push;
mod pyroscope;
mod rig;
mod settings;
mod spool;
#[cfg(feature = "tls")]
mod tls;
