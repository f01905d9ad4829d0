//! The profile server over real TCP: every route, what each refuses, and clients that mean no good.

#![cfg(feature = "serve")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "outside of #[test] functions too, a test ends there")]

mod bounds;
mod captures;
mod client;
mod heap;
mod pages;
mod processes;
mod profiles;
mod refusals;
mod samples;
mod security;
mod source;
mod warnings;
