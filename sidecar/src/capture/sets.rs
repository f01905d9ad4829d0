//! Sets of labels as they stand in memory: many at once, each piece read anew, nothing kept from one time to the next.
//!
//! In: addresses that `g.labels` had. Out: keys and values, as of the moment of the reading, bounded in number and length. Whether they belonged to
//! the goroutine then is for whoever asked to find out. All that is wanted of all sets is read together, step by step: headers, pairs, texts. On the
//! thread that captures.
//!
//! Source: runtime/pprof/label.go (`labelMap`: a map up to 1.23, a slice since); where what stands is in [`layouts`].

use std::sync::Arc;

use profiler_proto::hash::Map;

use crate::go::layouts::{self, map, pair};
use crate::target::{Fault, Piece};

use super::memory::{Memory, word_at};
use super::work::Metered;

/// Most labels of a goroutine that are read.
const LABELS: u64 = 64;
/// Most bytes of a key or value that are read.
const TEXT: u64 = 1024;
/// A set as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Set {
    /// The bytes of keys and values, in the order in which they stand there. Sets that were read together share those that are at one place.
    pub(super) pairs: Vec<[Arc<[u8]>; 2]>,
    /// Whether it has more of them, or longer ones, than are read.
    pub(super) is_cut: bool,
}

/// Where the texts of a set lie.
#[derive(Debug)]
struct Places {
    /// Of each label the key and the value, each with its length.
    pairs: Vec<[u64; 4]>,
    /// Whether there are more of them.
    is_cut: bool,
}

/// Reads sets.
#[derive(Debug)]
pub(super) struct Sets<'m, M: ?Sized> {
    memory: &'m Metered<'m, M>,
    shape: layouts::Labels,
}

impl<'m, M: Memory + ?Sized> Sets<'m, M> {
    pub(super) fn new(memory: &'m Metered<'m, M>, shape: layouts::Labels) -> Self {
        Self { memory, shape }
    }

    /// Whether there is no work left to read any.
    pub(super) fn are_spent(&self) -> bool {
        self.memory.is_spent()
    }

    /// Counts `work` for what is done with sets that were read; whether there was as much left.
    pub(super) fn spend(&self, work: usize) -> bool {
        self.memory.spend(work as u64)
    }

    /// The set at each of `addresses` that can be read whole.
    pub(super) fn read(&self, addresses: &[u64]) -> Result<Map<u64, Set>, Fault> {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        let places = match self.shape {
            layouts::Labels::Slice => self.slices(&addresses)?,
            layouts::Labels::Map => self.maps(&addresses)?,
        };
        let sets = self.texts(&places)?;
        Ok(addresses.into_iter().zip(sets).filter_map(|(address, set)| Some((address, set?))).collect())
    }

    /// `labelMap` is a struct of a slice of pairs.
    fn slices(&self, addresses: &[u64]) -> Result<Vec<Option<Places>>, Fault> {
        let headers = self.pieces(addresses.iter().map(|address| Some((*address, 16))))?;
        let count = |header: &[u8]| word_at(header, 8);
        let pairs = headers.iter().map(|header| {
            let header = header.as_ref()?;
            Some((word_at(header, 0), pair::SIZE * count(header).min(LABELS) as usize))
        });
        let pairs = self.pieces(pairs)?;
        let places = |(header, pairs): (&Option<Vec<u8>>, Option<Vec<u8>>)| {
            let pairs = pairs?.chunks_exact(pair::SIZE).map(|label| strings(label, pair::KEY, pair::VALUE)).collect();
            Some(Places { pairs, is_cut: count(header.as_ref()?) > LABELS })
        };
        Ok(headers.iter().zip(pairs).map(places).collect())
    }

    /// `labelMap` is a map: a pointer to an `hmap`.
    fn maps(&self, addresses: &[u64]) -> Result<Vec<Option<Places>>, Fault> {
        let maps = self.pieces(addresses.iter().map(|address| Some((*address, 8))))?;
        // A map that is nil is empty.
        let headers = maps.iter().map(|map| match word_at(map.as_ref()?, 0) {
            0 => Some((0, 0)),
            map => Some((map, map::LENGTH)),
        });
        let headers: Vec<_> = self.pieces(headers)?;
        let mut tables: Vec<Option<Table>> = headers.iter().map(|header| Some(Table::of(header.as_ref()?))).collect();
        // Each time one more bucket that overflows, in which there is at least one pair, or one of the old ones: so often at most.
        while tables.iter().flatten().any(Table::is_open) {
            let buckets = self.pieces(tables.iter().map(|table| table.as_ref().map(Table::next)))?;
            for (table, buckets) in tables.iter_mut().zip(buckets) {
                match (table.as_mut(), buckets) {
                    (Some(open), Some(buckets)) => open.take(&buckets),
                    _ => *table = None,
                }
            }
        }
        Ok(tables.into_iter().map(|table| table?.found()).collect())
    }

