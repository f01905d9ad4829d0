//! Tests with real Go programs (`tests/go`), whose runtime's memory is read from outside.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what was captured of a restless program is told")]

mod capture;
mod cycles;
mod figures;
mod forged;
mod inspect;
mod layouts;
mod many;
mod names;
mod plugins;
#[path = "../pretender/mod.rs"]
mod pretender;
mod programs;
mod relabels;
mod running;
mod torn;
mod unmapped;
mod variables;
mod windows;

/// Whether there is time for all of it: `make torture`.
fn is_torture() -> bool {
    std::env::var_os("TORTURE_SECONDS").is_some()
}
