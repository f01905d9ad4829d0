//! The stacks of one capture, each kept once: most goroutines of a program stand where others do.
//!
//! In: stacks as they are read. Out: the same, shared; none once those that are kept have all the bytes that a capture may have. Whoever asks counts
//! what it does not get. On the thread that captures.

use std::hash::Hash;
use std::sync::Arc;

use profiler_proto::hash::Set;

/// Bytes that the stacks of a capture may have: 100,000 different ones of 30 frames.
pub(super) const BYTES: usize = 32 << 20;
/// What a stack takes beside its frames: its counts, its place in a table that is seven eighths full at most.
const BESIDE: usize = 64;

/// Stacks of frames of one kind.
#[derive(Debug)]
pub(super) struct Stacks<T> {
    known: Set<Arc<[T]>>,
    left: usize,
}

impl<T: Copy + Eq + Hash> Stacks<T> {
    /// None yet, and room for so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self { known: Set::default(), left: bytes }
    }

    /// `stack`, kept; none where there is no room for it.
    pub(super) fn keep(&mut self, stack: &[T]) -> Option<Arc<[T]>> {
        if let Some(known) = self.known.get(stack) {
            return Some(Arc::clone(known));
        }
        let left = self.left.checked_sub(size_of_val(stack) + BESIDE)?;
        let stack = Arc::<[T]>::from(stack);
        self.left = left;
        self.known.insert(Arc::clone(&stack));
        Some(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal stacks are one, and that room is taken by new ones alone.
    #[test]
    fn equal_stacks_take_room_once() {
        let mut stacks = Stacks::new(2 * (BESIDE + 24) + 8);
        let first = stacks.keep(&[1_u64, 2, 3]).unwrap();
        for _ in 0..1000 {
            assert!(Arc::ptr_eq(&first, &stacks.keep(&[1, 2, 3]).unwrap()));
        }
        assert!(stacks.keep(&[4, 5, 6]).is_some());
        assert_eq!((stacks.keep(&[7]), stacks.keep(&[4, 5, 6]).as_deref()), (None, Some(&[4, 5, 6][..])));
    }
}
