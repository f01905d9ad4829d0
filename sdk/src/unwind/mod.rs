//! Walks the stack of the interrupted thread, from its leaf to its root.
//!
//! In: registers from the signal frame ([`arch`]), unwind tables of the loaded modules ([`modules`], as the [`listing`] of their [`image`]s has them), stack memory read
//! without a fault ([`memory`]). Out: addresses, leaf first, in a fixed buffer ([`frames`]). In the order of a step of the
//! [`walk`]: [`rules`] remembers what [`cfi`] and [`expression`] read out of [`bytes`] of [`tables`], [`cursor`] holds the
//! registers, `arch::frame_pointer` helps where there are no tables. Everything but the reading of modules and what is said of
//! their [`changes`] and [`eras`] runs inside the signal handler: no allocation, no lock, one system call at most per page read.

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64_code;
pub(crate) mod bytes;
pub(crate) mod cfi;
pub(crate) mod changes;
pub(crate) mod cursor;
pub(crate) mod eras;
pub(crate) mod expression;
#[cfg(target_arch = "x86_64")]
pub(crate) mod frame_pointer;
pub(crate) mod frames;
mod image;
mod listing;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod rules;
pub(crate) mod tables;
pub(crate) mod walk;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64_code;

// It needs a trap after every instruction, which user space has on x86_64, and `getcontext`, `dlopen`: glibc.
#[cfg(test)]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod truth;

/// What differs by architecture.
pub(crate) mod arch {
    #[cfg(target_arch = "aarch64")]
    pub(crate) use super::{aarch64::*, aarch64_code as code, aarch64_code as frame_pointer};
    #[cfg(target_arch = "x86_64")]
    pub(crate) use super::{frame_pointer, x86_64::*, x86_64_code as code};
}
