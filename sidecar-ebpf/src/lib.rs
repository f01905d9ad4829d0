//! What the kernel side and the user side of the sidecar share: the layout of a record, of maps' values, of counters.
//!
//! `no_std`, built for both. Every layout stands here once, with its size asserted.

#![no_std]
