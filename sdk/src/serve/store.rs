//! The profiles of the last minutes, in memory.
//!
//! In: closed profile sets, from the thread that assembles them. Out: those of a range of time, shared and not copied.
//! Bounded by time and by bytes: the oldest go first. What is older than some minutes is joined into sets of a minute.
//! The lock is held only while shares are handed over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profiler_proto::model::merge;
use profiler_proto::{Profile, ProfileSet};

use super::range::Range;
use super::{minutes, size};

/// Profiles of the last minutes, bounded by time and by bytes.
#[derive(Debug)]
pub struct Store {
    window: Duration,
    max_bytes: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// In the order of their arrival.
    sets: VecDeque<Stored>,
    bytes: usize,
}

#[derive(Debug)]
struct Stored {
    set: Arc<ProfileSet>,
    range: Range,
    bytes: usize,
}

impl Store {
    /// How long profiles are kept by [`Store::default`].
    pub const WINDOW: Duration = Duration::from_secs(15 * 60);
    /// How many bytes of them are kept by [`Store::default`].
    pub const MAX_BYTES: usize = 64 << 20;

    /// An empty store that keeps profiles until they are older than `window` (compared with the newest) or hold more
    /// than `max_bytes` together. A set that alone is larger is not kept.
    #[must_use]
    pub fn new(window: Duration, max_bytes: usize) -> Self {
        Self { window, max_bytes, held: Mutex::default() }
    }

    /// Keeps `set`, which may drive out the oldest ones.
    pub fn add(&self, set: Arc<ProfileSet>) {
        let bytes = size::of(&set);
        let Some(range) = range_of(&set) else { return };
        if bytes > self.max_bytes {
            tracing::warn!(bytes, max_bytes = self.max_bytes, "a profile larger than the whole store is not kept");
            return;
        }
        let driven_out: Vec<Stored> = {
            let mut held = self.held();
            held.bytes += bytes;
            held.sets.push_back(Stored { set, range, bytes });
            self.drive_out(&mut held)
        };
        // Outside of the lock: to free a large set takes a while.
        drop(driven_out);
        self.join_minute();
    }

