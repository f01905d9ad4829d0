//! The labels of a goroutine (`pprof.Do`), which are in force for it and for those that it starts.
//!
//! In: goroutines as they were looked at. Out: their labels, bounded in bytes for all of a capture; what is beyond, and what cannot be believed, is said.
//! A program never changes a set, but a goroutine may have another one at any time, and what it had then becomes something else. So a set is read,
//! the goroutine is looked at, the set is read again: it is believed if the goroutine was the same one, pointed to the same set, and both readings
//! are alike. Nothing of a set is kept for others that point to it later: each batch of goroutines has its own readings. On the thread that captures.

use std::fmt;
use std::sync::Arc;

use profiler_proto::hash::{Map, Set as Kept};

use crate::go::layouts::{self, status};
use crate::target::Fault;

use super::memory::Memory;
use super::sets::{Set, Sets};
use super::state::State;
use super::work::Metered;

/// Bytes that the labels of a capture may have: 100,000 sets of a trace and a span.
const BYTES: usize = 16 << 20;
/// What a set takes beside its text: its counts, its place among those that are kept.
const BESIDE: usize = 64;
/// How often labels are tried that changed meanwhile.
const TRIES: u32 = 3;

/// Keys with values, by key: one piece of memory for all of them, for there may be a hundred thousand sets.
///
/// Each text stands behind its length in bytes, which is written as the character of that number: texts have 3,072 bytes at most. Before all of them stands
/// [`CUT`], if there are more of them, or longer ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels(Arc<str>);

/// No length of a text.
const CUT: char = char::MAX;

impl Labels {
    fn of(set: &Set) -> Self {
        let mut texts: Vec<_> =
            set.pairs.iter().map(|pair| pair.each_ref().map(|text| String::from_utf8_lossy(text))).collect();
        texts.sort_unstable();
        let mut all: String = set.is_cut.then_some(CUT).into_iter().collect();
        for text in texts.iter().flatten() {
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

    /// Whether there are more of them than are read, or longer ones.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.0.starts_with(CUT)
    }

    /// Keys and values, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.0.strip_prefix(CUT).unwrap_or(&self.0);
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
        let mut map = f.debug_map();
        map.entries(self.iter());
        if self.is_cut() { map.finish_non_exhaustive() } else { map.finish() }
    }
}

/// Why the labels of a goroutine are not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untold {
    /// There was no room for them, or no work left.
    Cut,
    /// They were others each time that they were read, or are no labels.
    Unsteady,
}

/// A goroutine as it was looked at.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Where its `g` is.
    pub(super) address: u64,
    /// What stood there; none where it is none.
    pub(super) state: Option<State>,
    /// Its labels as of then.
    pub(super) labels: Result<Labels, Untold>,
}

impl Seen {
    /// Without its labels yet.
    pub(super) fn new(address: u64, state: Option<State>) -> Self {
        Self { address, state, labels: Ok(Labels::default()) }
    }

    /// Whether its labels are to be read: it has some, or it runs, so it may get some while its state is read.
    fn is_open(&self) -> bool {
        self.state.is_some_and(|state| state.is_alive() && (state.labels != 0 || state.status == status::RUNNING))
    }

    /// Where its labels are, if that is the same `now`, and it is still the same goroutine.
    fn pointer(&self, now: &Self) -> Option<u64> {
        let (was, now) = (self.state?, now.state?);
        (was.is_one(&now) && was.labels == now.labels).then_some(now.labels)
    }
}

/// Reads the labels of goroutines, and keeps equal ones once.
#[derive(Debug)]
pub(super) struct Reader<'m, M: ?Sized> {
    sets: Sets<'m, M>,
    kept: Kept<Labels>,
    left: usize,
}

impl<'m, M: Memory + ?Sized> Reader<'m, M> {
    pub(super) fn new(memory: &'m Metered<'m, M>, shape: layouts::Labels) -> Self {
        Self { sets: Sets::new(memory, shape), kept: Kept::default(), left: BYTES }
    }

