//! Where live blocks stand: entries that never move, so that a profile can be made of them while hooks write.
//!
//! In: blocks at their places, from hooks, one at a time. Out: copies of them, for the `profiler-io` thread, which takes no lock: nobody who allocates
//! ever waits for it. A writer makes the version odd, writes, and makes it even; who reads throws away what was read while it changed
//! (H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012, figure 6). Nothing here locks. The tests try it in every order in which a hook and a profile can meet (`tests/src/bin/models`).

use std::sync::OnceLock;

use super::array::Array;
use super::atomic::{AtomicU32, AtomicU64, Ordering, fence, yield_now};
use super::block::{Block, Refused};

/// Parts of the same length: together they are as long as all those before.
const ALIKE: u32 = 8;
/// Entries of the shortest part.
const SHORTEST: u32 = 16;
/// Entries that are read at once: so few that they are seldom written meanwhile.
const SLICE: usize = 32;
/// How often a slice is read that changes all the time, before it is read as whoever writes is kept out.
const TRIES: usize = 64;

/// Bytes of one of them.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>();

/// A block as it stands here, its parts in the order that leaves no gaps. Each is written by one hook at a time.
#[derive(Debug, Default)]
struct Entry {
    /// 0: free.
    address: AtomicU64,
    trace_id: [AtomicU64; 2],
    span_id: AtomicU64,
    measure: AtomicU64,
    site: AtomicU32,
    /// The next one of the same chain. Of no meaning for who reads.
    next: AtomicU32,
}

/// Entries by number. They are made part by part, each an eighth of all, and stay.
#[derive(Debug)]
pub(super) struct Entries {
    parts: Box<[OnceLock<Array<Entry>>]>,
    /// Entries that were ever in use, or since they were cleared; all that may be read. Release: pairs with the Acquire load in `read`.
    used: AtomicU32,
    /// Odd while an entry is written. Release: pairs with the Acquire load in `read_slice`.
    version: AtomicU64,
}

/// In which part an entry is, and where in it.
fn part_of(place: u32) -> (u32, u32) {
    match place.checked_ilog2() {
        Some(log) if place >= ALIKE * SHORTEST => {
            let shift = log - ALIKE.ilog2();
            let doublings = log - (ALIKE * SHORTEST).ilog2() + 1;
            (ALIKE * doublings + (place >> shift) % ALIKE, place % (1 << shift))
        }
        _ => (place / SHORTEST, place % SHORTEST),
    }
}

/// How many entries a part has.
fn length_of(part: u32) -> usize {
    (SHORTEST as usize) << (part / ALIKE).saturating_sub(1)
}

impl Entries {
    /// Room for so many; none of it is there yet.
    pub(super) fn new(most: usize) -> Self {
        let last = u32::try_from(most).unwrap_or(u32::MAX).saturating_sub(1);
        let parts = (0..=part_of(last).0).map(|_| OnceLock::new()).collect();
        Self { parts, used: AtomicU32::new(0), version: AtomicU64::new(0) }
    }

    fn at(&self, place: u32) -> Option<&Entry> {
        let (part, offset) = part_of(place);
        self.parts.get(part as usize)?.get()?.get(offset as usize)
    }

    /// Makes sure that there is an entry of this number. Only one hook at a time.
    pub(super) fn make(&self, place: u32) -> Result<(), Refused> {
        let (part, _) = part_of(place);
        let made = self.parts.get(part as usize).ok_or(Refused::Full)?;
        if made.get().is_none() {
            let entries = Array::filled(length_of(part), Entry::default).ok_or(Refused::NoMemory)?;
            drop(made.set(entries));
        }
        Ok(())
    }

