//! Symbols that were found, kept by module and offset.
//!
//! In: symbols. Out: symbols again, as long as there is room: the cache is bounded in bytes. Two generations: what a window
//! uses moves to the young one, and the old one goes when room is needed. Equal names and paths are kept once, and so is what is known of several addresses
//! of a module, with the first of them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use profiler_proto::hash::{Map, Set};

use super::{Frame, Language, Symbol};

/// Most bytes that are kept, both generations together.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// What an address costs: key, pointer, the map's slack.
const ENTRY_BYTES: usize = 48;
/// What a symbol costs beside its frames: counts, pointers, the map's slack.
const DISTINCT_BYTES: usize = 96;
/// What a text costs beside its bytes.
const TEXT_BYTES: usize = 48;

/// Which module, and where in it.
pub(super) type Key = (u64, u64);

/// Symbols by module and offset.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    symbols: Map<Key, Arc<Symbol>>,
    distinct: Set<Distinct>,
    texts: Set<Arc<str>>,
    bytes: usize,
}

/// What is known of addresses of a module; of which the first is does not tell it from others.
#[derive(Debug, Clone)]
struct Distinct {
    module: u64,
    symbol: Arc<Symbol>,
}

impl Distinct {
    fn identity(&self) -> (u64, Language, &[Frame]) {
        (self.module, self.symbol.language, &self.symbol.frames)
    }
}

impl PartialEq for Distinct {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Distinct {}

impl Hash for Distinct {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl Cache {
    /// Begins a window: what it does not use may go.
    pub(super) fn begin(&mut self) {
        if self.young.bytes > MAX_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    pub(super) fn find(&self, key: &Key) -> Option<&Arc<Symbol>> {
        self.young.symbols.get(key).or_else(|| self.old.symbols.get(key))
    }

    /// Whether a symbol is known; if so, it stays.
    pub(super) fn keep(&mut self, key: &Key) -> bool {
        if self.young.symbols.contains_key(key) {
            return true;
        }
        let Some(symbol) = self.old.symbols.remove(key) else { return false };
        self.add(*key, &symbol);
        true
    }

    /// Adds a symbol, if there is room for it.
    pub(super) fn add(&mut self, key: Key, symbol: &Symbol) {
        let mut symbol = Distinct { module: key.0, symbol: Arc::new(self.young.shared(symbol)) };
        if let Some(known) = self.old.distinct.get(&symbol) {
            Arc::make_mut(&mut symbol.symbol).first = known.symbol.first;
        }
        self.young.add(key, symbol);
        if self.young.bytes + self.old.bytes > MAX_BYTES {
            self.old = Generation::default();
        }
        if self.young.bytes > MAX_BYTES {
            // One window alone has more: its first addresses have names, the others have numbers.
            self.young.symbols.remove(&key);
        }
    }

    /// Whether one window has filled all of it.
    pub(super) fn is_full(&self) -> bool {
        self.young.bytes >= MAX_BYTES
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }
}

impl Generation {
    /// A symbol with texts of this generation.
    fn shared(&mut self, symbol: &Symbol) -> Symbol {
        let frames = symbol.frames.iter().map(|frame| Frame {
            name: self.text(&frame.name),
            system_name: self.text(&frame.system_name),
            file: self.text(&frame.file),
            ..*frame
        });
        Symbol { frames: frames.collect(), ..*symbol }
    }

    fn add(&mut self, key: Key, symbol: Distinct) {
        self.bytes += ENTRY_BYTES;
        let known = match self.distinct.get(&symbol) {
            Some(known) => Arc::clone(&known.symbol),
            None => {
                self.bytes += DISTINCT_BYTES + size_of_val(&*symbol.symbol.frames);
                self.distinct.insert(symbol.clone());
                symbol.symbol
            }
        };
        self.symbols.insert(key, known);
    }

    fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        self.bytes += text.len() + TEXT_BYTES;
        self.texts.insert(Arc::clone(text));
        Arc::clone(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Language;
    use super::*;

    fn symbol(name: &str) -> Symbol {
        let frame = Frame { name: name.into(), file: "same.rs".into(), ..Frame::default() };
        Symbol { frames: Box::new([frame]), language: Language::Rust, first: 0 }
    }

    /// Check that bytes are bounded, and that what is in use outlives what is not.
    #[test]
    fn what_is_used_stays_within_the_bound() {
        let mut cache = Cache::default();
        let text = "n".repeat(1000);
        for number in 0..100_000_u64 {
            if number % 100 == 0 {
                cache.begin();
                assert_eq!(cache.keep(&(1, 0)), number > 0);
            }
            cache.add((1, number), &symbol(&format!("{text}{number}")));
            assert!(cache.bytes() <= MAX_BYTES + 2000, "{}", cache.bytes());
        }
        assert!(cache.find(&(1, 0)).is_some() && cache.find(&(1, 99_999)).is_some());
        assert!(cache.find(&(1, 1)).is_none() && !cache.is_full());
    }

    /// Check that a window that fills the cache keeps its first symbols and takes no more.
    #[test]
    fn a_full_cache_takes_no_more() {
        let mut cache = Cache::default();
        let text = "n".repeat(10_000);
        (0..2_000_u64).for_each(|number| cache.add((1, number), &symbol(&format!("{text}{number}"))));
        assert!(cache.is_full() && cache.find(&(1, 0)).is_some() && cache.find(&(1, 1999)).is_none());
    }

    /// Check that equal texts are counted and kept once.
    #[test]
    fn equal_texts_are_kept_once() {
        let mut cache = Cache::default();
        cache.add((1, 0), &symbol("a"));
        let first = cache.bytes();
        cache.add((1, 1), &symbol("a"));
        assert_eq!(cache.bytes() - first, ENTRY_BYTES);
        cache.add((2, 0), &symbol("a"));
        assert_eq!(cache.bytes() - first, 2 * ENTRY_BYTES + DISTINCT_BYTES + size_of::<Frame>());
        let file = |key| Arc::clone(&cache.find(&key).unwrap().frames[0].file);
        assert!(Arc::ptr_eq(&file((1, 0)), &file((1, 1))) && Arc::ptr_eq(&file((1, 0)), &file((2, 0))));
    }

    /// Check that what was known first stands for all of which the same is known, also where it is not used for a while, and of each module for itself.
    #[test]
    fn the_first_address_stands_for_all() {
        let mut cache = Cache::default();
        let first = |cache: &Cache, key| cache.find(&key).unwrap().first;
        let add = |cache: &mut Cache, key: Key| cache.add(key, &Symbol { first: key.1, ..symbol("a") });
        [(1, 7), (1, 3), (2, 3)].into_iter().for_each(|key| add(&mut cache, key));
        assert_eq!([(1, 7), (1, 3), (2, 3)].map(|key| first(&cache, key)), [7, 7, 3]);
        // Another generation begins, which meets another one of them first.
        let long = "n".repeat(MAX_BYTES / 2);
        cache.add((3, 0), &symbol(&long));
        cache.begin();
        add(&mut cache, (1, 5));
        assert!(cache.keep(&(1, 3)));
        assert_eq!([(1, 5), (1, 3)].map(|key| first(&cache, key)), [7, 7]);
    }
}
