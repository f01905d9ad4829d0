//! A sampled block, as the live table keeps it, and its span.
//!
//! In: what a hook knows of an allocation. Out: the words that `entries` hold, and what a profile reads of them. Pure; leaf module.

/// The interval stands above so many bits of the size.
const SIZE_BITS: u32 = 56;

/// The span that a sample belongs to: its trace, and its own id.
pub(super) type Span = ([u64; 2], u64);
/// No span.
pub(super) const NO_SPAN: Span = ([0; 2], 0);

/// What is known of a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Number of its site.
    pub(super) site: u32,
    pub(super) trace_id: [u64; 2],
    pub(super) span_id: u64,
    /// Usable size and interval in one word.
    pub(super) measure: u64,
}

impl Block {
    /// A block of `size` usable bytes, sampled at one per `2^lg` bytes.
    pub(super) fn new(site: u32, trace_id: [u64; 2], span_id: u64, size: u64, lg: u32) -> Self {
        let measure = size.min((1 << SIZE_BITS) - 1) | u64::from(lg.min(255)) << SIZE_BITS;
        Self { site, trace_id, span_id, measure }
    }

    /// Usable bytes.
    pub(super) fn size(&self) -> u64 {
        self.measure & ((1 << SIZE_BITS) - 1)
    }

    /// The interval that the sample was drawn with, as a power of two.
    pub(super) fn lg(&self) -> u32 {
        (self.measure >> SIZE_BITS) as u32
    }
}

/// Why a block is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    NoMemory,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a block of any size keeps size and interval.
    #[test]
    fn size_and_interval_share_a_word() {
        let of = |size, lg| Block::new(1, [0; 2], 0, size, lg);
        assert_eq!((of(123, 63).size(), of(123, 63).lg()), (123, 63));
        assert_eq!((of(u64::MAX, 0).size(), of(u64::MAX, 0).lg()), ((1 << 56) - 1, 0));
    }
}