    /// Bytes of the parts that are there.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().filter_map(|part| part.get()).map(|part| size_of_val(&**part)).sum()
    }

    /// Puts a block where nobody's is, at the end of a chain. Only one hook at a time.
    pub(super) fn put(&self, place: u32, address: u64, block: &Block, end: u32) {
        let Some(entry) = self.at(place) else { return };
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        // Pairs with the Acquire fence in `read_slice`: who sees any of what follows sees the odd version, too.
        fence(Ordering::Release);
        entry.address.store(address, Ordering::Relaxed);
        entry.trace_id.iter().zip(block.trace_id).for_each(|(place, half)| place.store(half, Ordering::Relaxed));
        entry.span_id.store(block.span_id, Ordering::Relaxed);
        entry.measure.store(block.measure, Ordering::Relaxed);
        entry.site.store(block.site, Ordering::Relaxed);
        entry.next.store(end, Ordering::Relaxed);
        self.version.store((version | 1) + 1, Ordering::Release);
        if place >= self.used.load(Ordering::Relaxed) {
            self.used.store(place + 1, Ordering::Release);
        }
    }

    /// Marks an entry as free, and links it. Only one hook at a time.
    pub(super) fn free(&self, place: u32, next: u32) {
        if let Some(entry) = self.at(place) {
            // One store: who reads sees the whole block, or none.
            entry.address.store(0, Ordering::Relaxed);
            entry.next.store(next, Ordering::Relaxed);
        }
    }

    /// Forgets all. Only where no hook writes.
    pub(super) fn clear(&self) {
        for entry in self.parts.iter().filter_map(|part| part.get()).flat_map(|part| part.iter()) {
            entry.address.store(0, Ordering::Relaxed);
        }
        self.used.store(0, Ordering::Release);
    }

    /// The block at this place and its address; of no block where none is. For who writes.
    pub(super) fn block(&self, place: u32) -> Option<(u64, Block)> {
        self.at(place).map(Entry::read)
    }

    pub(super) fn next(&self, place: u32) -> Option<u32> {
        self.at(place).map(|entry| entry.next.load(Ordering::Relaxed))
    }

    /// For who writes.
    pub(super) fn link(&self, place: u32, next: u32) {
        if let Some(entry) = self.at(place) {
            entry.next.store(next, Ordering::Relaxed);
        }
    }

    /// How many entries were ever in use.
    pub(super) fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Hands a copy of each block to `see`. A block that is there from beginning to end is seen once; `alone` runs what it is given while nobody
    /// writes, and is asked to where a slice is written all the time.
    pub(super) fn read(&self, alone: impl Fn(&mut dyn FnMut()), mut see: impl FnMut(&Block)) {
        let used = self.used.load(Ordering::Acquire);
        let (mut blocks, mut left) = (Vec::with_capacity(SLICE), used as usize);
        for part in self.parts.iter().map_while(OnceLock::get) {
            let there = part.len().min(left);
            left -= there;
            for slice in part[..there].chunks(SLICE) {
                let is_whole = (0..TRIES).any(|_| {
                    // A hook that was put aside while it writes comes on only if it is let.
                    self.read_slice(slice, &mut blocks) || {
                        yield_now();
                        false
                    }
                });
                if !is_whole {
                    alone(&mut || {
                        self.read_slice(slice, &mut blocks);
                    });
                }
                blocks.iter().for_each(&mut see);
            }
        }
    }

    /// Copies the blocks of a slice; whether nobody wrote meanwhile.
    fn read_slice(&self, slice: &[Entry], blocks: &mut Vec<Block>) -> bool {
        let before = self.version.load(Ordering::Acquire);
        blocks.clear();
        blocks.extend(slice.iter().map(Entry::read).filter(|(address, _)| *address != 0).map(|(_, block)| block));
        // Pairs with the Release fence in `put`.
        fence(Ordering::Acquire);
        before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before
    }
}

impl Entry {
    fn read(&self) -> (u64, Block) {
        let block = Block {
            site: self.site.load(Ordering::Relaxed),
            trace_id: [0, 1].map(|half: usize| self.trace_id[half].load(Ordering::Relaxed)),
            span_id: self.span_id.load(Ordering::Relaxed),
            measure: self.measure.load(Ordering::Relaxed),
        };
        (self.address.load(Ordering::Relaxed), block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u32 = 3 * SLICE as u32;

    fn block(site: u32) -> Block {
        Block::new(site, [1, 2], 3, 8, 19)
    }

    fn full() -> Entries {
        let entries = Entries::new(1000);
        for place in 0..PLACES {
            entries.make(place).unwrap();
            entries.put(place, 4096 * u64::from(place + 1), &block(place), u32::MAX);
        }
        entries
    }

    /// Check that who reads asks to be alone where a hook stands amid a block and does not come on, once for each slice, and that what it reads then is what the hook left once
    /// it was done: each block once, none of them half.
    #[test]
    fn a_hook_that_stays_amid_a_block_is_waited_for() {
        let entries = full();
        // As `put` begins, and stops between two of its stores.
        let version = entries.version.fetch_add(1, Ordering::Relaxed);
        let amid = entries.at(40).unwrap();
        amid.site.store(77, Ordering::Relaxed);
        let asked = std::cell::Cell::new(0);
        let alone = |read: &mut dyn FnMut()| {
            if asked.replace(asked.get() + 1) == 0 {
                amid.span_id.store(9, Ordering::Relaxed);
                entries.version.store(version + 2, Ordering::Release);
            }
            read();
            // The next one begins, in the place of the same block, and is done when it is waited for.
            if asked.get() == 1 {
                entries.version.fetch_add(1, Ordering::Relaxed);
            } else {
                entries.version.store(version + 4, Ordering::Release);
            }
        };
        let mut seen = Vec::new();
        entries.read(alone, |block| seen.push((block.site, block.span_id)));
        let expected = (0..PLACES).map(|place| if place == 40 { (77, 9) } else { (place, 3) });
        assert_eq!((seen, asked.get()), (expected.collect::<Vec<_>>(), 2));
    }

    /// Check that nobody is kept out where nobody writes.
    #[test]
    fn what_stands_still_is_read_without_being_alone() {
        let entries = full();
        let mut seen = 0;
        entries.read(|_| panic!("nobody writes"), |_| seen += 1);
        assert_eq!(seen, PLACES);
    }
}
