//! One sample as it crosses the ring: a fixed head, the tags, and the addresses of the stack.
//!
//! In: what the handler read. Out: the words of a ring record and back. Both sides are in this process, so the layout is
//! nobody else's business; it is pinned here so that writer and reader cannot differ.

use crate::context::Current;
use crate::unwind::frames::StackEnd;

/// Words before the tags.
pub(crate) const HEAD_WORDS: usize = 6;

/// What a sample carries beside its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    /// Epoch in which it was counted as taken: 0 or 1.
    pub(crate) epoch: u8,
    /// Number of the state of the loaded modules that the walk went by.
    pub(crate) modules: u8,
    /// Where the walk ended.
    pub(crate) end: StackEnd,
    /// Frames left out between the leaf part and the root part.
    pub(crate) elided: u16,
    /// How many of the addresses belong to the leaf part; the others follow the gap. All of them where nothing is left out.
    pub(crate) leaf_frames: u16,
    /// Weight in periods: 1 + overrun, and what is added for periods without a signal.
    pub(crate) weight: u32,
    /// Nanoseconds of CPU time between samples when it was taken.
    pub(crate) period: u32,
    /// Thread id; 0 where it is not known.
    pub(crate) tid: u32,
    /// The thread's own alarm went off, not one that many threads share.
    pub(crate) own_alarm: bool,
    /// The weight is corrected by the thread's CPU clock.
    pub(crate) scaled: bool,
    /// What the thread was working for.
    pub(crate) context: Current,
}

impl Head {
    /// The words of this head.
    pub(crate) fn to_words(self) -> [u64; HEAD_WORDS] {
        let (modules, epoch) = (u64::from(self.modules) << 8, u64::from(self.epoch) << 48);
        let origin = self.shape() | modules | epoch | u64::from(self.own_alarm) << 56 | u64::from(self.scaled) << 57;
        let Current { tag_bytes, trace_id, span_id } = self.context;
        let [trace_high, trace_low] = trace_id;
        let weight = u64::from(self.weight) | u64::from(self.period) << 32;
        let owner = u64::from(tag_bytes) | u64::from(self.tid) << 32;
        [origin, weight, owner, trace_high, trace_low, span_id]
    }

    /// Bits of a shape; what stands above them is the caller's.
    pub(crate) const SHAPE_BITS: u32 = 48;

    /// What this head says of its stack, in one word.
    pub(crate) fn shape(self) -> u64 {
        u64::from(self.end as u8) | u64::from(self.elided) << 16 | u64::from(self.leaf_frames) << 32
    }

    /// A head that says this of its stack, and nothing else.
    pub(crate) fn of_shape(shape: u64) -> Self {
        let (elided, leaf_frames) = ((shape >> 16) as u16, (shape >> 32) as u16);
        Self { end: StackEnd::from_byte(shape as u8), elided, leaf_frames, ..Self::default() }
    }

    /// The words of the tags.
    pub(crate) fn tag_words(&self) -> usize {
        usize::from(self.context.tag_bytes).div_ceil(8)
    }

    /// The head, the tags and the addresses in the words of a record; `None` if they are too few to be one.
    pub(crate) fn split(words: &[u64]) -> Option<(Self, &[u64], &[u64])> {
        let ([origin, weight, owner, trace_high, trace_low, span_id], rest) =
            words.split_first_chunk::<HEAD_WORDS>()?;
        let head = Self {
            epoch: (*origin >> 48) as u8,
            modules: (*origin >> 8) as u8,
            weight: *weight as u32,
            period: (*weight >> 32) as u32,
            tid: (*owner >> 32) as u32,
            own_alarm: *origin >> 56 & 1 == 1,
            scaled: *origin >> 57 & 1 == 1,
            context: Current { tag_bytes: *owner as u16, trace_id: [*trace_high, *trace_low], span_id: *span_id },
            ..Self::of_shape(*origin)
        };
        let (tags, addresses) = rest.split_at_checked(head.tag_words())?;
        Some((head, tags, addresses))
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
            modules: 255,
            end: StackEnd::TooDeep,
            elided: 65_000,
            leaf_frames: 384,
            weight: u32::MAX,
            period: 1_000_000_000,
            tid: 4_194_304,
            own_alarm: true,
            scaled: true,
            context: Current { tag_bytes: 9, trace_id: [u64::MAX, 1], span_id: 3 },
        };
        let words = [&head.to_words()[..], &[1, 2], &[10, 20]].concat();
        assert_eq!(Head::split(&words), Some((head, &[1, 2][..], &[10, 20][..])));
        assert_eq!((Head::split(&words[..HEAD_WORDS - 1]), Head::split(&words[..HEAD_WORDS + 1])), (None, None));
    }
}
