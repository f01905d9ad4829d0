//! The labels of a goroutine (`pprof.Do`), which are in force for it and for those that it starts.
//!
//! In: `g.labels`. Out: keys and values, bounded in number and length, and in bytes for all of a capture; what is beyond is counted. Goroutines share
//! sets of labels and never change one, so each is read once for a capture.
//!
//! Sources: runtime/pprof/label.go (`labelMap`: a map up to 1.23, a slice since), runtime/map.go (`hmap`, `bmap`).

use std::fmt;
use std::sync::Arc;

use profiler_proto::hash::Map;

use crate::go::layouts;
use crate::target::Fault;

use super::memory::{Memory, Pages, word_at, words};
use super::work::Metered;

/// Most labels of a goroutine that are read.
const LABELS: u64 = 64;
/// Most bytes of a key or value that are read.
const TEXT: u64 = 1024;
/// Bytes that the labels of a capture may have: 100,000 sets of a trace and a span.
const BYTES: usize = 16 << 20;
/// What a set takes beside its text: its counts, its place among those that are known.
const BESIDE: usize = 64;
/// `abi.OldMapBucketCount`: pairs of a bucket.
const PAIRS: usize = 8;
/// Bytes of a `bmap` of strings: the tops of hashes, keys, values, the bucket that overflows.
const BUCKET: usize = PAIRS + 2 * 16 * PAIRS + 8;

/// Keys with values, by key: one piece of memory for all of them, for there may be a hundred thousand sets.
///
/// Each text stands behind its length in bytes, which is written as the character of that number: texts have 3,072 bytes at most.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Arc<str>);

impl Labels {
    fn of(labels: &[(String, String)]) -> Self {
        let mut all = String::new();
        for text in labels.iter().flat_map(|(key, value)| [key, value]) {
            let length = u32::try_from(text.len()).ok().and_then(char::from_u32);
            all.push(length.unwrap_or('\0'));
            all.push_str(length.map_or("", |_| text));
        }
        Self(all.into())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys and values, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        let mut next = move || {
            let length = rest.chars().next()?;
            let (text, behind) = rest.get(length.len_utf8()..)?.split_at_checked(length as usize)?;
            rest = behind;
            Some(text)
        };
        std::iter::from_fn(move || Some((next()?, next()?)))
    }

    /// Where they lie, which they share with their clones.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Reads labels and keeps them.
#[derive(Debug)]
pub(super) struct Reader<'m, M: ?Sized> {
    memory: &'m Metered<'m, M>,
    pages: Pages<'m, Metered<'m, M>>,
    shape: layouts::Labels,
    known: Map<u64, Option<Labels>>,
    left: usize,
    cut: u64,
}

impl<'m, M: Memory + ?Sized> Reader<'m, M> {
    pub(super) fn new(memory: &'m Metered<'m, M>, shape: layouts::Labels) -> Self {
        Self { memory, pages: Pages::new(memory), shape, known: Map::default(), left: BYTES, cut: 0 }
    }

    /// How often labels were left out, for want of room or of work.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// The labels at `address`; empty for null, and where they cannot be read or there is no room for them.
    pub(super) fn read(&mut self, address: u64) -> Result<Labels, Fault> {
        if address == 0 {
            return Ok(Labels::default());
        }
        if let Some(known) = self.known.get(&address) {
            self.cut += u64::from(known.is_none());
            return Ok(known.clone().unwrap_or_default());
        }
        let labels = if self.left == 0 { None } else { self.look_up(address)? }.filter(|_| !self.memory.is_spent());
        self.cut += u64::from(labels.is_none());
        self.known.insert(address, labels.clone());
        Ok(labels.unwrap_or_default())
    }

