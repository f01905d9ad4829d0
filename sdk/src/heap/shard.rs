//! The sites behind one lock of the table.
//!
//! In: words with their hash, samples. Out: a number within the shard, sums in all and since the last profile. A hook that meets a known site reads
//! one line of the index, one of the site, its words, and one of the pair of site and span: each may have to come from memory,
//! for it is long ago that anybody asked. Nothing here locks; what a hook calls allocates only where something is new.

use super::array::Array;
use super::block::{NO_SPAN, Span};
use super::weight::Weight;

/// Bits of a site's number that say which shard it is in.
pub(super) const SHARD_BITS: u32 = 6;
/// Numbers within a shard are below: the last number of all is no site's.
const MOST_LOCAL: u32 = u32::MAX >> SHARD_BITS;
/// Most pairs of site and span that wait for a profile.
const MAX_PAIRS: usize = 1 << 11;
/// How many pairs of a site are looked at for a span; beyond, it has another one.
const LOOKS: usize = 8;
/// Stands for no entry.
const NONE: u32 = u32::MAX;

/// Entries in chains by their hash.
///
/// Invariants: `index` is empty or a power of two long; every chain, the free list and the pairs of an entry end with [`NONE`], and every
/// entry is in exactly one of the former.
#[derive(Debug)]
pub(super) struct Shard {
    /// First entry of each chain.
    index: Array<u32>,
    entries: Array<Entry>,
    /// First free entry.
    free: u32,
    /// What was allocated since the last profile in spans.
    pairs: Array<Pair>,
    /// Samples since the last profile whose span is left out, for there was no room for it.
    without_span: u64,
    /// Stands for what was forgotten, and for those that did not fit.
    beyond: Entry,
}

/// A site: a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// Empty: free.
    words: Array<u64>,
    allocated: Weight,
    /// What was allocated since the last profile outside of spans.
    outside: Weight,
    hash: u32,
    next: u32,
    /// When it was last met.
    age: u32,
    /// The newest of its pairs.
    newest: u32,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// What was allocated at a site in a span.
#[derive(Debug)]
pub(super) struct Pair {
    /// Within the shard; [`NONE`]: beyond.
    local: u32,
    /// The one of the same site before.
    next: u32,
    pub(super) span: Span,
    pub(super) weight: Weight,
    pub(super) samples: u32,
}

impl Pair {
    /// Its site; `None`: beyond.
    pub(super) fn local(&self) -> Option<u32> {
        (self.local != NONE).then_some(self.local)
    }
}

impl Entry {
    fn new(words: Array<u64>, hash: u32) -> Self {
        Self { words, allocated: Weight::default(), outside: Weight::default(), hash, next: NONE, age: 0, newest: NONE }
    }
}

impl Shard {
    pub(super) fn new() -> Self {
        let (index, entries, pairs) = (Array::new(), Array::new(), Array::new());
        Self { index, entries, free: NONE, pairs, without_span: 0, beyond: Entry::new(Array::new(), 0) }
    }

    /// How many entries there are, also those that are free.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a new site takes the place of one that was forgotten.
    pub(super) fn has_free(&self) -> bool {
        self.free != NONE
    }

    /// Bytes of memory that the pairs take.
    pub(super) fn bytes_of_pairs(&self) -> usize {
        self.pairs.capacity() * size_of::<Pair>()
    }

    /// The site of these words.
    pub(super) fn find(&self, words: &[u64], hash: u32) -> Option<u32> {
        let mut place = *self.index.get(hash as usize & self.index.len().checked_sub(1)?)?;
        loop {
            let entry = self.entries.get(place as usize)?;
            if entry.hash == hash && *entry.words == *words {
                return Some(place);
            }
            place = entry.next;
        }
    }

    /// A number for these words, which are not empty; `None` where there is no memory.
    pub(super) fn learn(&mut self, words: &[u64], hash: u32) -> Option<u32> {
        let owned = Array::copied(words)?;
        if self.entries.len() >= self.index.len() {
            self.grow()?;
        }
        let entry = Entry::new(owned, hash);
        let place = match self.entries.get_mut(self.free as usize) {
            Some(free) => std::mem::replace(&mut self.free, std::mem::replace(free, entry).next),
            None => {
                let place = u32::try_from(self.entries.len()).ok().filter(|place| *place < MOST_LOCAL)?;
                let more = (self.entries.len() / 4).max(16);
                self.entries.push(entry, more)?;
                place
            }
        };
        self.link(place);
        Some(place)
    }

    /// Puts an entry at the front of its chain.
    fn link(&mut self, place: u32) {
        let mask = self.index.len() - 1;
        let entry = &mut self.entries[place as usize];
        let chain = &mut self.index[entry.hash as usize & mask];
        entry.next = std::mem::replace(chain, place);
    }

