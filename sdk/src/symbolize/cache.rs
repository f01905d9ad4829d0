//! Symbols that were found, kept by module and offset.
//!
//! In: symbols. Out: symbols again, as long as there is room: the cache is bounded in bytes. Two generations: what a window
//! uses moves to the young one, and the old one goes when room is needed. Equal names and paths are kept once.

use std::sync::Arc;

use profiler_proto::hash::{Map, Set};

use super::{Frame, Symbol};

/// Most bytes that are kept, both generations together.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// What an entry costs beside its frames: key, pointer, counts, the map's slack.
const ENTRY_BYTES: usize = 96;
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
    texts: Set<Arc<str>>,
    bytes: usize,
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
    fn add(&mut self, key: Key, symbol: &Symbol) {
        let frames = symbol.frames.iter().map(|frame| Frame {
            name: self.text(&frame.name),
            system_name: self.text(&frame.system_name),
            file: self.text(&frame.file),
            ..*frame
        });
        let frames: Box<[Frame]> = frames.collect();
        self.bytes += ENTRY_BYTES + size_of_val(&*frames);
        self.symbols.insert(key, Arc::new(Symbol { frames, language: symbol.language }));
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
        Symbol { frames: Box::new([frame]), language: Language::Rust }
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
        assert_eq!(cache.bytes() - first, ENTRY_BYTES + size_of::<Frame>());
        let file = |offset| Arc::clone(&cache.find(&(1, offset)).unwrap().frames[0].file);
        assert!(Arc::ptr_eq(&file(0), &file(1)));
    }
}
