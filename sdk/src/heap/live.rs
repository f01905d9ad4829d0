//! The sampled blocks that are not freed yet.
//!
//! In: blocks as they are sampled, addresses and sizes as they are freed, both in hooks of any thread. Out: what lives, copied for a
//! profile, and what was counted. Bounded in number; a block that does not fit is refused and counted. By address, 64 locks, of hooks
//! and, for some words of figures, of who looks: copies are made without them (`entries`). Entries of one address and size, of which there may be several for a moment, leave in the order in which they came.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::{Block, Refused};
use super::chains::{Chains, SHARDS, mixed};
use super::entries::{ENTRY_BYTES, Entries};

/// Most bytes that a block takes: its entry with an eighth for growth, and up to two links of the index.
pub(super) const BLOCK_BYTES: usize = ENTRY_BYTES * 9 / 8 + 2 * size_of::<u32>();

const _: () = assert!(ENTRY_BYTES == 48);

/// What the hooks counted here, and what is there. Of what was recorded, all that was not `freed` is `live` at any time: each is counted
/// under the lock under which it comes or goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Blocks that went in.
    pub(super) recorded: u64,
    /// Those of them that were taken out.
    pub(super) freed: u64,
    /// Blocks that are there: in chains, not the difference of the two.
    pub(super) live: u64,
    /// Blocks that were refused, for the table was full.
    pub(super) table_full: u64,
    /// Blocks that were refused, for there was no memory.
    pub(super) no_memory: u64,
}

/// The table.
#[derive(Debug)]
pub(super) struct Live {
    shards: Box<[Shard]>,
    /// Entries in all shards.
    count: AtomicUsize,
    most: usize,
}

/// What is behind one lock.
#[derive(Debug)]
struct Shard {
    /// Written by who has the lock, read by anybody.
    entries: Entries,
    kept: Mutex<Kept>,
}

/// What finds the entries, and what was counted.
#[derive(Debug, Default)]
struct Kept {
    chains: Chains,
    recorded: u64,
    freed: u64,
    table_full: u64,
    no_memory: u64,
}

impl Live {
    /// An empty table for so many blocks.
    pub(super) fn new(most: usize) -> Self {
        let shard = |_| Shard { entries: Entries::new(most), kept: Mutex::default() };
        Self { shards: (0..SHARDS).map(shard).collect(), count: AtomicUsize::new(0), most }
    }