    /// Twice as many chains.
    fn grow(&mut self) -> Option<()> {
        let chains = (2 * self.index.len()).max(16);
        self.index = Array::filled(chains, || NONE)?;
        for place in 0..self.entries.len() {
            if !self.entries[place].words.is_empty() {
                self.link(place as u32);
            }
        }
        Some(())
    }

    /// Adds to a site, or to what is beyond; without the span where there is no room for it, or no memory.
    pub(super) fn add(&mut self, local: Option<u32>, span: Span, weight: Weight, age: u32) {
        let Self { entries, beyond, pairs, without_span, .. } = self;
        let local = local.unwrap_or(NONE);
        let entry = entries.get_mut(local as usize).unwrap_or(beyond);
        entry.allocated += weight;
        entry.age = age;
        if span == NO_SPAN {
            entry.outside += weight;
            return;
        }
        let mut place = entry.newest;
        for _ in 0..LOOKS {
            match pairs.get_mut(place as usize) {
                Some(pair) if pair.span == span => {
                    pair.weight += weight;
                    pair.samples = pair.samples.saturating_add(1);
                    return;
                }
                Some(pair) => place = pair.next,
                None => break,
            }
        }
        let (place, more) = (pairs.len(), pairs.len().max(4));
        let pair = Pair { local, next: entry.newest, span, weight, samples: 1 };
        if place == MAX_PAIRS || pairs.push(pair, more).is_none() {
            *without_span += 1;
            entry.outside += weight;
            return;
        }
        entry.newest = place as u32;
    }

    /// Takes what was allocated since the last call: in spans, and into `outside`, which has room for all, outside of any, by site; `None`:
    /// beyond. Of how many samples of the latter the span is left out.
    pub(super) fn take(&mut self, outside: &mut Vec<(Option<u32>, Weight)>) -> (Array<Pair>, u64) {
        let sites = (0..).map(Some).zip(self.entries.iter_mut());
        for (local, entry) in sites.chain([(None, &mut self.beyond)]) {
            entry.newest = NONE;
            let weight = std::mem::take(&mut entry.outside);
            if weight != Weight::default() {
                outside.push((local, weight));
            }
        }
        (std::mem::take(&mut self.pairs), std::mem::take(&mut self.without_span))
    }

    /// From now on nothing was allocated before. What waited, for the caller to drop it outside of the lock.
    pub(super) fn start_over(&mut self) -> Array<Pair> {
        for entry in self.entries.iter_mut().chain([&mut self.beyond]) {
            (entry.allocated, entry.outside, entry.newest) = (Weight::default(), Weight::default(), NONE);
        }
        self.without_span = 0;
        std::mem::take(&mut self.pairs)
    }

