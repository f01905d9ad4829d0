//! The sampled blocks that are not freed yet.
//!
//! In: blocks as they are sampled, addresses and sizes as they are freed, both in hooks of any thread. Out: what lives, copied for a
//! profile. Bounded in number; a block that does not fit is refused and the caller counts it. By address, 64 locks; the
//! entries of one address and size, of which there may be several for a moment, leave in the order in which they came.

use std::collections::TryReserveError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks of a table.
const SHARDS: usize = 64;
/// Most bytes that a block takes: its entry with an eighth for growth, and up to two links of the index.
pub(super) const BLOCK_BYTES: usize = size_of::<Entry>() * 9 / 8 + 2 * size_of::<u32>();
/// Stands for no entry.
const NONE: u32 = u32::MAX;
/// The interval stands above so many bits of the size.
const SIZE_BITS: u32 = 56;

/// What is known of a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Number of its site.
    pub(super) site: u32,
    pub(super) trace_id: [u64; 2],
    pub(super) span_id: u64,
    /// Usable size and interval in one word.
    measure: u64,
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

    /// The interval in force when it was sampled, as a power of two.
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

impl From<TryReserveError> for Refused {
    fn from(_: TryReserveError) -> Self {
        Self::NoMemory
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Live {
    shards: Box<[Mutex<Shard>]>,
    /// Entries in all shards.
    count: AtomicUsize,
    most: usize,
}

/// Entries in chains by the hash of their address, each chain in the order of arrival.
///
/// Invariants: `index` is empty or a power of two long; every chain and the free list end with [`NONE`], and every entry
/// is in exactly one of them.
#[derive(Debug)]
struct Shard {
    /// First entry of each chain.
    index: Vec<u32>,
    entries: Vec<Entry>,
    /// First free entry.
    free: u32,
    count: usize,
}

/// A block as it stands here, its parts in the order that leaves no gaps.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// 0: free.
    address: u64,
    trace_id: [u64; 2],
    span_id: u64,
    measure: u64,
    site: u32,
    next: u32,
}

const _: () = assert!(size_of::<Entry>() == 48);

impl Entry {
    fn new(address: u64, block: Block) -> Self {
        let Block { site, trace_id, span_id, measure } = block;
        Self { address, trace_id, span_id, measure, site, next: NONE }
    }

    fn block(&self) -> Block {
        let Self { site, trace_id, span_id, measure, .. } = *self;
        Block { site, trace_id, span_id, measure }
    }
}

/// The number of an address's lock, and what places it behind that. Sampled blocks begin at pages, so their low bits say nothing.
fn mixed(address: u64) -> (usize, usize) {
    // Knuth, "The Art of Computer Programming" 6.4; the high bits are the mixed ones.
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash >> 58) as usize % SHARDS, (hash << 6 >> 32) as usize)
}