    /// Takes a block in, and counts it.
    pub(super) fn insert(&self, address: u64, block: Block) -> Result<(), Refused> {
        let (number, hash) = mixed(address);
        let shard = &self.shards[number];
        let mut kept = shard.locked();
        // First the claim, then the entry: the bound holds at any time.
        let fits = self.count.fetch_add(1, Ordering::Relaxed) < self.most;
        let outcome = if fits { kept.chains.insert(&shard.entries, address, hash, &block) } else { Err(Refused::Full) };
        let count = match outcome {
            Ok(()) => &mut kept.recorded,
            Err(Refused::Full) => &mut kept.table_full,
            Err(Refused::NoMemory) => &mut kept.no_memory,
        };
        *count += 1;
        outcome.inspect_err(|_| {
            self.count.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Takes the oldest block of this address and of so many usable bytes out.
    pub(super) fn remove(&self, address: u64, size: u64) -> Option<Block> {
        let (number, hash) = mixed(address);
        let shard = &self.shards[number];
        let mut kept = shard.locked();
        let block = kept.chains.remove(&shard.entries, address, size, hash)?;
        kept.freed += 1;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(block)
    }

    /// Takes all out; how many there were. Not callable from a hook.
    pub(super) fn clear(&self) -> usize {
        let mut gone = 0;
        for shard in &self.shards {
            let mut kept = shard.locked();
            let live = kept.chains.len();
            kept.freed += live as u64;
            kept.chains.clear();
            shard.entries.clear();
            gone += live;
            self.count.fetch_sub(live, Ordering::Relaxed);
        }
        gone
    }

    /// What was counted.
    pub(super) fn counts(&self) -> Counts {
        self.shards.iter().fold(Counts::default(), |sum, shard| {
            let kept = shard.locked();
            Counts {
                recorded: sum.recorded + kept.recorded,
                freed: sum.freed + kept.freed,
                live: sum.live + kept.chains.len() as u64,
                table_full: sum.table_full + kept.table_full,
                no_memory: sum.no_memory + kept.no_memory,
            }
        })
    }

    /// Bytes of memory that blocks take. What leads to them is there from the beginning.
    pub(super) fn bytes(&self) -> usize {
        let of_shard = |shard: &Shard| {
            let chains = shard.locked().chains.bytes();
            // Behind the lock, which a hook may want.
            chains + shard.entries.bytes()
        };
        self.shards.iter().map(of_shard).sum()
    }

    /// Hands a copy of what lives to `see`, and keeps no hook from its work meanwhile. A block that comes or goes meanwhile may be seen; one that is resized
    /// may be seen in both sizes, or in none. Not callable from a hook.
    pub(super) fn each(&self, mut see: impl FnMut(&Block)) {
        for shard in &self.shards {
            let alone = |read: &mut dyn FnMut()| {
                let kept_out = shard.locked();
                read();
                drop(kept_out);
            };
            shard.entries.read(alone, &mut see);
        }
    }
}

impl Shard {
    /// What the lock guards is whole even if it is poisoned: nothing panics under it.
    fn locked(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn block(site: u32) -> Block {
        Block::new(site, [1, 2], 3, u64::from(site) + 8, 19)
    }

    /// How many blocks there are, which is the same wherever it is looked up: in chains, in what a profile sees, in the bound, in what came and went.
    #[track_caller]
    fn len(live: &Live) -> usize {
        let (counts, mut seen) = (live.counts(), 0);
        live.each(|_| seen += 1);
        assert_eq!((counts.live, counts.recorded - counts.freed), (seen, seen), "{counts:?}");
        assert_eq!(live.count.load(Ordering::Relaxed) as u64, seen);
        seen as usize
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
        assert_eq!((len(&live), sites(&live)), (50_000, (0..50_000).collect()));
        let remove = |n: u32| live.remove(address(n), block(n).size());
        assert_eq!((live.remove(7, 8), remove(50_000)), (None, None));
        (0..50_000).step_by(2).for_each(|n| assert_eq!(remove(n), Some(block(n))));
        (0..50_000).step_by(2).for_each(|n| assert_eq!(live.insert(address(n), block(n)), Ok(())));
        (0..50_000).rev().for_each(|n| assert_eq!(remove(n), Some(block(n))));
        assert_eq!((len(&live), sites(&live)), (0, vec![]));
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
        assert_eq!((live.remove(4096, 7), len(&live)), (None, 3));
        [1, 0, 2].iter().for_each(|n| assert_eq!(live.remove(4096, block(*n).size()), Some(block(*n))));
        assert_eq!(len(&live), 0);
    }

    /// Check that exactly as many fit as may, and that there is room again when some have left.
    #[test]
    fn a_full_table_refuses() {
        let live = Live::new(1000);
        let kept = (1..=1500).filter(|n| live.insert(4096 * n, block(1)).is_ok()).count();
        assert_eq!((kept, len(&live), live.insert(1, block(1))), (1000, 1000, Err(Refused::Full)));
        assert!(live.remove(4096, block(1).size()).is_some());
        assert_eq!(live.insert(1, block(1)), Ok(()));
    }

    /// Check that a table which was cleared holds nothing, finds nothing that was in it, and has all its room again, for which it takes no more memory.
    #[test]
    fn a_cleared_table_has_its_room_again() {
        let live = Live::new(1000);
        (0..1000).for_each(|n| assert_eq!(live.insert(4096 * u64::from(n + 1), block(n)), Ok(())));
        let bytes = live.bytes();
        assert_eq!((live.clear(), len(&live), sites(&live)), (1000, 0, vec![]));
        assert_eq!((live.remove(4096, block(0).size()), live.clear()), (None, 0));
        (0..1000).for_each(|n| assert_eq!(live.insert(4096 * u64::from(n + 1), block(n)), Ok(())));
        assert_eq!((sites(&live), live.bytes()), ((0..1000).collect::<Vec<_>>(), bytes));
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

    /// A block whose parts all follow from its address and from how often it came.
    fn marked(address: u64, round: u64) -> Block {
        let mark = address ^ round << 32;
        Block::new((mark >> 8) as u32, [mark, !mark], mark.rotate_left(7), mark >> 8, 19)
    }

    fn is_whole(block: &Block) -> bool {
        let mark = block.trace_id[0];
        *block == Block::new((mark >> 8) as u32, [mark, !mark], mark.rotate_left(7), mark >> 8, 19)
    }

    /// Check that copies are made while others write: each is whole, blocks that stay are seen each time, once, and what is counted is right at
    /// any time.
    #[test]
    fn copies_are_whole_while_others_write() {
        const STAY: u64 = 500;
        let (live, enough) = (Live::new(1 << 20), AtomicBool::new(false));
        let address = |n: u64| (n + 1) << 12;
        (0..STAY).for_each(|n| live.insert(address(n), marked(address(n), 0)).unwrap());
        let (mut came, mut seen) = (0, 0);
        std::thread::scope(|scope| {
            for thread in 1..=2 {
                let (live, enough) = (&live, &enough);
                scope.spawn(move || {
                    for round in (1..).take_while(|_| !enough.load(Ordering::Relaxed)) {
                        for n in (0..64).map(|n| address(10_000 * thread + n)) {
                            live.insert(n, marked(n, round)).unwrap();
                            assert_eq!(live.remove(n, marked(n, round).size()), Some(marked(n, round)));
                        }
                    }
                });
            }
            for _ in 0..3000 {
                let (mut stayed, mut torn) = (0, 0);
                live.each(|block| {
                    torn += u64::from(!is_whole(block));
                    stayed += u64::from(block.trace_id[0] <= address(STAY));
                    seen += 1;
                });
                let counts = live.counts();
                came = counts.recorded;
                if (stayed, torn) != (STAY, 0) || counts.live != counts.recorded - counts.freed {
                    enough.store(true, Ordering::Relaxed);
                    panic!("{stayed} of {STAY}, {torn} torn, {counts:?}");
                }
            }
            enough.store(true, Ordering::Relaxed);
        });
        assert!(came > STAY && seen > 3000 * STAY, "nothing came meanwhile: {came} {seen}");
    }

    /// Check that nobody who makes a copy waits for a hook, which may stand still for as long as it likes with a lock: so no hook waits for a copy.
    #[test]
    fn copies_need_no_lock() {
        let live = Live::new(1000);
        (0..1000).for_each(|n| assert_eq!(live.insert(4096 * u64::from(n + 1), block(n)), Ok(())));
        let held: Vec<_> = live.shards.iter().map(Shard::locked).collect();
        assert_eq!(sites(&live), (0..1000).collect::<Vec<_>>());
        drop(held);
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
        assert_eq!((len(&live), sites(&live).len()), (0, 0));
    }
}