    /// What was allocated in all, by site.
    pub(super) fn allocated(&self) -> impl Iterator<Item = (u32, Weight)> + '_ {
        let all = (0..).zip(self.entries.iter()).map(|(local, entry)| (local, entry.allocated));
        all.filter(|(_, weight)| *weight != Weight::default())
    }

    /// What was allocated in all beyond the sites.
    pub(super) fn beyond(&self) -> Weight {
        self.beyond.allocated
    }

    /// The words of a site; none of one that was forgotten.
    pub(super) fn words(&self, local: u32) -> Option<&[u64]> {
        self.entries.get(local as usize).map(|entry| &*entry.words).filter(|words| !words.is_empty())
    }

    /// Forgets the sites that are not used, by their number and when they were last met. Their words go into `gone`, as far as it has room without growing, for the caller
    /// to free them outside of the lock; the others stay.
    pub(super) fn forget(&mut self, is_used: impl Fn(u32, u32) -> bool, gone: &mut Vec<Array<u64>>) {
        let Self { index, entries, free, beyond, .. } = self;
        for first in index.iter_mut() {
            let mut place = std::mem::replace(first, NONE);
            while let Some(entry) = entries.get_mut(place as usize) {
                let next = entry.next;
                // What stays is linked anew.
                let list = if gone.len() == gone.capacity() || is_used(place, entry.age) {
                    &mut *first
                } else {
                    gone.push(std::mem::take(&mut entry.words));
                    beyond.allocated += std::mem::take(&mut entry.allocated);
                    beyond.outside += std::mem::take(&mut entry.outside);
                    &mut *free
                };
                entry.next = std::mem::replace(list, place);
                place = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Weight {
        Weight::of(100, 0)
    }

    fn span(n: u64) -> Span {
        ([n, 2], 3)
    }

    /// Check that sites are found by their words also where hashes are equal, over growth, and after others were forgotten, whose places are
    /// taken by the next.
    #[test]
    fn sites_are_found_by_their_words() {
        let mut shard = Shard::new();
        assert_eq!(shard.find(&[1], 7), None);
        let all: Vec<_> = (0..100).map(|n| shard.learn(&[n, 1], (n % 3) as u32).unwrap()).collect();
        let find = |shard: &Shard, n: u64| shard.find(&[n, 1], (n % 3) as u32);
        (0..100).for_each(|n| assert_eq!(find(&shard, n), Some(all[n as usize])));
        let mut words = Vec::with_capacity(100);
        shard.forget(|local, _| all[60..].contains(&local), &mut words);
        let mut gone: Vec<u64> = words.iter().map(|words| words[0]).collect();
        gone.sort_unstable();
        let known = |shard: &Shard| (0..shard.len() as u32).filter(|local| shard.words(*local).is_some()).count();
        assert_eq!((gone, known(&shard)), ((0..60).collect::<Vec<_>>(), 40));
        (0..100).for_each(|n| assert_eq!(find(&shard, n), (n >= 60).then(|| all[n as usize])));
        let mut again: Vec<_> = (0..60).map(|n| shard.learn(&[n, 1], (n % 3) as u32).unwrap()).collect();
        (0..60).for_each(|n| assert_eq!(find(&shard, n), Some(again[n as usize])));
        again.sort_unstable();
        assert_eq!((again, shard.len()), (all[..60].to_vec(), 100));
        assert_eq!(known(&shard), 100);
    }

    /// Check that a span that comes again has one pair, that pairs are bounded, and that what is beyond is outside of spans, counted and not lost.
    #[test]
    fn pairs_are_bounded() {
        let mut shard = Shard::new();
        let sites = [shard.learn(&[1], 1), shard.learn(&[2], 2), None];
        for n in 0..1000_u64 {
            for site in sites {
                [n, n.saturating_sub(1)].iter().for_each(|n| shard.add(site, span(*n), one(), 0));
            }
        }
        let mut outside = Vec::new();
        let (pairs, without_span) = shard.take(&mut outside);
        assert_eq!(pairs.len(), MAX_PAIRS);
        let samples: u64 = pairs.iter().map(|pair| u64::from(pair.samples)).sum();
        assert_eq!((samples + without_span, outside.iter().map(|one| one.1.objects()).sum()), (6000, without_span as i64));
        assert_eq!(shard.take(&mut Vec::new()).1, 0);
        // Each comes twice, but for the first and the last of each site.
        assert!(pairs.iter().filter(|pair| pair.weight.objects() != 2).count() <= 6);
        let of = |pairs: &[Pair], outside: &[(Option<u32>, Weight)], site: Option<u32>| {
            let pairs = pairs.iter().filter(|pair| pair.local() == site).map(|pair| pair.weight.objects());
            pairs.chain(outside.iter().filter(|one| one.0 == site).map(|one| one.1.objects())).sum::<i64>()
        };
        assert_eq!(sites.map(|site| of(&pairs, &outside, site)), [2000; 3]);
        let all: Vec<_> = shard.allocated().map(|(local, weight)| (Some(local), weight.objects())).collect();
        assert_eq!((all, shard.beyond().objects()), (vec![(sites[0], 2000), (sites[1], 2000)], 2000));
    }

    /// Check that a pair that was taken is not added to any more, when one of another site and the same span stands in its place.
    #[test]
    fn what_was_taken_begins_anew() {
        let mut shard = Shard::new();
        let sites = [shard.learn(&[1], 1), shard.learn(&[2], 2)];
        for order in [[0, 1], [1, 0], [0, 1]] {
            order.iter().for_each(|site| shard.add(sites[*site], span(1), one(), 0));
            let (pairs, _) = shard.take(&mut Vec::new());
            let found: Vec<_> = pairs.iter().map(|pair| (pair.local(), pair.weight)).collect();
            assert_eq!(found, order.map(|site| (sites[site], one())));
        }
    }

    /// Check that what was allocated at sites that are forgotten is still there, beyond.
    #[test]
    fn what_is_forgotten_is_not_lost() {
        let mut shard = Shard::new();
        let site = shard.learn(&[1], 1);
        shard.add(site, NO_SPAN, one(), 5);
        let mut gone = Vec::with_capacity(1);
        shard.forget(|_, age| age == 5, &mut gone);
        assert!(gone.is_empty(), "it was met");
        shard.forget(|_, _| false, &mut Vec::new());
        assert!(shard.words(0).is_some(), "nobody had room for it");
        shard.forget(|_, age| age > 5, &mut gone);
        assert_eq!(gone.iter().map(|words| words.to_vec()).collect::<Vec<_>>(), [[1]]);
        let mut outside = Vec::new();
        assert_eq!((shard.take(&mut outside).0.len(), shard.allocated().count()), (0, 0));
        assert_eq!((outside, shard.beyond()), (vec![(None, one())], one()));
    }
}
