//! Where allocations come from: distinct stacks with their tags, and what was allocated there.
//!
//! In: stacks and tags as hooks take them. Out: a number for each site, which the live table keeps; what was allocated, in
//! all since the start by site, and since the last profile by site and span. Bounded in bytes: beyond, new sites share [`BEYOND`]; sites
//! that nothing refers to are forgotten in time. By content, 64 locks; what each guards is in `shard`.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::block::{NO_SPAN, Span};
use super::shard::{Pair, SHARD_BITS, Shard};
use super::weight::Weight;

/// Locks of a table.
const SHARDS: usize = 1 << SHARD_BITS;
/// The site of samples whose own one did not fit.
pub(super) const BEYOND: u32 = u32::MAX;
/// What a site costs beside its words: its entry with a quarter for growth, its chain. They stay when it is forgotten, for the next one.
const SITE_BYTES: usize = 96;

/// Sites whose words are copied under one lock at a time, and words that a site has as a rule.
const AT_ONCE: usize = 16;
const USUAL_WORDS: usize = 128;

/// The table.
#[derive(Debug)]
pub(super) struct Sites {
    shards: Box<[Mutex<Shard>]>,
    /// What hashes begin with, so that nobody can choose tags whose sites have the same one.
    seeds: [u64; 2],
    bytes: AtomicUsize,
    most_bytes: usize,
    /// Counts looks at what is in use.
    age: AtomicU32,
    /// Shared with all that are [`Kept`].
    kept: Kept,
}

/// While one is out, no site is forgotten: its number and its sums stay what they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<()>);

/// What a site is: words as [`Sites::enter`] got them.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) number: u32,
    pub(super) words: Box<[u64]>,
}

