//! Where allocations come from: distinct stacks with their tags, and what was allocated there.
//!
//! In: stacks and tags as hooks take them. Out: a number for each site, which the live table keeps; what was allocated, in
//! all by site, and since the last profile by site and span. Bounded in bytes: beyond, new sites share [`BEYOND`]; sites
//! that nothing refers to are forgotten in time. By content, 64 locks.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::weight::Weight;

/// Locks of a table, and the bits of a site's number that say which.
const SHARDS: usize = 64;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();
/// The site of samples whose own one did not fit.
pub(super) const BEYOND: u32 = u32::MAX;
/// What a site costs beside its words: pointer and length, number, the map's slack, its sums.
const SITE_BYTES: usize = 96;
/// Most entries by span that wait for a profile, for each lock.
const MAX_PENDING: usize = 1 << 11;

/// A span that samples of a site belong to.
pub(super) type Span = ([u64; 2], u64);
/// No span.
const NO_SPAN: Span = ([0; 2], 0);

/// The table.
#[derive(Debug)]
pub(super) struct Sites {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    bytes: AtomicUsize,
    most_bytes: usize,
    /// Counts looks at what is in use.
    age: AtomicU32,
    /// Samples that the next profile lacks, for there was no memory to note them.
    not_noted: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// By words: number within the shard.
    numbers: HashMap<Box<[u64]>, u32>,
    sums: Vec<Sum>,
    /// Numbers that stand for nothing any more.
    free: Vec<u32>,
    /// What was allocated since the last profile.
    pending: HashMap<(u32, Span), Weight>,
    /// What was allocated at sites that were forgotten, and at those beyond the bound.
    forgotten: Weight,
}

/// What was allocated at a site.
#[derive(Debug, Default)]
struct Sum {
    allocated: Weight,
    /// When it was last met.
    age: u32,
}

/// What a site is: words as [`Sites::enter`] got them.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) number: u32,
    pub(super) words: Box<[u64]>,
}

