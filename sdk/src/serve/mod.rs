//! Serves profiles from inside the process: the page, `/debug/pprof/*`, `/stats`, `/healthz`.
//!
//! In: closed profile sets, put into the [`Store`] by whoever assembles them, and captures on demand from a [`Source`].
//! Out: HTTP/1.1 on one address. It runs on the caller's tokio runtime, on one thread; all it holds is bounded.
//!
//! Whoever captures from outside, as the sidecar does, has: a [`Source`] that gives a set for each process, [`Stats::of_ledger`](crate::Stats::of_ledger) with what it
//! knows itself in [`StatsSection`](crate::StatsSection)s, and a [`Store`] that takes the sets of any number of processes.
//!
//! The way of a request: `server` (`seats`) → `connection` (`stall`) → `site` (paths; `host`, `query`) → `api` and `pull` (answers) →
//! `reply` (headers, compression). The way of samples: `store` (each `process` has a `room`: `lane`, `size`, `minutes`) → `profiles` (sums of what was `asked` for, of a
//! `sample_type`; `window`, `evidence`: what is there) → `nodes` (a tree grows; `frames`, `package`) → `tree` (preorder, trimmed) → `flame` (the page's JSON), `top`, `svg`.

mod api;
mod asked;
mod assets;
mod change;
mod clock;
mod connection;
mod evidence;
mod flame;
mod frames;
mod host;
mod json;
mod lane;
mod minutes;
mod nodes;
mod package;
mod process;
mod profiles;
mod pull;
mod query;
mod range;
mod reply;
mod sample_type;
mod seats;
mod security;
mod server;
mod site;
mod size;
mod source;
mod stall;
mod stats;
mod store;
mod svg;
#[cfg(test)]
mod testing;
mod threads;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod top;
mod tree;
mod weight;
mod window;
#[cfg(feature = "tower")]
mod within;

pub use seats::{Answering, Seat, Seats};
pub use security::Security;
#[cfg(feature = "cpu")]
pub(crate) use server::parse;
pub use server::{Bound, Server};
pub use source::{CaptureError, CaptureFuture, GoroutineText, Snapshot, Source, Target, TextFuture};
pub use store::Store;
#[cfg(feature = "tower")]
pub use within::{Answer, Body, Service, service};
#[cfg(all(feature = "tower", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use within::{Opened, open};