    /// How long profiles are kept.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The estimated size of what is kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held().bytes
    }

    /// The sets that touch a range of time, in the order of their arrival. One that lies in it only in part belongs to it
    /// as a whole: what is newest is shown rather than left out.
    pub(super) fn select(&self, range: Range) -> Vec<Arc<ProfileSet>> {
        let held = self.held();
        let touched = held.sets.iter().filter(|stored| stored.range.from <= range.to && stored.range.to >= range.from);
        touched.map(|stored| Arc::clone(&stored.set)).collect()
    }

    /// Puts one merged set in the place of the sets of a minute, if one is due. They are merged outside of the lock.
    fn join_minute(&self) {
        let apart = self.held().due();
        let Some(first) = apart.first() else { return };
        let set = Arc::new(merge(apart.iter().map(Arc::as_ref)));
        let Some(range) = range_of(&set) else { return };
        let joined = Stored { range, bytes: size::of(&set), set };
        let replaced = self.held().replace(first, apart.len(), joined);
        drop(replaced);
    }

    fn drive_out(&self, held: &mut Held) -> Vec<Stored> {
        let oldest = held.newest().saturating_sub(u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX));
        let mut out = Vec::new();
        while let Some(first) = held.sets.front() {
            if held.bytes <= self.max_bytes && first.range.to >= oldest {
                break;
            }
            held.bytes -= first.bytes;
            out.extend(held.sets.pop_front());
        }
        out
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // What the lock guards is changed by calls that do not panic: it is whole even if it is poisoned.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The end of the newest profile.
    fn newest(&self) -> u64 {
        self.sets.iter().map(|stored| stored.range.to).max().unwrap_or(0)
    }

    /// The sets of a minute that are to be joined.
    fn due(&self) -> Vec<Arc<ProfileSet>> {
        let sets = self.sets.iter().map(|stored| (&*stored.set, stored.range));
        let run = minutes::due(sets, self.newest()).unwrap_or(0..0);
        self.sets.range(run).map(|stored| Arc::clone(&stored.set)).collect()
    }

    /// Puts `joined` in the place of `count` sets from `first` on, if they are still there; gives back what goes.
    fn replace(&mut self, first: &Arc<ProfileSet>, count: usize, joined: Stored) -> Vec<Stored> {
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

impl Default for Store {
    fn default() -> Self {
        Self::new(Self::WINDOW, Self::MAX_BYTES)
    }
}

/// The end of a profile's window, nanoseconds since 1970 UTC.
pub(super) fn end_of(profile: &Profile) -> u64 {
    profile.time_unix_nanos.saturating_add(profile.duration_nanos)
}

/// From the first profile's start to the last one's end; `None` for a set without profiles.
fn range_of(set: &ProfileSet) -> Option<Range> {
    let from = set.profiles.iter().map(|profile| profile.time_unix_nanos).min()?;
    let to = set.profiles.iter().map(end_of).max()?;
    Some(Range { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::Stacks;

    const ALWAYS: Range = Range { from: 0, to: u64::MAX };

    fn starts(store: &Store, range: Range) -> Vec<u64> {
        store.select(range).iter().map(|set| set.profiles[0].time_unix_nanos / 1_000_000_000).collect()
    }

    /// Check that profiles older than the window, seen from the newest, go.
    #[test]
    fn the_old_go() {
        let store = Store::new(Duration::from_secs(30), 1 << 20);
        for start in [1000, 1010, 1020, 1030, 1040] {
            store.add(Stacks::new().at(start, 10).sample("a", 1).shared());
        }
        assert_eq!(starts(&store, ALWAYS), [1010, 1020, 1030, 1040]);
        let middle = Range { from: 1_025_000_000_000, to: 1_035_000_000_000 };
        assert_eq!(starts(&store, middle), [1020, 1030]);
    }

    /// Check that old sets are joined into minutes, take less room, and hold what they held.
    #[test]
    fn old_sets_are_joined_into_minutes() {
        let store = Store::new(Duration::from_secs(3600), 1 << 20);
        let set = |start| Stacks::new().at(start, 10).stacks(3).sample("main;a", 2).sample("main;b", 1).shared();
        (0..6).for_each(|n| store.add(set(600 + 10 * n)));
        let apart = store.bytes();
        (6..18).for_each(|n| store.add(set(600 + 10 * n)));
        assert_eq!(starts(&store, ALWAYS)[..3], [600, 660, 670]);
        assert!(store.bytes() < 3 * apart, "{} of {apart}", store.bytes());
        let first = &store.select(Range { from: 0, to: 600_000_000_000 })[0];
        let values: Vec<i64> = first.profiles[0].samples.iter().map(|sample| sample.value).collect();
        assert_eq!((first.profiles[0].duration_nanos, values), (60_000_000_000, vec![12, 6]));
        assert_eq!(profiler_proto::loss::stacks_of(&first.profiles[0], &first.dictionary), 18);
        let sum: usize = store.held().sets.iter().map(|stored| stored.bytes).sum();
        assert_eq!(store.bytes(), sum);
    }

    /// Check that bytes are bounded, that what goes is given back, and that a set larger than all is not kept.
    #[test]
    fn bytes_are_bounded() {
        let one = Stacks::new().sample("a;b;c", 1).shared();
        let bytes = size::of(&one);
        let store = Store::new(Duration::from_secs(3600), 3 * bytes);
        for start in 1000..1100 {
            store.add(Stacks::new().at(start, 1).sample("a;b;c", 1).shared());
            assert!(store.bytes() <= 3 * bytes);
        }
        assert_eq!(starts(&store, ALWAYS), [1097, 1098, 1099]);
        let tiny = Store::new(Duration::from_secs(3600), bytes - 1);
        tiny.add(one);
        assert_eq!((tiny.bytes(), tiny.select(ALWAYS).len()), (0, 0));
    }
}
