//! Walks the stack of the interrupted thread, from its leaf to its root.
//!
//! In: registers from the signal frame ([`x86_64`]), unwind tables of the loaded modules ([`modules`], [`cfi`]), stack
//! memory read without a fault ([`memory`]). Out: addresses, leaf first, in a fixed buffer ([`frames`]). Everything but
//! the reading of modules runs inside the signal handler: no allocation, no lock, one system call at most per page read.

pub(crate) mod cfi;
pub(crate) mod frames;
pub(crate) mod memory;
pub(crate) mod modules;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