    /// The set at `address`; none where there is no room for it.
    fn look_up(&mut self, address: u64) -> Result<Option<Labels>, Fault> {
        let mut labels = match self.shape {
            layouts::Labels::Slice => self.slice(address)?,
            layouts::Labels::Map => self.map(address)?,
        }
        .unwrap_or_default();
        labels.sort_unstable();
        let labels = Labels::of(&labels);
        let bytes = BESIDE + labels.0.len();
        // The first set for which there is no room ends it: whoever looks at what is there is not misled by smaller ones behind it.
        self.left = self.left.saturating_sub(bytes);
        Ok((self.left > 0).then_some(labels))
    }

    /// `labelMap` is a struct of a slice of pairs.
    fn slice(&mut self, address: u64) -> Result<Option<Vec<(String, String)>>, Fault> {
        let Some(slice) = self.pages.words(address, 2)? else { return Ok(None) };
        let &[at, count] = &slice[..] else { return Ok(None) };
        let Some(pairs) = self.pages.words(at, 4 * count.min(LABELS) as usize)? else { return Ok(None) };
        pairs
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&[key, length, value, size]| self.pair((key, length), (value, size)))
            .collect()
    }

    /// `labelMap` is a map: a pointer to an `hmap` {count, flags, B, …, buckets @16}.
    fn map(&mut self, address: u64) -> Result<Option<Vec<(String, String)>>, Fault> {
        let Some(header) = self.pages.words(address, 1)? else { return Ok(None) };
        let Some(header) = self.pages.words(header.first().copied().unwrap_or(0), 3)? else { return Ok(None) };
        let &[count, flags, buckets] = &header[..] else { return Ok(None) };
        // 2^B buckets, B behind the flags.
        let log = (flags >> 8 & 0xff).min(LABELS.ilog2().into());
        let mut found = Vec::new();
        for number in 0..1_u64 << log {
            let mut next = buckets.wrapping_add(number * BUCKET as u64);
            while next != 0 && found.len() < count.min(LABELS) as usize {
                let mut bucket = [0; BUCKET];
                if !self.pages.fill(next, &mut bucket)? {
                    return Ok(None);
                }
                let before = found.len();
                self.pairs_of(&bucket, &mut found)?;
                next = if found.len() > before { word_at(&bucket, BUCKET - 8) } else { 0 };
            }
        }
        Ok(Some(found))
    }

    /// The pairs of a bucket whose places are taken: the top of a hash is then at least `minTopHash`, 5.
    fn pairs_of(&mut self, bucket: &[u8], found: &mut Vec<(String, String)>) -> Result<(), Fault> {
        let words = words(bucket);
        for (place, top) in bucket.iter().take(PAIRS).enumerate() {
            let text = |first: usize| Some((*words.get(first)?, *words.get(first + 1)?));
            let (key, value) = (text(1 + 2 * place), text(1 + 2 * (PAIRS + place)));
            if let Some((key, value)) = key.zip(value).filter(|_| *top >= 5) {
                found.extend(self.pair(key, value)?);
            }
        }
        Ok(())
    }

    fn pair(&mut self, key: (u64, u64), value: (u64, u64)) -> Result<Option<(String, String)>, Fault> {
        Ok(self.text(key)?.zip(self.text(value)?))
    }

    fn text(&mut self, (at, length): (u64, u64)) -> Result<Option<String>, Fault> {
        let mut bytes = vec![0; length.min(TEXT) as usize];
        let is_whole = self.pages.fill(at, &mut bytes)?;
        Ok(is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all texts come back, whatever their lengths and whatever is in them.
    #[test]
    fn labels_are_what_they_were() {
        let long = "\u{fffd}".repeat(1024);
        let texts = ["", "a", "\0\u{1}", &"b".repeat(128), &long, "tier: gold"];
        let all: Vec<(String, String)> = texts.iter().map(|text| ((*text).to_owned(), texts[5].to_owned())).collect();
        let labels = Labels::of(&all);
        let back: Vec<(String, String)> =
            labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!((back, labels.is_empty()), (all, false));
        assert!(Labels::default().is_empty() && Labels::default().iter().next().is_none());
        assert_eq!(labels.clone().address(), labels.address());
    }
}
