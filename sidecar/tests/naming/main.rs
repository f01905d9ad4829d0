//! Names of real processes: Go and C programs that run, read from outside, against what their own tools say and what they really called.
//!
//! The programs are built from `tests/go/subject` and from the C files here. Versions of Go other than the installed one come from the Go module
//! proxy; `PROFILER_TEST_GO=all` tries all of them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and says why; what was not run is said"
)]

mod build;
mod cgo;
#[path = "../fuse/mod.rs"]
mod fuse;
mod hangs;
mod later;
mod names;
mod profile;
mod sparse;
#[cfg(target_arch = "x86_64")]
mod steps;
