//! The stack and the context of the code that allocates.
//!
//! In: the registers of the hook, on the allocating thread. Out: words that say all that makes a site, and the span. The
//! scratches are the hooks' own: a signal handler that interrupts a hook has others. Allocates nothing. Runs on the scratch's stack: the thread may
//! hardly have any left, as coroutines have little.

use super::block::Span;
use super::frames::{AllocatorFrames, Found};
use crate::context::{self, Current, TAG_WORDS};
use crate::cpu::handler::own_stack;
use crate::cpu::record::Head;
use crate::cpu::stack::Stack;
use crate::unwind::arch::Registers;
use crate::unwind::frames::{Frames, LEAF, ROOT};
use crate::unwind::memory::{StackMemory, Window};
use crate::unwind::rules::Cache;
use crate::unwind::walk::Snapshot;

/// What a hook works with, and the stack that it does so on.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) stack: Stack,
    pub(super) tools: Tools,
}

/// What a walk is made with; about 58 KiB, once it is used, those of a spare scratch 18.
#[derive(Debug)]
pub(super) struct Tools {
    cache: Cache,
    frames: Frames,
    window: Window,
    found: Found,
    tags: [u64; TAG_WORDS],
    /// Invariant: never longer than its capacity.
    words: Vec<u64>,
}

/// What came of a capture.
pub(super) enum Captured<'a> {
    /// The words of the site, and the span.
    Site(&'a [u64], Span),
    /// The allocation was one by which the allocator's frames are learned.
    Lesson,
}

impl Work {
    /// A scratch; one that is taken `often` remembers more of what walks found out.
    pub(super) fn new(stack: Stack, often: bool) -> Self {
        Self { stack, tools: Tools::new(often) }
    }
}

impl Tools {
    fn new(often: bool) -> Self {
        Self {
            cache: if often { Cache::new() } else { Cache::small() },
            frames: Frames::new(),
            window: Window::new(),
            found: Found::new(),
            tags: [0; TAG_WORDS],
            words: Vec::with_capacity(2 + TAG_WORDS + LEAF + ROOT),
        }
    }

    /// What `registers`, of a hook on this thread, stand on.
    pub(super) fn capture(
        &mut self,
        registers: &Registers,
        (snapshot, era): (&Snapshot, u64),
        allocator: &AllocatorFrames,
        block: u64,
    ) -> Captured<'_> {
        let Self { cache, frames, window, found, tags, words } = self;
        frames.clear();
        // By the thread, for once the first one has ended the process's memory is not found by its id.
        let (stack, tid) = own_stack(registers.sp);
        // SAFETY: the range is part of this thread's own stack, from the hook's frame on, which stays until the hook returns, on whichever stack it works.
        let memory = unsafe { StackMemory::new(stack, window, tid) };
        // Calls from the hook to here have written below its frame.
        let mut memory = memory.standing_on(registers.sp, registers.sp);
        let end = snapshot.walk(registers, cache, &mut memory, frames);
        let (elided, leaf_frames) = (frames.elided(), frames.leaf_frames());
        let [leaf, root, rest] = frames.parts();
        if allocator.is_lesson(snapshot, leaf, block) {
            return Captured::Lesson;
        }
        let hidden = allocator.leading(snapshot, leaf, found);
        let Current { tag_bytes, trace_id, span_id } = context::current_of_signal(tags);
        let leaf_frames = leaf_frames - hidden as u16;
        let head = Head { end, elided, leaf_frames, ..Head::default() };
        words.clear();
        words.extend([head.shape() | u64::from(tag_bytes) << Head::SHAPE_BITS, era]);
        words.extend_from_slice(&tags[..usize::from(tag_bytes).div_ceil(8).min(TAG_WORDS)]);
        [&leaf[hidden..], root, rest].iter().for_each(|part| words.extend_from_slice(part));
        Captured::Site(words, (trace_id, span_id))
    }
}

/// A site's shape, era, tags and addresses out of its words: above the shape stands the number of bytes of tags.
pub(super) fn split(words: &[u64]) -> Option<(Head, u64, Vec<u8>, &[u64])> {
    let ([first, era], rest) = words.split_first_chunk()?;
    let tag_bytes = (first >> Head::SHAPE_BITS) as usize;
    let (tags, addresses) = rest.split_at_checked(tag_bytes.div_ceil(8))?;
    let mut tags: Vec<u8> = tags.iter().flat_map(|word| word.to_ne_bytes()).collect();
    tags.truncate(tag_bytes);
    Some((Head::of_shape(*first), *era, tags, addresses))
}
