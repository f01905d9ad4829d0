//! What was looked up lately, within a bound.
//!
//! Two generations: the younger one is filled, and what is found in the older one moves to it; when it is full the older one is dropped
//! and it becomes the older. So what is asked for again and again stays, and nothing has to be put in order.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Frame, Frames as Found};
use crate::elf;

/// Bytes that each generation of frames may hold, with names counted for each frame that has them.
const FRAMES: usize = 1 << 20;
/// Bytes that each generation of names may hold.
const NAMES: usize = 512 << 10;
/// Longest name; a longer one is cut. Those of instantiated generics have hundreds of bytes.
const NAME: usize = 4096;
/// What an entry costs besides what it holds: key, pointer, length, room in the table.
const ENTRY: usize = 64;

/// Frames by address.
#[derive(Debug)]
pub(super) struct Frames(Mutex<Generations<u64, Found>>);

impl Default for Frames {
    fn default() -> Self {
        Self(Mutex::new(Generations::new(FRAMES)))
    }
}

impl Frames {
    pub(super) fn known(&self, at: u64) -> Option<Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known(&at)
    }

    /// Bytes that are kept, about.
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).forget();
    }

    pub(super) fn keep(&self, at: u64, frames: &Found) {
        let names = |frame: &Frame| size_of::<Frame>() + frame.function.len() + frame.file.len();
        let cost = ENTRY + frames.iter().map(names).sum::<usize>();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(at, Arc::clone(frames), cost);
    }
}

/// Names by offset in the file.
#[derive(Debug)]
pub(super) struct Names(Mutex<Generations<u64, Arc<str>>>);

impl Default for Names {
    fn default() -> Self {
        Self(Mutex::new(Generations::new(NAMES)))
    }
}

impl Names {
    /// Bytes that are kept, about.
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).forget();
    }

    /// The text at `offset`; empty where there is none.
    pub(super) fn text(&self, offset: Option<u64>, elf: &elf::File) -> Arc<str> {
        let Some(offset) = offset else { return Arc::default() };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).known(&offset);
        known.unwrap_or_else(|| {
            let text: Arc<str> = elf.text_at(offset, NAME).unwrap_or_default().into();
            let cost = ENTRY + text.len();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(offset, Arc::clone(&text), cost);
            text
        })
    }
}

#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    /// What the younger one costs, and may cost.
    cost: usize,
    most: usize,
    /// What the older one cost when it became that.
    cost_of_old: usize,
}

impl<K: Hash + Eq + Copy, V: Clone> Generations<K, V> {
    fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), cost: 0, most, cost_of_old: 0 }
    }

    fn bytes(&self) -> usize {
        self.cost + self.cost_of_old
    }

    fn forget(&mut self) {
        *self = Self::new(self.most);
    }

    fn known(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, cost) = self.old.remove(key)?;
        self.keep(*key, value.clone(), cost);
        Some(value)
    }

    fn keep(&mut self, key: K, value: V, cost: usize) {
        if self.cost + cost > self.most {
            self.old = std::mem::take(&mut self.young);
            self.cost_of_old = std::mem::take(&mut self.cost);
        }
        if self.young.insert(key, (value, cost)).is_none() {
            self.cost += cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut kept = Generations::new(100);
        kept.keep(0, "zero", 10);
        for key in 1..1000 {
            kept.keep(key, "other", 10);
            assert_eq!(kept.known(&0), Some("zero"));
            assert!(kept.young.len() + kept.old.len() <= 20, "{kept:?}");
        }
        assert_eq!(kept.known(&1), None);
        assert_eq!(kept.known(&999), Some("other"));
        assert!((100..=200).contains(&kept.bytes()), "{kept:?}");
        kept.forget();
        assert_eq!((kept.known(&0), kept.bytes()), (None, 0));
    }
}
