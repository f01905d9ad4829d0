//! The stacks of a program that were seen: of a service at work most are some that were there before, and are named by one look-up.
//!
//! In: what a stack is made of, as words. Out: what became of it. Bounded in bytes: where there are too many they begin anew. Pure.

use std::sync::Arc;

use profiler_proto::hash::Map;
use profiler_proto::loss::Degraded;

use super::frame::{Location, Stack};

/// Most bytes of a program's stacks: some two hundred and fifty of 32 frames.
const MAX_BYTES: usize = 256 << 10;
/// What one takes beside its words and frames.
const STACK_BYTES: usize = 2 * (size_of::<(Box<[u64]>, Walked)>() + 16);

/// What became of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whether it reaches its root, and lacks nothing on the way as far as can be told.
    pub(super) is_whole: bool,
    pub(super) top: TopState,
    /// Whether the process's mappings cannot be read.
    pub(super) is_closed: bool,
    /// Whether that is because it runs another program, and nothing was known of this one.
    pub(super) is_replaced: bool,
    /// Frames without a name.
    pub(super) unnamed: u64,
}

/// What became of the top of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopState {
    /// Nothing was missing, or it is not Go's.
    Whole,
    /// Callers were put in.
    Mended,
    /// It cannot be told whether one is missing.
    Unmended,
}

/// The user part of a stack, and what became of it.
#[derive(Debug, Clone)]
pub(super) struct Walked {
    pub(super) frames: Arc<[Arc<Location>]>,
    pub(super) flaws: Degraded,
    pub(super) outcome: Outcome,
    /// That of [`Stack::number`].
    pub(super) number: Option<u64>,
}

impl Walked {
    /// The whole stack, with the kernel's frames.
    pub(super) fn below(self, kernel: Vec<Arc<Location>>) -> Stack {
        let Self { frames, flaws, number, .. } = self;
        if kernel.is_empty() {
            return Stack { frames, flaws, number };
        }
        let frames = kernel.into_iter().chain(frames.iter().map(Arc::clone)).collect();
        Stack { frames, flaws, number: None }
    }
}

/// The stacks.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    known: Map<Box<[u64]>, Walked>,
    bytes: usize,
}

impl Stacks {
    /// What became of a stack that was made of these words.
    pub(super) fn find(&self, words: &[u64]) -> Option<&Walked> {
        self.known.get(words)
    }

    /// Keeps it.
    pub(super) fn keep(&mut self, words: &[u64], walked: Walked) {
        let bytes = STACK_BYTES + size_of_val(words) + size_of_val(&*walked.frames);
        if self.bytes + bytes > MAX_BYTES {
            *self = Self::default();
        }
        self.bytes += bytes;
        self.known.insert(words.into(), walked);
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(names: &[&str]) -> Walked {
        let outcome =
            Outcome { is_whole: true, top: TopState::Whole, is_closed: false, is_replaced: false, unnamed: 0 };
        let frames = names.iter().map(|name| Location::remark(name)).collect();
        Walked { frames, flaws: Degraded::default(), outcome, number: Some(7) }
    }

    /// Check that a stack is found by all of its words, and that memory is bounded however many there are.
    #[test]
    fn stacks_are_found_by_their_words_within_bounds() {
        let mut stacks = Stacks::default();
        stacks.keep(&[1, 2], walked(&["a"]));
        assert_eq!(stacks.find(&[1, 2]).map(|walked| walked.frames[0].function().to_owned()), Some("a".to_owned()));
        assert!(stacks.find(&[1]).is_none() && stacks.find(&[2, 1]).is_none());
        for word in 0..10_000 {
            stacks.keep(&[word; 50], walked(&["b"; 50]));
            assert!(stacks.bytes() <= MAX_BYTES && stacks.find(&[word; 50]).is_some());
        }
        assert!(stacks.find(&[1, 2]).is_none());
    }

    /// Check that the kernel's frames come first, and that such a stack is not taken for the one without them.
    #[test]
    fn the_kernels_frames_make_another_stack() {
        let names = |stack: &Stack| stack.frames.iter().map(|frame| frame.function().to_owned()).collect::<Vec<_>>();
        let alone = walked(&["a", "b"]).below(Vec::new());
        assert_eq!((names(&alone), alone.number), (vec!["a".to_owned(), "b".to_owned()], Some(7)));
        let below = walked(&["a"]).below(vec![Location::remark("entry")]);
        assert_eq!((names(&below), below.number), (vec!["entry".to_owned(), "a".to_owned()], None));
    }
}
