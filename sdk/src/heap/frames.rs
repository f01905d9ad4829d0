//! Which functions stand between the code that allocates and the hook: the allocator's, which no profile shows.
//!
//! In: blocks that `start` allocates through Rust's own interface. Out: where these functions begin, as unwind tables say,
//! so that hooks leave their frames out. By address, for static functions of C have names only where somebody kept them.

use std::alloc::{self, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::jemalloc;
use crate::unwind::walk::Snapshot;

/// Most functions that are known.
const MOST: usize = 48;
/// Frames among which the function that learns is looked for: in builds without optimization there are many.
const NEAR: usize = 40;
/// So many intervals are all but certainly sampled: the chance of another outcome is e^-16.
const INTERVALS: usize = 16;
/// The longest block that is allocated; nothing of it is touched.
const LONGEST: usize = 1 << 30;

/// Addresses of which it is remembered whether they are the allocator's.
const PLACES: usize = 128;

/// Functions of the allocator, and of this crate's hooks.
#[derive(Debug)]
pub(super) struct AllocatorFrames {
    starts: [AtomicU64; MOST],
    count: AtomicUsize,
    /// The function that learns, while it does; 0: none.
    learning: AtomicU64,
    /// Blocks that were sampled while learning and are not freed yet, the same one as often as it was sampled; 0: none.
    blocks: [AtomicU64; 8],
}

/// Which return addresses were found to be the allocator's, or not to be: finding the function of one takes as long as a frame of
/// the walk. One for each scratch, so nothing is shared.
#[derive(Debug)]
pub(super) struct Found {
    /// The state of modules, and how many functions were known: what was found holds for no other.
    holds_for: ((u64, u64), usize),
    /// By address; 0: nothing is known.
    places: [(u64, bool); PLACES],
}

impl Found {
    pub(super) fn new() -> Self {
        Self { holds_for: ((0, 0), 0), places: [(0, false); PLACES] }
    }

    fn begin(&mut self, holds_for: ((u64, u64), usize)) {
        if self.holds_for != holds_for {
            *self = Self { holds_for, ..Self::new() };
        }
    }

    fn place(&mut self, address: u64) -> &mut (u64, bool) {
        // Knuth, "The Art of Computer Programming" 6.4; the high bits are the mixed ones.
        &mut self.places[(address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % PLACES]
    }
}

impl AllocatorFrames {
    pub(super) fn new() -> Self {
        Self {
            starts: [const { AtomicU64::new(0) }; MOST],
            count: AtomicUsize::new(0),
            learning: AtomicU64::new(0),
            blocks: [const { AtomicU64::new(0) }; 8],
        }
    }

    /// How many are known.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Learns them with the hooks, which must be in force and call [`AllocatorFrames::is_lesson`]; sampled is one of
    /// `2^lg` bytes, or was until now.
    pub(super) fn learn(&self, snapshot: &Snapshot, lg: u32) {
        let size = size_of_lesson(lg);
        let Some(learning) = snapshot.function_at(allocate as *const () as u64) else { return };
        self.learning.store(learning, Ordering::Release);
        // The host may have left this thread out.
        let was_active: Option<bool> = jemalloc::read(c"thread.prof.active").ok();
        let set = |on: bool| drop(jemalloc::write(c"thread.prof.active", on));
        was_active.into_iter().for_each(|_| set(true));
        for align in [8, 4096] {
            if let Ok(layout) = Layout::from_size_align(size, align) {
                black_box(allocate(black_box(layout)));
            }
        }
        was_active.into_iter().for_each(set);
        self.learning.store(0, Ordering::Release);
    }

    /// Learns them without hooks: `see` looks through stacks of a time in which there was a [`Held`], and asks of each whether it is a lesson.
    pub(super) fn learn_from(&self, snapshot: &Snapshot, see: impl FnOnce(&dyn Fn(&[u64]) -> bool)) {
        let Some(learning) = snapshot.function_at(hold as *const () as u64) else { return };
        self.learning.store(learning, Ordering::Release);
        see(&|stack| self.is_lesson(snapshot, stack, 0));
        self.learning.store(0, Ordering::Release);
    }

    /// Whether a lesson is under way.
    pub(super) fn is_learning(&self) -> bool {
        self.learning.load(Ordering::Relaxed) != 0
    }

    /// Whether this stack is one of the lessons; then its functions are known from now on.
    pub(super) fn is_lesson(&self, snapshot: &Snapshot, stack: &[u64], block: u64) -> bool {
        let learning = self.learning.load(Ordering::Acquire);
        if learning == 0 {
            return false;
        }
        let starts = || stack.iter().take(NEAR).map(|address| snapshot.function_at(*address).unwrap_or(0));
        let Some(frames) = starts().position(|start| start == learning) else { return false };
        starts().take(frames).filter(|start| *start != 0).for_each(|start| self.add(start));
        self.change_one(0, block);
        true
    }

    /// Whether this block was sampled for a lesson, which is over when it is freed.
    pub(super) fn ends_lesson(&self, block: u64) -> bool {
        self.change_one(block, 0)
    }

    fn change_one(&self, from: u64, to: u64) -> bool {
        // A load first: frees that are in no table come here, and hooks on other threads read what is beside.
        let change = |block: &AtomicU64| block.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.blocks.iter().any(|block| block.load(Ordering::Relaxed) == from && change(block))
    }

    /// Only the thread that learns comes here.
    fn add(&self, start: u64) {
        let count = self.count.load(Ordering::Relaxed);
        if !self.known(count).any(|known| known == start)
            && let Some(place) = self.starts.get(count)
        {
            place.store(start, Ordering::Relaxed);
            // Release: pairs with the Acquire load in `leading`.
            self.count.store(count + 1, Ordering::Release);
        }
    }

    /// How many frames at the leaf of this stack are the allocator's.
    pub(super) fn leading(&self, snapshot: &Snapshot, stack: &[u64], found: &mut Found) -> usize {
        let count = self.count.load(Ordering::Acquire);
        found.begin((snapshot.modules.changes, count));
        let is_known = |address: &&u64| {
            let place = found.place(**address);
            if place.0 != **address {
                let start = snapshot.function_at(**address);
                *place = (**address, start.is_some_and(|start| self.known(count).any(|known| known == start)));
            }
            place.1
        };
        stack.iter().take_while(is_known).count()
    }

    fn known(&self, count: usize) -> impl Iterator<Item = u64> + '_ {
        self.starts.iter().take(count).map(|start| start.load(Ordering::Relaxed))
    }
}

fn size_of_lesson(lg: u32) -> usize {
    INTERVALS.saturating_mul(1 << lg.min(62)).clamp(1 << 16, LONGEST)
}

/// Allocates in every way that there is, from this one function.
#[inline(never)]
fn allocate(layout: Layout) -> usize {
    let mut touched = 0;
    let shorter = layout.size() / 2;
    // SAFETY: the layout has a size; what was allocated is freed once, with the layout that it has by then; null is not touched.
    unsafe {
        for zeroed in [false, true] {
            let block = if black_box(zeroed) { alloc::alloc_zeroed(layout) } else { alloc::alloc(layout) };
            if block.is_null() {
                continue;
            }
            touched ^= black_box(block) as usize;
            // Shorter, so that nothing is copied.
            let moved = alloc::realloc(block, layout, shorter);
            let (block, size) = if moved.is_null() { (block, layout.size()) } else { (moved, shorter) };
            touched ^= black_box(block) as usize;
            alloc::dealloc(block, Layout::from_size_align_unchecked(size, layout.align()));
        }
    }
    touched
}

/// Blocks that are all but certainly sampled, though this thread's are not, and live until this is dropped. Nothing of them is touched.
#[derive(Debug)]
pub(super) struct Held(Vec<(*mut u8, Layout)>);

impl Held {
    /// Of one sample in `2^lg` bytes.
    pub(super) fn new(lg: u32) -> Self {
        let mut held = Vec::with_capacity(2 * 3);
        // Where it cannot be turned on, nothing is learned.
        drop(jemalloc::write(c"thread.prof.active", true));
        for align in [8, 4096] {
            if let Ok(layout) = Layout::from_size_align(size_of_lesson(lg), align) {
                hold(black_box(layout), &mut held);
            }
        }
        drop(jemalloc::write(c"thread.prof.active", false));
        Self(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (block, layout) in self.0.drain(..) {
            // SAFETY: a block of this layout, which nobody else has.
            unsafe { alloc::dealloc(block, layout) };
        }
    }
}

/// Allocates as [`allocate`] does, and frees nothing. `held` has room.
#[inline(never)]
fn hold(layout: Layout, held: &mut Vec<(*mut u8, Layout)>) {
    let shorter = layout.size() / 2;
    // SAFETY: the layout has a size; a block that is resized has this layout, and the other one from then on.
    unsafe {
        held.push((alloc::alloc(layout), layout));
        held.push((alloc::alloc_zeroed(layout), layout));
        let block = alloc::alloc(layout);
        // Shorter, so that nothing is copied.
        let moved = if block.is_null() { block } else { alloc::realloc(block, layout, shorter) };
        let short = Layout::from_size_align_unchecked(shorter, layout.align());
        held.push(if moved.is_null() { (block, layout) } else { (moved, short) });
    }
    held.retain(|(block, _)| !block.is_null());
}