    /// The texts of each set. Those that several have are read once, but are work for each that has them, for whoever looks at a set looks at all of it.
    fn texts(&self, sets: &[Option<Places>]) -> Result<Vec<Option<Set>>, Fault> {
        let text = |at: u64, length: u64| (at, length.min(TEXT) as usize);
        let of_pair = |&[key, length, value, size]: &[u64; 4]| [text(key, length), text(value, size)];
        let mut wanted: Vec<_> = sets.iter().flatten().flat_map(|set| &set.pairs).flat_map(of_pair).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let texts = self.pieces(wanted.iter().map(|text| Some(*text)))?;
        let known = wanted.into_iter().zip(texts).filter_map(|(text, bytes)| Some((text, bytes?.into())));
        let known: Map<_, Arc<[u8]>> = known.collect();
        let told = |text: (u64, usize)| self.spend(text.1).then(|| known.get(&text).cloned())?;
        let pair = |places: &[u64; 4]| {
            let [key, value] = of_pair(places);
            Some([told(key)?, told(value)?])
        };
        let is_long = |places: &[u64; 4]| places[1].max(places[3]) > TEXT;
        let set = |places: &Places| {
            let is_cut = places.is_cut || places.pairs.iter().any(is_long);
            Some(Set { pairs: places.pairs.iter().map(pair).collect::<Option<_>>()?, is_cut })
        };
        Ok(sets.iter().map(|places| set(places.as_ref()?)).collect())
    }

    /// The bytes of each of `wanted`, an address with a length; none where nothing is wanted, or not all of it is there.
    fn pieces(&self, wanted: impl Iterator<Item = Option<(u64, usize)>>) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let wanted: Vec<_> = wanted.collect();
        let mut buffers: Vec<Vec<u8>> =
            wanted.iter().map(|wanted| vec![0; wanted.map_or(0, |(_, length)| length)]).collect();
        let not_empty = wanted.iter().zip(&mut buffers).filter(|(_, buffer)| !buffer.is_empty());
        let mut pieces: Vec<Piece<'_>> =
            not_empty.map(|(wanted, buffer)| Piece::new(wanted.map_or(0, |(address, _)| address), buffer)).collect();
        if !pieces.is_empty() {
            self.memory.read_many(&mut pieces)?;
        }
        let mut whole = pieces.iter().map(Piece::is_whole).collect::<Vec<_>>().into_iter();
        let wanted = wanted.into_iter().zip(buffers);
        Ok(wanted
            .map(|(wanted, buffer)| wanted.filter(|_| buffer.is_empty() || whole.next() == Some(true)).map(|_| buffer))
            .collect())
    }
}

/// Where the texts of a key and a value lie, of which the strings stand at these places.
fn strings(bytes: &[u8], key: usize, value: usize) -> [u64; 4] {
    [word_at(bytes, key), word_at(bytes, key + 8), word_at(bytes, value), word_at(bytes, value + 8)]
}

/// A map of which buckets are read: first those that it has side by side, then one by one those that they overflow into.
#[derive(Debug)]
struct Table {
    /// Pairs that there are, as far as they are read.
    count: usize,
    /// Whether there are more.
    is_cut: bool,
    /// Buckets that are read next, and those behind them, each by itself.
    next: (u64, usize),
    overflows: Vec<u64>,
    found: Vec<[u64; 4]>,
}

impl Table {
    /// By the first words of an `hmap`; an empty one, where it has none.
    fn of(header: &[u8]) -> Self {
        let byte = |at: usize| header.get(at).copied().unwrap_or(0);
        let count = word_at(header, map::COUNT);
        let log = u32::from(byte(map::LOG)).min(LABELS.ilog2());
        // While it grows, pairs are moved from the buckets before.
        let old_log = if byte(map::FLAGS) & map::SAME_SIZE == 0 { log.saturating_sub(1) } else { log };
        let old = Some(word_at(header, map::OLD_BUCKETS)).filter(|old| *old != 0);
        let olds = old
            .into_iter()
            .flat_map(|old| (0..1 << old_log).map(move |place| old.wrapping_add(place * map::BUCKET as u64)));
        Self {
            count: count.min(LABELS) as usize,
            is_cut: count > LABELS,
            next: (word_at(header, map::BUCKETS), map::BUCKET << log),
            overflows: olds.collect(),
            found: Vec::new(),
        }
    }

    /// Whether there are pairs that were not read.
    fn is_open(&self) -> bool {
        self.found.len() < self.count && self.next.0 != 0
    }

    /// Where the texts of its pairs lie; none where there are fewer than it says.
    fn found(self) -> Option<Places> {
        (self.found.len() == self.count).then_some(Places { pairs: self.found, is_cut: self.is_cut })
    }

    fn next(&self) -> (u64, usize) {
        if self.is_open() { self.next } else { (0, 0) }
    }

    /// Takes the pairs of these buckets, and where those lie that they overflow into.
    fn take(&mut self, buckets: &[u8]) {
        for bucket in buckets.chunks_exact(map::BUCKET) {
            let before = self.found.len();
            let taken = bucket.iter().take(map::PLACES).enumerate().filter(|(_, top)| **top >= map::LEAST_TOP);
            self.found
                .extend(taken.map(|(place, _)| strings(bucket, map::KEYS + 16 * place, map::VALUES + 16 * place)));
            self.found.truncate(self.count);
            let overflow = Some(word_at(bucket, map::OVERFLOW)).filter(|at| *at != 0 && self.found.len() > before);
            self.overflows.extend(overflow);
        }
        if !buckets.is_empty() {
            self.next = (self.overflows.pop().unwrap_or(0), map::BUCKET);
        }
    }
}
