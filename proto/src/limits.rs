//! What a decoder may take in, and the budget it spends while it works.
//!
//! Set by whoever opens a door to the outside; read by every decoder. A decoder asks its [`Budget`] before it allocates
//! what the input asks for, so that a small hostile input cannot cost much memory.

use crate::error::DecodeError;

/// Bounds of a decoder.
///
/// Peak memory while decoding stays within `4 × memory + 3 × bytes`: `memory` and `bytes` count content, to which growing
/// the tables and lists that hold it adds their spare room (`tests/decode_bounds.rs` measures it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Length of the input in bytes; where it is compressed, of what comes out.
    pub bytes: usize,
    /// What the decoded form may occupy, in bytes, counted by the number and size of its elements.
    pub memory: usize,
    /// How deep lists and maps may stand in each other in the value of an attribute.
    pub depth: usize,
}

impl Default for Limits {
    /// 64 MiB (what OTLP asks a client to stay within), 256 MiB, 16 levels.
    ///
    /// Source of the first: opentelemetry-proto 1.11, docs/specification.md, "OTLP Message Size Limits".
    fn default() -> Self {
        Self { bytes: 64 << 20, memory: 256 << 20, depth: 16 }
    }
}

impl Limits {
    /// Refuses an input of `len` bytes that is too long.
    pub(crate) fn check_len(&self, len: usize) -> Result<(), DecodeError> {
        if len > self.bytes {
            Err(DecodeError::OverLimit { what: "bytes of input", limit: self.bytes })
        } else {
            Ok(())
        }
    }
}

/// What is left of [`Limits::memory`].
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { left: limits.memory, limit: limits.memory }
    }

    /// Takes `bytes` off, before they are allocated.
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(DecodeError::OverLimit { what: "bytes of decoded content", limit: self.limit })?;
        Ok(())
    }

    /// Takes `count` values of type `T` off.
    pub(crate) fn spend_on<T>(&mut self, count: usize) -> Result<(), DecodeError> {
        self.spend(count.saturating_mul(size_of::<T>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a budget can be spent to the last byte and not beyond it.
    #[test]
    fn a_budget_ends_at_its_limit() {
        let mut budget = Budget::new(&Limits { memory: 24, ..Limits::default() });
        assert_eq!(budget.spend_on::<u64>(2), Ok(()));
        assert_eq!(budget.spend(8), Ok(()));
        let error = budget.spend(1).unwrap_err();
        assert_eq!(error.to_string(), "bytes of decoded content go beyond the limit of 24");
    }
}
