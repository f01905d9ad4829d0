//! Things by number: each distinct one gets the next, from 0.
//!
//! In: values. Out: numbers that stand for them in keys, and the values again, in the order of their numbers. Counts no bytes: its owner does.

use std::borrow::Borrow;
use std::hash::Hash;

use profiler_proto::hash::Map;

/// Values of one kind.
#[derive(Debug)]
pub(super) struct Table<T> {
    numbers: Map<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { numbers: Map::default() }
    }
}

impl<T: Eq + Hash> Table<T> {
    /// The number of a value that is known.
    pub(super) fn find<Q: ?Sized + Eq + Hash>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        self.numbers.get(value).copied()
    }

    /// Adds a value that is not known; its number, unless there are as many as there are numbers.
    pub(super) fn add(&mut self, value: T) -> Option<u32> {
        let number = u32::try_from(self.numbers.len()).ok()?;
        Some(*self.numbers.entry(value).or_insert(number))
    }

    /// The values in the order of their numbers.
    pub(super) fn values(&self) -> Vec<&T> {
        let mut pairs: Vec<(&T, u32)> = self.numbers.iter().map(|(value, number)| (value, *number)).collect();
        pairs.sort_unstable_by_key(|(_, number)| *number);
        pairs.into_iter().map(|(value, _)| value).collect()
    }
}
