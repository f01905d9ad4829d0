//! One sample as it crosses the ring: a fixed head and the addresses of the stack.
//!
//! In: what the handler read. Out: the words of a ring record and back. Both sides are in this process, so the layout is
//! nobody else's business; it is pinned here so that writer and reader cannot differ.

use crate::context::Current;
use crate::unwind::frames::StackEnd;

/// Words before the addresses.
pub(crate) const HEAD_WORDS: usize = 6;

/// What a sample carries beside its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    /// Epoch in which it was counted as taken: 0 or 1.
    pub(crate) epoch: u8,
    /// Where the walk ended.
    pub(crate) end: StackEnd,
    /// Frames left out between the leaf part and the root part.
    pub(crate) elided: u16,
    /// How many of the addresses belong to the leaf part; the others follow the gap. All of them where nothing is left out.
    pub(crate) leaf_frames: u16,
    /// Weight in periods: 1 + overrun.
    pub(crate) weight: u32,
    /// What the thread was working for.
    pub(crate) context: Current,
}

impl Head {
    /// The words of this head.
    pub(crate) fn to_words(self) -> [u64; HEAD_WORDS] {
        let shape = u64::from(self.epoch)
            | u64::from(self.end as u8) << 8
            | u64::from(self.elided) << 16
            | u64::from(self.leaf_frames) << 32;
        let Current { tag_set, trace_id, span_id } = self.context;
        let [trace_high, trace_low] = trace_id;
        [shape, u64::from(self.weight), u64::from(tag_set), trace_high, trace_low, span_id]
    }

    /// The head and the addresses in the words of a record; `None` if they are too few to be one.
    pub(crate) fn split(words: &[u64]) -> Option<(Self, &[u64])> {
        let ([shape, weight, tag_set, trace_high, trace_low, span_id], addresses) =
            words.split_first_chunk::<HEAD_WORDS>()?;
        let head = Self {
            epoch: *shape as u8,
            end: StackEnd::from_byte((*shape >> 8) as u8),
            elided: (*shape >> 16) as u16,
            leaf_frames: (*shape >> 32) as u16,
            weight: *weight as u32,
            context: Current { tag_set: *tag_set as u32, trace_id: [*trace_high, *trace_low], span_id: *span_id },
        };
        Some((head, addresses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a head comes out of its words as it went in.
    #[test]
    fn a_head_survives_its_words() {
        let head = Head {
            epoch: 1,
            end: StackEnd::TooDeep,
            elided: 65_000,
            leaf_frames: 384,
            weight: u32::MAX,
            context: Current { tag_set: 7, trace_id: [u64::MAX, 1], span_id: 3 },
        };
        let words = [&head.to_words()[..], &[10, 20]].concat();
        assert_eq!(Head::split(&words), Some((head, &[10, 20][..])));
        assert_eq!(Head::split(&words[..HEAD_WORDS - 1]), None);
    }
}
