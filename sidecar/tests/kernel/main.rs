//! The kernel side on the kernel that runs here, with real programs. Needs root; as another user it says what was not run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is not as it must be"
)]
#![expect(clippy::print_stderr, reason = "what was not run is said")]

mod contexts;
mod events;
mod goroutines;
mod namespaces;
mod native;
mod programs;
mod recorder;
#[path = "../undivided/mod.rs"]
mod undivided;
