//! What the end-to-end tests and `measure` share.
//!
//! [`receiver`] is what a profiled process sends to, [`collector`] a real Collector between the two,
//! [`proxy`] what breaks on the way, [`workload`] is what it burns its CPU on, [`process`]
//! runs it as a child that speaks by [`child`], [`browser`] looks at its page, [`tally`] reads what came out, [`stats`] is what it says of itself, [`usage`] what
//! it takes, [`capture`] what it knows of the heap, [`outside`] what others see of it, [`pod`] the sidecar beside a Go program, [`stack`] where stacks end, and [`statistics`] and [`truth`] say whether it is right. What is global to a
//! process (signal handler, timers, environment) is tried in a child process of its own: see
//! `bin/scenario`.

pub mod browser;
pub mod capture;
pub mod child;
pub mod clock;
pub mod collector;
pub mod fetch;
pub mod library;
#[cfg(feature = "heap")]
pub mod mallctl;
pub mod outside;
pub mod pod;
pub mod process;
pub mod proxy;
pub mod receiver;
pub mod sandbox;
pub mod signal;
pub mod stack;
pub mod statistics;
pub mod stats;
pub mod subject;
pub mod tally;
pub mod truth;
pub mod usage;
pub mod workload;

/// Whatever went wrong; a test or a benchmark can only show it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
