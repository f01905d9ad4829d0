//! Stored sets of one sort in the order of their arrival.
//!
//! In: sets, one by one. Out: shares of them, and those that have to go. Under the lock of the store; whoever drops what
//! comes out does so outside of it.

use std::collections::VecDeque;
use std::sync::Arc;

use profiler_proto::{Profile, ProfileSet};

use super::minutes::When;
use super::range::Range;
use super::{minutes, size};

/// Sets of one sort, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Lane {
    sets: VecDeque<Stored>,
    bytes: usize,
}

/// A set with what the store needs to know of it.
#[derive(Debug)]
pub(super) struct Stored {
    set: Arc<ProfileSet>,
    range: Range,
    bytes: usize,
}

impl Stored {
    /// `None` for a set without profiles.
    pub(super) fn new(set: Arc<ProfileSet>) -> Option<Self> {
        let from = set.profiles.iter().map(|profile| profile.time_unix_nanos).min()?;
        let to = set.profiles.iter().map(Profile::end_unix_nanos).max()?;
        Some(Self { range: Range { from, to }, bytes: size::of(&set), set })
    }

    pub(super) fn set(&self) -> &Arc<ProfileSet> {
        &self.set
    }

    /// The bytes that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it ends after `time`.
    pub(super) fn ends_after(&self, time: u64) -> bool {
        self.range.to > time
    }

    /// Whether its time and `range` have a moment in common.
    pub(super) fn touches(&self, range: Range) -> bool {
        self.range.from <= range.to && self.range.to >= range.from
    }
}

impl Lane {
    /// Adds the newest.
    pub(super) fn push(&mut self, stored: Stored) {
        self.bytes += stored.bytes;
        self.sets.push_back(stored);
    }

    /// Takes out the oldest.
    pub(super) fn pop(&mut self) -> Option<Stored> {
        let oldest = self.sets.pop_front()?;
        self.bytes -= oldest.bytes;
        Some(oldest)
    }

    /// Takes out the oldest if it ended before `time`.
    pub(super) fn pop_before(&mut self, time: u64) -> Option<Stored> {
        if self.sets.front()?.range.to < time { self.pop() } else { None }
    }

    /// Takes out all that end after `time`.
    pub(super) fn take_after(&mut self, time: u64) -> Vec<Stored> {
        let (gone, kept): (Vec<_>, Vec<_>) = self.sets.drain(..).partition(|stored| stored.ends_after(time));
        self.sets = kept.into();
        self.bytes -= gone.iter().map(Stored::bytes).sum::<usize>();
        gone
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stored> {
        self.sets.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The end of the newest profile; 0 where there is none.
    pub(super) fn newest(&self) -> u64 {
        self.sets.iter().map(|stored| stored.range.to).max().unwrap_or(0)
    }

    /// The sets of a minute that are to be joined. The newest stays as it came.
    pub(super) fn due(&self, when: When) -> Vec<Arc<ProfileSet>> {
        let before = self.sets.len().saturating_sub(1);
        let sets = self.sets.iter().take(before).map(|stored| (&*stored.set, stored.range));
        let run = minutes::due(sets, when).unwrap_or(0..0);
        self.sets.range(run).map(|stored| Arc::clone(&stored.set)).collect()
    }

    /// Puts `joined` in the place of `count` sets from `first` on, if they are still there; gives back what goes.
    pub(super) fn replace(&mut self, first: &Arc<ProfileSet>, count: usize, joined: Stored) -> Vec<Stored> {
        let Some(at) = self.sets.iter().position(|stored| Arc::ptr_eq(&stored.set, first)) else {
            return vec![joined];
        };
        let mut behind = self.sets.split_off(at);
        let rest = behind.split_off(count.min(behind.len()));
        self.bytes = self.bytes + joined.bytes - behind.iter().map(|stored| stored.bytes).sum::<usize>();
        self.sets.push_back(joined);
        self.sets.extend(rest);
        behind.into()
    }
}