    /// The goroutines at `addresses` with their labels. Those that have some are looked at again for it, and are then told as they were at that time,
    /// between two readings of the labels.
    pub(super) fn seen(
        &mut self,
        addresses: &[u64],
        look: impl Fn(&[u64]) -> Result<Vec<Seen>, Fault>,
    ) -> Result<Vec<Seen>, Fault> {
        let mut all = look(addresses)?;
        let mut open: Vec<&mut Seen> = all.iter_mut().filter(|seen| seen.is_open()).collect();
        for _ in 0..TRIES {
            if open.is_empty() {
                break;
            }
            let at: Vec<u64> = open.iter().map(|seen| seen.address).collect();
            let pointers = if self.is_over() { Vec::new() } else { pointers(&open) };
            let first = self.sets.read(&pointers)?;
            let now = look(&at)?;
            let (second, mut told) = (self.sets.read(&pointers)?, Map::default());
            for (was, mut now) in open.iter_mut().zip(now) {
                now.labels = match was.pointer(&now) {
                    _ if !now.is_open() => Ok(Labels::default()),
                    Some(0) => Ok(Labels::default()),
                    // Once for all that point there, who may be many.
                    Some(pointer) => told
                        .entry(pointer)
                        .or_insert_with(|| self.believed(first.get(&pointer), second.get(&pointer)))
                        .clone(),
                    None => Err(self.why()),
                };
                **was = now;
            }
            open.retain(|seen| seen.labels == Err(Untold::Unsteady));
        }
        Ok(all)
    }

    /// Whether there is no room for others, or no work left to read them.
    fn is_over(&self) -> bool {
        self.left == 0 || self.sets.are_spent()
    }

    /// Why labels that were not had are not told.
    fn why(&self) -> Untold {
        if self.is_over() { Untold::Cut } else { Untold::Unsteady }
    }

    /// The labels of two readings that are alike.
    fn believed(&mut self, first: Option<&Set>, second: Option<&Set>) -> Result<Labels, Untold> {
        match (first, second) {
            (Some(first), Some(second)) if first == second => self.keep(first),
            _ => Err(self.why()),
        }
    }

    /// These labels, kept; not those for which there is no room, or no work left.
    fn keep(&mut self, set: &Set) -> Result<Labels, Untold> {
        let labels = Labels::of(set);
        if !self.sets.spend(labels.0.len()) {
            return Err(Untold::Cut);
        }
        if let Some(known) = self.kept.get(&labels) {
            return Ok(known.clone());
        }
        // The first set for which there is no room ends it: whoever looks at what is there is not misled by smaller ones behind it.
        self.left = self.left.saturating_sub(BESIDE + labels.0.len());
        if self.left == 0 {
            return Err(Untold::Cut);
        }
        self.kept.insert(labels.clone());
        Ok(labels)
    }
}

/// Where labels of these are.
fn pointers(open: &[&mut Seen]) -> Vec<u64> {
    open.iter().filter_map(|seen| Some(seen.state?.labels)).filter(|pointer| *pointer != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all texts come back, whatever their lengths and whatever is in them.
    #[test]
    fn labels_are_what_they_were() {
        let long = "\u{fffd}".repeat(1024);
        let texts = ["", "a", "\0\u{1}", &"b".repeat(128), &long, "tier: gold"];
        let mut all: Vec<(String, String)> =
            texts.iter().map(|text| ((*text).to_owned(), texts[5].to_owned())).collect();
        let bytes = |text: &String| text.as_bytes().into();
        let pairs = all.iter().rev().map(|(key, value)| [bytes(key), bytes(value)]).collect();
        let labels = Labels::of(&Set { pairs, is_cut: false });
        all.sort_unstable();
        let back: Vec<(String, String)> =
            labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!((back, labels.is_empty()), (all, false));
        assert!(Labels::default().is_empty() && Labels::default().iter().next().is_none());
        assert_eq!(labels.clone().address(), labels.address());
    }
}