impl Sites {
    /// An empty table of so many bytes at most.
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            bytes: AtomicUsize::new(0),
            most_bytes,
            age: AtomicU32::new(0),
            not_noted: AtomicU64::new(0),
        }
    }

    /// Adds what one sample stands for to the site of these words. The site's number; [`BEYOND`] where it does not fit.
    pub(super) fn enter(&self, words: &[u64], span: Span, weight: Weight) -> u32 {
        let at = self.hasher.hash_one(words) as usize % SHARDS;
        let mut shard = locked(&self.shards[at]);
        let local = match shard.numbers.get(words) {
            Some(known) => Some(*known),
            None => self.learn(&mut shard, words),
        };
        let Some(local) = local else {
            shard.forgotten += weight;
            self.note(&mut shard, BEYOND, span, weight);
            return BEYOND;
        };
        let number = local << SHARD_BITS | at as u32;
        if let Some(sum) = shard.sums.get_mut(local as usize) {
            sum.allocated += weight;
            sum.age = self.age.load(Ordering::Relaxed);
        }
        self.note(&mut shard, number, span, weight);
        number
    }

    fn note(&self, shard: &mut Shard, number: u32, span: Span, weight: Weight) {
        if !shard.note(number, span, weight) {
            self.not_noted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Samples that a profile lacks, for there was no memory to note them.
    pub(super) fn not_noted(&self) -> u64 {
        self.not_noted.load(Ordering::Relaxed)
    }

    fn learn(&self, shard: &mut Shard, words: &[u64]) -> Option<u32> {
        let bytes = size_of_val(words) + SITE_BYTES;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most_bytes {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        let local = shard.learn(words);
        if local.is_none() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        local
    }

    /// Bytes that the sites take, as they are counted.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes what was allocated since the last call.
    pub(super) fn take_pending(&self, mut see: impl FnMut(u32, Span, Weight)) {
        for shard in &self.shards {
            let pending = std::mem::take(&mut locked(shard).pending);
            pending.into_iter().for_each(|((number, span), weight)| see(number, span, weight));
        }
    }

    /// What was allocated in all, by site. Nothing is allocated under a lock: a user's thread may call this, whose
    /// allocations are sampled.
    pub(super) fn allocated(&self) -> Vec<(u32, Weight)> {
        let mut all = Vec::new();
        let mut forgotten = Weight::default();
        for (at, shard) in self.shards.iter().enumerate() {
            loop {
                let sites = locked(shard).sums.len();
                // Some more, for there may be some more by then.
                all.reserve(sites + sites / 8 + 16);
                let shard = locked(shard);
                if shard.sums.len() <= all.capacity() - all.len() {
                    let sums = (0_u32..).zip(&shard.sums).filter(|(_, sum)| sum.allocated != Weight::default());
                    all.extend(sums.map(|(local, sum)| (local << SHARD_BITS | at as u32, sum.allocated)));
                    forgotten += shard.forgotten;
                    break;
                }
            }
        }
        if forgotten != Weight::default() {
            all.push((BEYOND, forgotten));
        }
        all
    }

    /// The words of these sites. Only for our own threads, whose allocations are not sampled: copies are made under locks.
    pub(super) fn words(&self, wanted: &HashSet<u32>) -> Vec<Site> {
        let mut found = Vec::new();
        for (at, shard) in self.shards.iter().enumerate() {
            let shard = locked(shard);
            let numbered = shard.numbers.iter().map(|(words, local)| (*local << SHARD_BITS | at as u32, words));
            let used = numbered.filter(|(number, _)| wanted.contains(number));
            found.extend(used.map(|(number, words)| Site { number, words: words.clone() }));
        }
        found
    }

    /// A look at what is in use begins: what hooks meet from now on is, too.
    pub(super) fn begin_look(&self) {
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the sites that are not `used` and that no hook met since the look before this one began, if three
    /// quarters of the memory are full. How many went.
    ///
    /// A hook that met a site longer ago and has not entered its block yet would find another site under its number: it
    /// stood still for a whole interval.
    pub(super) fn forget_unused(&self, used: &HashSet<u32>) -> usize {
        if self.bytes() < self.most_bytes / 4 * 3 {
            return 0;
        }
        let age = self.age.load(Ordering::Relaxed);
        let mut gone = 0;
        for (at, shard) in self.shards.iter().enumerate() {
            let mut shard = locked(shard);
            let Shard { numbers, sums, free, forgotten, .. } = &mut *shard;
            numbers.retain(|words, local| {
                let number = *local << SHARD_BITS | at as u32;
                let Some(sum) = sums.get_mut(*local as usize) else { return false };
                if used.contains(&number) || sum.age.wrapping_add(1) >= age {
                    return true;
                }
                *forgotten += std::mem::take(&mut sum.allocated);
                free.push(*local);
                self.bytes.fetch_sub(size_of_val::<[u64]>(words) + SITE_BYTES, Ordering::Relaxed);
                gone += 1;
                false
            });
        }
        gone
    }
}

/// What the lock guards is whole even if it is poisoned: nothing panics under it.
fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    /// A number for these words; `None` where there is no memory.
    fn learn(&mut self, words: &[u64]) -> Option<u32> {
        self.numbers.try_reserve(1).ok()?;
        let mut owned = Vec::new();
        owned.try_reserve_exact(words.len()).ok()?;
        owned.extend_from_slice(words);
        let local = match self.free.pop() {
            Some(local) => local,
            None => {
                let local = u32::try_from(self.sums.len()).ok().filter(|local| *local < BEYOND >> SHARD_BITS)?;
                self.sums.try_reserve(1).ok()?;
                // As long as the other, so that forgetting needs no memory.
                let spare = self.sums.len() + 1 - self.free.len();
                self.free.try_reserve(spare).ok()?;
                self.sums.push(Sum::default());
                local
            }
        };
        self.numbers.insert(owned.into_boxed_slice(), local);
        Some(local)
    }

    /// Adds to what waits for a profile, without its span where there is no room for it; `false` where there is no memory.
    fn note(&mut self, number: u32, span: Span, weight: Weight) -> bool {
        let span = if self.pending.len() < MAX_PENDING { span } else { NO_SPAN };
        let has_room = self.pending.try_reserve(1).is_ok();
        if has_room {
            *self.pending.entry((number, span)).or_default() += weight;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = ([1, 2], 3);

    fn one() -> Weight {
        Weight::of(100, 0)
    }

    /// Check that equal words are one site, that sums are kept by span until they are taken, and in all for ever.
    #[test]
    fn what_was_allocated_is_added_up() {
        let sites = Sites::new(1 << 20);
        let first = sites.enter(&[1, 2, 3], SPAN, one());
        assert_eq!(sites.enter(&[1, 2, 3], NO_SPAN, one()), first);
        let second = sites.enter(&[1, 2], SPAN, one());
        assert_ne!(first, second);
        let mut pending = Vec::new();
        sites.take_pending(|number, span, weight| pending.push((number, span, weight)));
        assert_eq!(pending.len(), 3);
        assert!(pending.contains(&(first, SPAN, one())) && pending.contains(&(first, NO_SPAN, one())));
        sites.take_pending(|_, _, _| panic!("taken twice"));
        let all: HashMap<_, _> = sites.allocated().into_iter().collect();
        assert_eq!((all[&first].bytes(), all[&second].objects()), (200, 1));
        let words = sites.words(&HashSet::from([second]));
        assert_eq!((words.len(), words[0].number, &*words[0].words), (1, second, &[1, 2][..]));
    }

    /// Check that memory is bounded, that what is beyond is still counted, and that what nobody uses makes room in time.
    #[test]
    fn sites_that_nobody_uses_make_room() {
        const MOST: usize = 100 * (80 + SITE_BYTES);
        let sites = Sites::new(MOST);
        let enter = |n: u64| sites.enter(&[n; 10], SPAN, one());
        let numbers: Vec<u32> = (0..150).map(enter).collect();
        assert_eq!(numbers.iter().filter(|number| **number == BEYOND).count(), 50);
        let used = HashSet::from([numbers[0]]);
        sites.begin_look();
        assert_eq!(sites.forget_unused(&used), 0, "all were met a moment ago");
        sites.begin_look();
        assert_eq!(enter(1), numbers[1]);
        assert_eq!(sites.forget_unused(&used), 98);
        assert_eq!(sites.bytes(), 2 * (80 + SITE_BYTES));
        assert_eq!((enter(0), enter(1)), (numbers[0], numbers[1]));
        assert_ne!(enter(149), BEYOND);
        let total: i64 = sites.allocated().iter().map(|(_, weight)| weight.objects()).sum();
        assert_eq!(total, 154);
    }
}
