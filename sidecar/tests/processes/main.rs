//! Real processes, looked at from outside: their files, their memory, what they are, and that they come and go.
//!
//! The subject is a Go program (`subject/main.go`), built with whichever Go is there; the tests fail where there is none.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "outside of #[test] functions too, a test ends there, and says what was not run"
)]

mod files;
#[path = "../fuse/mod.rs"]
mod fuse;
#[path = "../map_count/mod.rs"]
mod map_count;
mod memory;
mod published;
mod subject;
mod table;
