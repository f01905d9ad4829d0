//! Tests with real Go programs (`tests/go`), whose runtime's memory is read from outside.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what was captured of a restless program is told")]

mod capture;
mod inspect;
mod layouts;
mod programs;
mod running;
mod torn;
mod variables;