impl Sites {
    /// An empty table of so many bytes at most.
    pub(super) fn new(most_bytes: usize) -> Self {
        let random = RandomState::new();
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            seeds: [random.hash_one(0), random.hash_one(1)],
            bytes: AtomicUsize::new(0),
            most_bytes,
            age: AtomicU32::new(0),
            kept: Kept::default(),
        }
    }

    /// From now on nothing was allocated before: a profiler starts. The sites stay, for there may be live blocks of theirs.
    pub(super) fn start_over(&self) {
        for shard in &self.shards {
            let waited = locked(shard).start_over();
            drop(waited);
        }
    }

    /// Adds what one sample stands for to the site of these words. The site's number; [`BEYOND`] where it does not fit.
    pub(super) fn enter(&self, words: &[u64], span: Span, weight: Weight) -> u32 {
        let hash = self.hash(words);
        let at = (hash >> (u64::BITS - SHARD_BITS)) as usize;
        let mut shard = locked(&self.shards[at]);
        // The lower half is not what the shard was chosen by.
        let known = shard.find(words, hash as u32);
        let local = known.or_else(|| self.learn(&mut shard, words, hash as u32));
        let age = self.age.load(Ordering::Relaxed);
        shard.add(local, span, weight, age);
        local.map_or(BEYOND, |local| number(local, at))
    }

    /// By folded products, two words at a time.
    fn hash(&self, words: &[u64]) -> u64 {
        let [first, second] = self.seeds;
        let fold = |hash: u64, a: u64, b: u64| {
            let product = u128::from(a ^ first) * u128::from(b ^ hash);
            product as u64 ^ (product >> 64) as u64
        };
        let (pairs, rest) = words.as_chunks::<2>();
        let hash = pairs.iter().fold(second, |hash, [a, b]| fold(hash, *a, *b));
        fold(hash, rest.first().copied().unwrap_or(0), words.len() as u64 ^ second)
    }

    #[cold]
    fn learn(&self, shard: &mut Shard, words: &[u64], hash: u32) -> Option<u32> {
        let bytes = size_of_val(words) + if shard.has_free() { 0 } else { SITE_BYTES };
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most_bytes {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        let local = shard.learn(words, hash);
        if local.is_none() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        local
    }

    /// Bytes that the sites take, as they are counted.
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the table takes, with what waits for a profile.
    pub(super) fn table_bytes(&self) -> usize {
        self.bytes() + self.shards.iter().map(|shard| locked(shard).bytes_of_pairs()).sum::<usize>()
    }

    /// Takes what was allocated since the last call, with the number of samples where there is a span; a pair of site and span may come more than
    /// once. Of how many samples the span is left out, for there was no room for it.
    pub(super) fn take_pending(&self, mut see: impl FnMut(u32, Span, Weight, u64)) -> u64 {
        let mut without_span = 0;
        for (at, shard) in self.shards.iter().enumerate() {
            let mut outside = Vec::new();
            let (pairs, left_out) = with_room(shard, &mut outside).take(&mut outside);
            without_span += left_out;
            let numbered = |local: Option<u32>| local.map_or(BEYOND, |local| number(local, at));
            outside.into_iter().for_each(|(local, weight)| see(numbered(local), NO_SPAN, weight, 0));
            let seen = |pair: &Pair| see(numbered(pair.local()), pair.span, pair.weight, pair.samples.into());
            pairs.iter().for_each(seen);
        }
        without_span
    }

    /// What was allocated in all, by site.
    pub(super) fn allocated(&self) -> Vec<(u32, Weight)> {
        let mut all = Vec::new();
        let mut beyond = Weight::default();
        for (at, shard) in self.shards.iter().enumerate() {
            let shard = with_room(shard, &mut all);
            all.extend(shard.allocated().map(|(local, weight)| (number(local, at), weight)));
            beyond += shard.beyond();
        }
        if beyond != Weight::default() {
            all.push((BEYOND, beyond));
        }
        all
    }

    /// Has no site forgotten until this is dropped.
    pub(super) fn keep(&self) -> Kept {
        self.kept.clone()
    }

    /// The words of these sites, of which few at a time are copied under a lock. Only for our own threads, whose allocations are not sampled.
    pub(super) fn words(&self, wanted: &HashSet<u32>) -> Vec<Site> {
        let mut wanted: Vec<u32> = wanted.iter().copied().filter(|number| *number != BEYOND).collect();
        wanted.sort_unstable_by_key(|number| (shard_of(*number), *number));
        let (mut copied, mut found) = (Copied::default(), Vec::with_capacity(wanted.len()));
        let of_one_lock = wanted.chunk_by(|one, other| shard_of(*one) == shard_of(*other));
        for numbers in of_one_lock.flat_map(|numbers| numbers.chunks(AT_ONCE)) {
            copied.take(&self.shards[shard_of(numbers[0])], numbers);
            found.extend(copied.sites());
        }
        found
    }

    /// Whether so much of the memory is full that sites are to be forgotten.
    pub(super) fn is_short(&self) -> bool {
        self.bytes() >= self.most_bytes / 4 * 3
    }

    /// A look at what is in use begins, behind which sites may be forgotten: what hooks meet from now on is in use, too.
    pub(super) fn begin_look(&self) {
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the sites that are not `used` and that no hook met since the look before this one began, if memory
    /// is short and nobody has them [`Kept`]. How many went.
    ///
    /// A hook that met a site longer ago and has not entered its block yet would find another site under its number: it
    /// stood still from one look to the next, which is an interval, or as long as lies between two flushes.
    pub(super) fn forget_unused(&self, used: &HashSet<u32>) -> usize {
        if !self.is_short() {
            return 0;
        }
        let now = self.age.load(Ordering::Relaxed);
        let mut forgotten = 0;
        let mut gone = Vec::new();
        for (shard, used) in self.shards.iter().zip(by_shard(used)) {
            // By place, for to hash each under the lock would take as long as to look at it.
            let is_used = |local: u32, age: u32| {
                used.get(local as usize).copied().unwrap_or(false) || age.wrapping_add(1) >= now
            };
            let mut shard = with_room(shard, &mut gone);
            // Under the lock: who has them kept from now on finds this shard as it is behind it.
            if Arc::strong_count(&self.kept.0) > 1 {
                break;
            }
            shard.forget(is_used, &mut gone);
            drop(shard);
            forgotten += gone.len();
            let bytes = gone.drain(..).map(|words| size_of_val(&*words)).sum();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        forgotten
    }
}

/// Which sites are used, by lock and place behind it; as long as the last one that is.
fn by_shard(used: &HashSet<u32>) -> Vec<Vec<bool>> {
    let mut places = vec![Vec::new(); SHARDS];
    for number in used.iter().filter(|number| **number != BEYOND) {
        let (of_shard, local) = (&mut places[shard_of(*number)], (number >> SHARD_BITS) as usize);
        of_shard.resize(of_shard.len().max(local + 1), false);
        of_shard[local] = true;
    }
    places
}

/// Words of some sites of one lock, behind each other.
#[derive(Default)]
struct Copied {
    words: Vec<u64>,
    /// Numbers, and how many words each has.
    sites: Vec<(u32, usize)>,
}

impl Copied {
    /// Copies them into memory that is there before the lock is taken.
    fn take(&mut self, shard: &Mutex<Shard>, numbers: &[u32]) {
        self.words.clear();
        self.sites.clear();
        self.sites.reserve(numbers.len());
        let mut needed = numbers.len() * USUAL_WORDS;
        loop {
            self.words.reserve(needed);
            let shard = locked(shard);
            let known = || numbers.iter().filter_map(|number| Some((*number, shard.words(number >> SHARD_BITS)?)));
            needed = known().map(|(_, words)| words.len()).sum();
            if needed <= self.words.capacity() {
                for (number, words) in known() {
                    self.words.extend_from_slice(words);
                    self.sites.push((number, words.len()));
                }
                return;
            }
        }
    }

    fn sites(&self) -> impl Iterator<Item = Site> + '_ {
        let mut rest = self.words.as_slice();
        self.sites.iter().map(move |(number, length)| {
            let (words, behind) = rest.split_at(*length);
            rest = behind;
            Site { number: *number, words: words.into() }
        })
    }
}

/// Which lock a site is behind.
fn shard_of(number: u32) -> usize {
    number as usize % SHARDS
}

/// The number of a site by that within its shard.
fn number(local: u32, shard: usize) -> u32 {
    local << SHARD_BITS | shard as u32
}

/// What the lock guards is whole even if it is poisoned: nothing panics under it.
fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard, with room in `all` for something of each of its sites and one more. Nothing is allocated under the lock: a user's thread may
/// call this, whose allocations are sampled.
fn with_room<'a, T>(shard: &'a Mutex<Shard>, all: &mut Vec<T>) -> MutexGuard<'a, Shard> {
    loop {
        let sites = locked(shard).len();
        // Some more, for there may be some more by then.
        all.reserve(sites + sites / 8 + 16);
        let shard = locked(shard);
        if shard.len() < all.capacity() - all.len() {
            return shard;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

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
        sites.take_pending(|number, span, weight, _| pending.push((number, span, weight)));
        assert_eq!(pending.len(), 3);
        assert!(pending.contains(&(first, SPAN, one())) && pending.contains(&(first, NO_SPAN, one())));
        sites.take_pending(|_, _, _, _| panic!("taken twice"));
        let all: HashMap<_, _> = sites.allocated().into_iter().collect();
        assert_eq!((all[&first].bytes(), all[&second].objects()), (200, 1));
        let words = sites.words(&HashSet::from([second]));
        assert_eq!((words.len(), words[0].number, &*words[0].words), (1, second, &[1, 2][..]));
    }

    /// Check that a start over leaves nothing of what was allocated before, neither in all nor for the next profile, beyond the sites neither, and that these are
    /// found again.
    #[test]
    fn a_start_over_begins_with_nothing() {
        let sites = Sites::new(2 * SITE_BYTES);
        let enter = |n: u64, span| sites.enter(&[n, 1], span, one());
        let before = [enter(1, SPAN), enter(1, NO_SPAN), enter(2, SPAN), enter(2, NO_SPAN)];
        assert_eq!((before[0] == BEYOND, before[2]), (false, BEYOND));
        sites.start_over();
        sites.take_pending(|number, span, weight, _| panic!("{weight:?} at {number} in {span:?}"));
        assert_eq!(sites.allocated(), []);
        assert_eq!([enter(1, SPAN), enter(2, SPAN)], [before[0], BEYOND]);
        let mut pending = Vec::new();
        sites.take_pending(|number, span, weight, _| pending.push((number, span, weight)));
        pending.sort_unstable_by_key(|one| one.0);
        assert_eq!(pending, [(before[0], SPAN, one()), (BEYOND, SPAN, one())]);
        assert_eq!(sites.allocated(), [(before[0], one()), (BEYOND, one())]);
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
        assert_eq!(sites.bytes(), 2 * 80 + 100 * SITE_BYTES);
        assert_eq!((enter(0), enter(1)), (numbers[0], numbers[1]));
        assert_ne!(enter(149), BEYOND);
        let places = sites.shards.iter().map(|shard| locked(shard).len()).sum::<usize>();
        assert_eq!(sites.bytes(), 3 * 80 + places * SITE_BYTES, "those that are free count");
        let pairs = sites.table_bytes() - sites.bytes();
        sites.take_pending(|_, _, _, _| {});
        assert!(pairs > 0 && sites.table_bytes() == sites.bytes(), "{pairs}");
        let total: i64 = sites.allocated().iter().map(|(_, weight)| weight.objects()).sum();
        assert_eq!(total, 154);
    }

    /// Check that what sites are is copied whole where they are longer than usual, into memory that is there before: a hook may wait for the lock inside an
    /// allocator that others are waiting for.
    #[test]
    fn long_sites_are_copied_whole() {
        let (mut shard, mut copied) = (Shard::new(), Copied::default());
        let words = |n: u64| vec![n; 10 * USUAL_WORDS];
        let numbers: Vec<u32> = (0..3).map(|n| number(shard.learn(&words(n), n as u32).unwrap(), 0)).collect();
        copied.take(&Mutex::new(shard), &numbers);
        let sites: Vec<_> = copied.sites().map(|site| (site.number, site.words.into_vec())).collect();
        assert_eq!(sites, (0..3).map(|n| (numbers[n as usize], words(n))).collect::<Vec<_>>());
    }

    /// Check that no site is forgotten while anybody has them kept, and that they are behind that.
    #[test]
    fn sites_are_kept() {
        let sites = Sites::new(10 * SITE_BYTES);
        assert!((1..).map_while(|n| (sites.enter(&[n, 1], SPAN, one()) != BEYOND).then_some(n)).count() > 5);
        (0..2).for_each(|_| sites.begin_look());
        let (kept, also_kept) = (sites.keep(), sites.keep());
        assert_eq!(sites.forget_unused(&HashSet::new()), 0);
        drop(kept);
        assert_eq!(sites.forget_unused(&HashSet::new()), 0);
        drop(also_kept);
        assert!(sites.forget_unused(&HashSet::new()) > 5);
    }
}
