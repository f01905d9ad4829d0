//! The atomics of the lock-free parts, [`ring`](super::ring), [`pool`](super::pool) and [`bounds`](super::bounds), and of the heap's `entries`.
//!
//! In and out: the standard library's. They come through here so that the model checker of the tests can put its own in
//! their place.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(feature = "heap")]
pub(crate) use std::thread::yield_now;