impl Live {
    /// An empty table for so many blocks.
    pub(super) fn new(most: usize) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(), count: AtomicUsize::new(0), most }
    }

    /// Takes a block in.
    pub(super) fn insert(&self, address: u64, block: Block) -> Result<(), Refused> {
        // First the claim, then the entry: the bound holds at any time.
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        let (mut shard, hash) = self.place(address);
        shard.insert(address, hash, block).inspect_err(|_| {
            self.count.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Takes the oldest block of this address and of so many usable bytes out.
    pub(super) fn remove(&self, address: u64, size: u64) -> Option<Block> {
        let (mut shard, hash) = self.place(address);
        let block = shard.remove(address, size, hash)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(block)
    }

    /// Takes all out; how many there were. Not callable from a hook.
    pub(super) fn clear(&self) -> usize {
        let mut gone = 0;
        for shard in &self.shards {
            // Dropped outside of the lock.
            let cleared = std::mem::replace(&mut *locked(shard), Shard::new());
            gone += cleared.count;
            self.count.fetch_sub(cleared.count, Ordering::Relaxed);
        }
        gone
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the table takes.
    pub(super) fn bytes(&self) -> usize {
        let of = |shard: &Mutex<Shard>| {
            let shard = locked(shard);
            shard.entries.capacity() * size_of::<Entry>() + shard.index.capacity() * size_of::<u32>()
        };
        self.shards.iter().map(of).sum()
    }

    /// Hands a copy of what lives to `see`, shard by shard; each lock is held for a copy of its entries and nothing else.
    /// Not callable from a hook.
    pub(super) fn each(&self, mut see: impl FnMut(&Block)) {
        let mut copy: Vec<Entry> = Vec::new();
        for shard in &self.shards {
            loop {
                copy.clear();
                let entries = locked(shard).entries.len();
                // Outside of the lock; some more, for there may be some more by then.
                copy.reserve(entries + entries / 8 + 16);
                let shard = locked(shard);
                if shard.entries.len() <= copy.capacity() {
                    copy.extend_from_slice(&shard.entries);
                    break;
                }
            }
            copy.iter().filter(|entry| entry.address != 0).for_each(|entry| see(&entry.block()));
        }
    }

    fn place(&self, address: u64) -> (MutexGuard<'_, Shard>, usize) {
        let (shard, hash) = mixed(address);
        (locked(&self.shards[shard]), hash)
    }
}

/// What the lock guards is whole even if it is poisoned: nothing panics under it.
fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn new() -> Self {
        Self { index: Vec::new(), entries: Vec::new(), free: NONE, count: 0 }
    }

    fn insert(&mut self, address: u64, hash: usize, block: Block) -> Result<(), Refused> {
        if self.count >= self.index.len() {
            self.grow()?;
        }
        let entry = Entry::new(address, block);
        let place = match self.entries.get_mut(self.free as usize) {
            Some(free) => {
                let place = self.free;
                self.free = free.next;
                *free = entry;
                place
            }
            None => {
                let place = u32::try_from(self.entries.len()).map_err(|_| Refused::Full)?;
                if self.entries.len() == self.entries.capacity() {
                    self.entries.try_reserve_exact((self.entries.len() / 8).max(16))?;
                }
                self.entries.push(entry);
                place
            }
        };
        *self.end_of_chain(hash) = place;
        self.count += 1;
        Ok(())
    }

    /// The link at the end of a chain.
    fn end_of_chain(&mut self, hash: usize) -> &mut u32 {
        let chain = hash & (self.index.len() - 1);
        let mut last = self.index[chain];
        if last == NONE {
            return &mut self.index[chain];
        }
        while self.entries[last as usize].next != NONE {
            last = self.entries[last as usize].next;
        }
        &mut self.entries[last as usize].next
    }

    fn remove(&mut self, address: u64, size: u64, hash: usize) -> Option<Block> {
        let chain = hash & self.index.len().checked_sub(1)?;
        let (mut before, mut place) = (NONE, self.index[chain]);
        loop {
            let entry = *self.entries.get(place as usize)?;
            if entry.address == address && entry.block().size() == size {
                let link = match self.entries.get_mut(before as usize) {
                    Some(before) => &mut before.next,
                    None => &mut self.index[chain],
                };
                *link = entry.next;
                self.entries[place as usize] = Entry { address: 0, next: self.free, ..entry };
                self.free = place;
                self.count -= 1;
                return Some(entry.block());
            }
            (before, place) = (place, entry.next);
        }
    }

    /// Twice as many chains. Those of one address stay in their order: what was in one chain is dealt out front to back.
    fn grow(&mut self) -> Result<(), Refused> {
        let mut index = Vec::new();
        let chains = (2 * self.index.len()).max(16);
        index.try_reserve_exact(chains)?;
        index.resize(chains, NONE);
        let old = std::mem::replace(&mut self.index, index);
        for first in old {
            let mut place = first;
            while let Some(entry) = self.entries.get_mut(place as usize) {
                let (address, next) = (entry.address, std::mem::replace(&mut entry.next, NONE));
                *self.end_of_chain(mixed(address).1) = place;
                place = next;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(site: u32) -> Block {
        Block::new(site, [1, 2], 3, u64::from(site) + 8, 19)
    }

    fn sites(live: &Live) -> Vec<u32> {
        let mut sites = Vec::new();
        live.each(|block| sites.push(block.site));
        sites.sort_unstable();
        sites
    }

    /// Check that what goes in comes out, that what is not there does not, and that all is gone in the end.
    #[test]
    fn blocks_come_and_go() {
        let live = Live::new(100_000);
        let address = |n: u32| u64::from(n + 1) << 12;
        (0..50_000).for_each(|n| assert_eq!(live.insert(address(n), block(n)), Ok(())));
        assert_eq!((live.len(), sites(&live)), (50_000, (0..50_000).collect()));
        let remove = |n: u32| live.remove(address(n), block(n).size());
        assert_eq!((live.remove(7, 8), remove(50_000)), (None, None));
        (0..50_000).step_by(2).for_each(|n| assert_eq!(remove(n), Some(block(n))));
        (0..50_000).step_by(2).for_each(|n| assert_eq!(live.insert(address(n), block(n)), Ok(())));
        (0..50_000).rev().for_each(|n| assert_eq!(remove(n), Some(block(n))));
        assert_eq!((live.len(), sites(&live)), (0, vec![]));
    }

    /// Check that blocks of one address and size leave in the order in which they came, also over a growth of the table.
    #[test]
    fn blocks_of_one_address_are_first_in_first_out() {
        let live = Live::new(10_000);
        let same = |site| Block::new(site, [1, 2], 3, 8, 19);
        (0..3).for_each(|n| assert_eq!(live.insert(4096, same(n)), Ok(())));
        (1..5000).for_each(|n| assert_eq!(live.insert(4096 * (n + 1), block(9)), Ok(())));
        (3..5).for_each(|n| assert_eq!(live.insert(4096, same(n)), Ok(())));
        let left: Vec<_> = std::iter::from_fn(|| live.remove(4096, 8)).map(|block| block.site).collect();
        assert_eq!(left, [0, 1, 2, 3, 4]);
    }

    /// Check that the free of a block that is not known leaves another one at its address alone, and that of several the one of its size leaves.
    #[test]
    fn blocks_of_one_address_leave_by_their_size() {
        let live = Live::new(10);
        (0..3).for_each(|n| assert_eq!(live.insert(4096, block(n)), Ok(())));
        assert_eq!((live.remove(4096, 7), live.len()), (None, 3));
        [1, 0, 2].iter().for_each(|n| assert_eq!(live.remove(4096, block(*n).size()), Some(block(*n))));
        assert_eq!(live.len(), 0);
    }

    /// Check that exactly as many fit as may, and that there is room again when some have left.
    #[test]
    fn a_full_table_refuses() {
        let live = Live::new(1000);
        let kept = (1..=1500).filter(|n| live.insert(4096 * n, block(1)).is_ok()).count();
        assert_eq!((kept, live.len(), live.insert(1, block(1))), (1000, 1000, Err(Refused::Full)));
        assert!(live.remove(4096, block(1).size()).is_some());
        assert_eq!(live.insert(1, block(1)), Ok(()));
    }

    /// Check that a table which was cleared holds nothing, finds nothing that was in it, and has all its room again.
    #[test]
    fn a_cleared_table_has_its_room_again() {
        let live = Live::new(1000);
        (0..1000).for_each(|n| assert_eq!(live.insert(4096 * u64::from(n + 1), block(n)), Ok(())));
        assert_eq!((live.clear(), live.len(), live.bytes(), sites(&live)), (1000, 0, 0, vec![]));
        assert_eq!((live.remove(4096, block(0).size()), live.clear()), (None, 0));
        (0..1000).for_each(|n| assert_eq!(live.insert(4096 * u64::from(n + 1), block(n)), Ok(())));
        assert_eq!(sites(&live), (0..1000).collect::<Vec<_>>());
    }

    /// Check that a block of any size keeps size and interval.
    #[test]
    fn size_and_interval_share_a_word() {
        let of = |size, lg| Block::new(1, [0; 2], 0, size, lg);
        assert_eq!((of(123, 63).size(), of(123, 63).lg()), (123, 63));
        assert_eq!((of(u64::MAX, 0).size(), of(u64::MAX, 0).lg()), ((1 << 56) - 1, 0));
    }

    /// Check that a block never takes more than is counted for it, and that it comes to that where the table has just grown.
    #[test]
    fn blocks_take_what_is_counted_for_them() {
        let live = Live::new(usize::MAX);
        let mut most = 0;
        for n in 1..=200_000 {
            assert_eq!(live.insert(4096 * n, block(1)), Ok(()));
            if n >= 10_000 && n % 1000 == 0 {
                most = most.max(live.bytes().div_ceil(n as usize));
            }
        }
        assert!((BLOCK_BYTES - 4..=BLOCK_BYTES).contains(&most), "{most}");
    }

    /// Check that threads which free each other's blocks leave nothing behind.
    #[test]
    fn threads_free_each_others_blocks() {
        let live = Live::new(1 << 20);
        let (sender, receiver) = std::sync::mpsc::channel::<u64>();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (live, sender) = (&live, sender.clone());
                scope.spawn(move || {
                    for n in 0..20_000 {
                        let address = (thread * 100_000 + n + 1) << 12;
                        assert_eq!(live.insert(address, block(1)), Ok(()));
                        sender.send(address).unwrap();
                    }
                });
            }
            drop(sender);
            receiver.iter().for_each(|address| assert!(live.remove(address, block(1).size()).is_some()));
        });
        assert_eq!((live.len(), sites(&live).len()), (0, 0));
    }
}
