//! What finds live blocks: chains of entries, by their address.
//!
//! In: addresses, and the entries that they are in. Out: places for new blocks, blocks that go. Runs in hooks, under the lock of these chains: allocates where they grow,
//! which may be refused.

use super::array::Array;
use super::block::{Block, Refused};
use super::entries::Entries;

/// Locks of the live table.
pub(super) const SHARDS: usize = 64;
/// Stands for no entry.
const NONE: u32 = u32::MAX;

/// Entries in chains by the hash of their address, each chain in the order of arrival.
///
/// Invariants: `index` is empty or a power of two long; every chain and the free list end with [`NONE`], and every entry
/// that was ever used is in exactly one of them.
#[derive(Debug)]
pub(super) struct Chains {
    /// First entry of each chain.
    index: Array<u32>,
    /// First free entry.
    free: u32,
    /// Entries in chains.
    count: usize,
}

/// The number of an address's lock, and what places it behind that. Sampled blocks begin at pages, so their low bits say nothing.
pub(super) fn mixed(address: u64) -> (usize, usize) {
    // Knuth, "The Art of Computer Programming" 6.4; the high bits are the mixed ones.
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash >> 58) as usize % SHARDS, (hash << 6 >> 32) as usize)
}

impl Default for Chains {
    fn default() -> Self {
        Self { index: Array::new(), free: NONE, count: 0 }
    }
}

impl Chains {
    /// Puts a block into an entry.
    pub(super) fn insert(
        &mut self,
        entries: &Entries,
        address: u64,
        hash: usize,
        block: &Block,
    ) -> Result<(), Refused> {
        if self.count >= self.index.len() {
            self.grow(entries)?;
        }
        let place = match entries.next(self.free).filter(|_| self.free != NONE) {
            Some(next) => std::mem::replace(&mut self.free, next),
            None => {
                let place = entries.used();
                entries.make(place)?;
                place
            }
        };
        entries.put(place, address, block, NONE);
        self.append(entries, hash, place);
        self.count += 1;
        Ok(())
    }

    /// Puts an entry at the end of its chain.
    fn append(&mut self, entries: &Entries, hash: usize, place: u32) {
        let chain = hash & (self.index.len() - 1);
        let mut last = self.index[chain];
        if last == NONE {
            self.index[chain] = place;
            return;
        }
        while let Some(next) = entries.next(last).filter(|next| *next != NONE) {
            last = next;
        }
        entries.link(last, place);
    }

    /// Takes the oldest block of this address and size out.
    pub(super) fn remove(&mut self, entries: &Entries, address: u64, size: u64, hash: usize) -> Option<Block> {
        let chain = hash & self.index.len().checked_sub(1)?;
        let (mut before, mut place) = (NONE, self.index[chain]);
        while place != NONE {
            let ((found, block), next) = (entries.block(place)?, entries.next(place)?);
            if found == address && block.size() == size {
                match before {
                    NONE => self.index[chain] = next,
                    _ => entries.link(before, next),
                }
                self.count -= 1;
                entries.free(place, std::mem::replace(&mut self.free, place));
                return Some(block);
            }
            (before, place) = (place, next);
        }
        None
    }

    /// Twice as many chains. Those of one address stay in their order: what was in one chain is dealt out front to back.
    fn grow(&mut self, entries: &Entries) -> Result<(), Refused> {
        let chains = (2 * self.index.len()).max(16);
        let index = Array::filled(chains, || NONE).ok_or(Refused::NoMemory)?;
        let old = std::mem::replace(&mut self.index, index);
        for first in old.iter() {
            let mut place = *first;
            while let Some((address, _)) = entries.block(place).filter(|_| place != NONE) {
                let next = entries.next(place).unwrap_or(NONE);
                entries.link(place, NONE);
                self.append(entries, mixed(address).1, place);
                place = next;
            }
        }
        Ok(())
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.index.fill(NONE);
        (self.free, self.count) = (NONE, 0);
    }

    /// Entries in chains.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.index.capacity() * size_of::<u32>()
    }
}
