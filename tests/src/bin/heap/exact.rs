//! Every allocation sampled, so that what a profile says must be exact.
//!
//! In: nothing. Out: for each way to allocate, what `malloc_usable_size` says and what the profile says, while the memory lives and
//! once it is freed.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};

use profiler::{Config, Profiler};
use profiler_tests::Result;
use profiler_tests::stats::heap_to_json;
use serde_json::{Map, Value, json};

use super::{start, sums};

/// A block and the layout by which it is freed.
pub(crate) struct Block {
    address: *mut u8,
    layout: Layout,
}

// SAFETY: the memory belongs to this value, whichever thread that is on.
unsafe impl Send for Block {}

impl Block {
    /// Takes over what was allocated with this layout.
    fn new(address: *mut u8, layout: Layout) -> Self {
        assert!(!address.is_null(), "no memory for {layout:?}");
        Self { address, layout }
    }

    /// A block of so many bytes.
    #[inline]
    pub(crate) fn of(size: usize) -> Self {
        let layout = layout(size, 8);
        // SAFETY: the layout has a size.
        Self::new(unsafe { alloc(layout) }, layout)
    }

    pub(crate) fn resized(self, size: usize) -> Self {
        let Self { address, layout: old } = self;
        std::mem::forget(self);
        // SAFETY: allocated with this layout (invariant); the new size is not 0. It is freed by its new layout only.
        let address = unsafe { realloc(address, old, size) };
        Self::new(address, layout(size, old.align()))
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> usize {
        self.address as usize
    }

    /// What the allocator says that it holds.
    pub(crate) fn usable(&self) -> u64 {
        // SAFETY: allocated by jemalloc and not freed.
        unsafe { usable_at(self.address) }
    }
}

/// What the allocator says that the memory of `bytes` holds; 0 where they have none.
pub(crate) fn usable(bytes: &Vec<u8>) -> u64 {
    // SAFETY: allocated by jemalloc, the allocator of this program, and not freed; without capacity there is no block.
    if bytes.capacity() == 0 { 0 } else { unsafe { usable_at(bytes.as_ptr()) } }
}

/// # Safety
/// The address is that of a block of jemalloc's that is not freed.
unsafe fn usable_at(address: *const u8) -> u64 {
    // SAFETY: the caller's, and jemalloc only reads what it knows of the block.
    unsafe { tikv_jemalloc_sys::malloc_usable_size(address.cast_mut().cast()) as u64 }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and not freed before.
        unsafe { dealloc(self.address, self.layout) };
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap_or(Layout::new::<u64>())
}

/// A way to allocate: what lives in the end goes into a vector that has room for it.
type Way = fn(&mut Vec<Block>);
/// More than lives in the end by any way.
const ROOM: usize = 200;

// A body of its own for each, for the linker folds equal functions.
macro_rules! ways {
    ($($name:ident => $work:expr;)*) => {
        const WAYS: &[(&str, Way)] = &[$((stringify!($name), $name)),*];
        $(
            #[inline(never)]
            fn $name(room: &mut Vec<Block>) {
                room.extend($work);
                std::hint::black_box(stringify!($name));
            }
        )*
    };
}

ways! {
    small => (1..100).map(|n| Block::of(n * 7));
    large => (1..20).map(|n| Block::of(n * 30_000));
    huge => [100 << 20, 300 << 20].map(Block::of);
    aligned => [64, 4096, 1 << 16, 1 << 21].iter().map(|align| {
        let layout = layout(10_000, *align);
        // SAFETY: the layout has a size.
        Block::new(unsafe { alloc(layout) }, layout)
    });
    zeroed => [10, 5000, 1 << 20].iter().map(|size| {
        let layout = layout(*size, 16);
        // SAFETY: the layout has a size.
        Block::new(unsafe { alloc_zeroed(layout) }, layout)
    });
    zeroed_aligned => [{
        let layout = layout(10_000, 8192);
        // SAFETY: the layout has a size.
        Block::new(unsafe { alloc_zeroed(layout) }, layout)
    }];
    grown => [(1..60).fold(Block::of(16), |block, n| block.resized(16 + n * n * 50))];
    grown_large => [(1..20).fold(Block::of(1 << 20), |block, n| block.resized((1 << 20) + (n << 18)))];
    shrunk => [(1..20).rev().fold(Block::of(20 << 16), |block, n| block.resized(n << 16))];
    shrunk_small => [(1..50).rev().fold(Block::of(6000), |block, n| block.resized(n * 100))];
    same => [(0..20).fold(Block::of(1000), |block, _| block.resized(1000))];
    aligned_resized => [{
        let layout = layout(10_000, 4096);
        // SAFETY: the layout has a size.
        Block::new(unsafe { alloc(layout) }, layout).resized(100_000).resized(20_000)
    }];
    by_another_thread => std::thread::scope(|scope| {
        let blocks: Vec<Block> = (1..100).map(|n| Block::of(n * 100)).collect();
        scope.spawn(|| blocks.into_iter().filter(|block| block.usable() % 512 == 0).collect::<Vec<_>>()).join().unwrap_or_default()
    });
    all_freed => {
        drop((1..100).map(|n| Block::of(n * 1000)).collect::<Vec<_>>());
        []
    };
}

/// Allocates in every way.
pub(crate) fn exact() -> Result<Value> {
    let profiler = start(0)?;
    let mut ways = Map::new();
    let mut alive = Vec::new();
    for (name, way) in WAYS {
        let mut blocks = Vec::with_capacity(ROOM);
        way(&mut blocks);
        let truth = [blocks.len() as u64, blocks.iter().map(Block::usable).sum()];
        ways.insert((*name).to_owned(), json!({ "truth": truth }));
        alive.push(blocks);
    }
    let lived = sums(&profiler)?;
    drop(alive);
    let freed = sums(&profiler)?;
    for (name, way) in &mut ways {
        way["lived"] = json!(lived.function(name));
        way["freed"] = json!(freed.function(name));
    }
    let leaves: Vec<_> = lived.leaves.iter().collect();
    Ok(json!({ "ways": ways, "leaves": leaves, "stats": heap_to_json(&profiler.stats().heap) }))
}

/// More live blocks than there is room for.
pub(crate) fn full() -> Result<Value> {
    const ROOM: usize = 1000;
    let profiler: Profiler = profiler::start(Config::new("heap").heap(true).heap_interval(1).heap_blocks(ROOM))?;
    let before = profiler.stats().heap;
    let blocks = beyond();
    let full = sums(&profiler)?;
    let at_most = heap_to_json(&profiler.stats().heap);
    drop(blocks);
    let freed = sums(&profiler)?;
    let again = beyond();
    let refilled = sums(&profiler)?;
    drop(again);
    Ok(json!({
        "room": ROOM, "before": before.live, "full": full.function("beyond"), "freed": freed.function("beyond"),
        "refilled": refilled.function("beyond"), "at_most": at_most, "stats": heap_to_json(&profiler.stats().heap),
    }))
}

#[inline(never)]
fn beyond() -> Box<[Block; 5000]> {
    std::hint::black_box(Box::new(std::array::from_fn(|_| Block::of(100))))
}
