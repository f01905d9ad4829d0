//! End-to-end tests: real processes under the profiler, a real Collector, real tools.
//!
//! Each test starts programs (`src/bin/scenario`, the examples) as children with an end, receives what they send, and
//! compares it with what they did. Nothing here is profiled itself, so tests may run side by side; those that
//! keep processors busy take turns ([`scenario::turn`]).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is not as it must be"
)]

mod account;
mod collector;
mod completeness;
mod conformance;
mod engines;
mod faults;
mod files;
mod heap;
mod heap_dumps;
mod heap_host;
mod layering;
mod metrics;
mod models;
mod outside;
mod plugin;
mod pprof_go;
#[cfg(all(target_arch = "x86_64", debug_assertions))]
mod reachable;
mod requests;
mod resumes;
mod runtime_metrics;
mod scenario;
mod settings;
mod shares;
mod spans;
mod stacks;
mod steal;
mod tasks;
mod torture;
mod without_tls;
