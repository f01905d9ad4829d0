//! The profiles of the last minutes, in memory.
//!
//! In: closed profile sets, from the thread that assembles them. Out: those of a range of time, shared and not copied.
//! Bounded by time and by bytes: the oldest go first, of the sort that takes more room (CPU, or all else). What is older than some
//! minutes is joined into sets of a minute. The lock is held only while shares are handed over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profiler_proto::ProfileSet;
use profiler_proto::model::merge;

use super::lane::{Lane, Stored};
use super::range::Range;
use super::sample_type::SampleType;

/// Profiles of the last minutes, bounded by time and by bytes.
#[derive(Debug)]
pub struct Store {
    window: Duration,
    max_bytes: usize,
    held: Mutex<Held>,
}

/// Sets with on-CPU time, and all others: neither drives the other out of its half.
#[derive(Debug, Default)]
struct Held {
    lanes: [Lane; 2],
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

    /// Keeps `set`, which may drive out the oldest ones: where there is no room, of CPU profiles or of all others, whichever take
    /// more. So each sort has half of the room, and what the other leaves of its half.
    pub fn add(&self, set: Arc<ProfileSet>) {
        let lane = usize::from(!SampleType::Cpu.is_in(&set));
        let Some(stored) = Stored::new(set) else { return };
        if stored.bytes() > self.max_bytes {
            let bytes = stored.bytes();
            tracing::warn!(bytes, max_bytes = self.max_bytes, "a profile larger than the whole store is not kept");
            return;
        }
        let driven_out: Vec<Stored> = {
            let mut held = self.held();
            held.lanes[lane].push(stored);
            self.drive_out(&mut held)
        };
        // Outside of the lock: to free a large set takes a while.
        drop(driven_out);
        self.join_minute(lane);
    }

    /// How long profiles are kept.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The estimated size of what is kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held().bytes()
    }

    /// The types that there are profiles of.
    pub(super) fn types(&self) -> Vec<SampleType> {
        let held = self.held();
        SampleType::ALL.into_iter().filter(|sample_type| held.of_type(*sample_type).next().is_some()).collect()
    }

    /// The sets with profiles of a type that touch a range of time, in the order of their arrival. One that lies in it only in
    /// part belongs to it as a whole: what is newest is shown rather than left out.
    pub(super) fn select(&self, sample_type: SampleType, range: Range) -> Vec<Arc<ProfileSet>> {
        let held = self.held();
        let touched = held.of_type(sample_type).filter(|stored| stored.touches(range));
        touched.map(|stored| Arc::clone(stored.set())).collect()
    }

    /// The newest state of a type at or before `moment`.
    pub(super) fn newest_state(&self, sample_type: SampleType, moment: u64) -> Option<Arc<ProfileSet>> {
        let held = self.held();
        let until = held.states(sample_type).filter(|(at, _)| *at <= moment);
        until.max_by_key(|(at, _)| *at).map(|(_, set)| Arc::clone(set))
    }

    /// The first state of a type in a range of time.
    pub(super) fn first_state(&self, sample_type: SampleType, range: Range) -> Option<Arc<ProfileSet>> {
        let held = self.held();
        let within = held.states(sample_type).filter(|(at, _)| (range.from..=range.to).contains(at));
        within.min_by_key(|(at, _)| *at).map(|(_, set)| Arc::clone(set))
    }

    /// Puts one merged set in the place of the sets of a minute, if one is due. They are merged outside of the lock.
    fn join_minute(&self, lane: usize) {
        let apart = {
            let held = self.held();
            held.lanes[lane].due(held.newest())
        };
        let Some(first) = apart.first() else { return };
        let set = Arc::new(merge(apart.iter().map(Arc::as_ref)));
        let Some(joined) = Stored::new(set) else { return };
        let replaced = self.held().lanes[lane].replace(first, apart.len(), joined);
        drop(replaced);
    }

    fn drive_out(&self, held: &mut Held) -> Vec<Stored> {
        let oldest = held.newest().saturating_sub(u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX));
        let mut out = Vec::new();
        for lane in &mut held.lanes {
            out.extend(std::iter::from_fn(|| lane.pop_before(oldest)));
        }
        while held.bytes() > self.max_bytes {
            let Some(oldest) = held.fullest().and_then(Lane::pop) else { break };
            out.push(oldest);
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
        self.lanes.iter().map(Lane::newest).max().unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        self.lanes.iter().map(Lane::bytes).sum()
    }

    /// Where there is no room: the lane that takes more, but the newest set of each stays as long as the other lane has older ones.
    fn fullest(&mut self) -> Option<&mut Lane> {
        self.lanes.iter_mut().max_by_key(|lane| (lane.len() > 1, lane.bytes()))
    }

    fn of_type(&self, sample_type: SampleType) -> impl Iterator<Item = &Stored> {
        self.lanes.iter().flat_map(Lane::iter).filter(move |stored| sample_type.is_in(stored.set()))
    }

    /// The states of a type, each with its moment: the end of its window.
    fn states(&self, sample_type: SampleType) -> impl Iterator<Item = (u64, &Arc<ProfileSet>)> {
        let sets = self.lanes.iter().flat_map(Lane::iter).map(Stored::set);
        sets.filter_map(move |set| Some((moment_of(sample_type, set)?, set)))
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Self::WINDOW, Self::MAX_BYTES)
    }
}

/// When the state of a type was that a set has.
pub(super) fn moment_of(sample_type: SampleType, set: &ProfileSet) -> Option<u64> {
    sample_type.profiles(set).map(profiler_proto::Profile::end_unix_nanos).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::size;
    use crate::serve::testing::Stacks;

    const ALWAYS: Range = Range { from: 0, to: u64::MAX };

    fn starts(store: &Store, range: Range) -> Vec<u64> {
        store.select(SampleType::Cpu, range).iter().map(|set| set.profiles[0].time_unix_nanos / 1_000_000_000).collect()
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
        let first = &store.select(SampleType::Cpu, Range { from: 0, to: 600_000_000_000 })[0];
        let values: Vec<i64> = first.profiles[0].samples.iter().map(|sample| sample.value).collect();
        assert_eq!((first.profiles[0].duration_nanos, values), (60_000_000_000, vec![12, 6]));
        assert_eq!(profiler_proto::loss::stacks_of(&first.profiles[0], &first.dictionary), 18);
        let sum: usize = store.held().lanes.iter().flat_map(Lane::iter).map(Stored::bytes).sum();
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
        assert_eq!((tiny.bytes(), tiny.select(SampleType::Cpu, ALWAYS).len()), (0, 0));
    }

    const SECOND: u64 = 1_000_000_000;

    /// A heap of ten seconds that ends at this second, with so many bytes in use.
    fn heap(end: u64, bytes: i64) -> Arc<ProfileSet> {
        Arc::new(Stacks::new().at(end - 10, 10).sample("main;a", bytes).heap())
    }

    fn values(set: &ProfileSet, sample_type: SampleType) -> Vec<i64> {
        sample_type.profiles(set).flat_map(|profile| &profile.samples).map(|sample| sample.value).collect()
    }

    /// Check that of memory in use the newest state at or before a moment is found, and the first one of a range, each the very set
    /// that was added; and that a state in which nothing is in use is one.
    #[test]
    fn states_are_found_by_their_moments() {
        let store = Store::new(Duration::from_secs(3600), 1 << 20);
        assert_eq!(store.newest_state(SampleType::InuseSpace, u64::MAX), None);
        let sets = [heap(1010, 1024), heap(1020, 0), heap(1030, 3072)];
        sets.iter().for_each(|set| store.add(Arc::clone(set)));
        let place = |found: Option<Arc<ProfileSet>>| {
            sets.iter().position(|set| found.as_ref().is_some_and(|f| Arc::ptr_eq(f, set)))
        };
        for sample_type in [SampleType::InuseSpace, SampleType::InuseObjects] {
            let newest = |second: u64| place(store.newest_state(sample_type, second * SECOND));
            assert_eq!(
                [1009, 1010, 1019, 1020, 1030, 9999].map(newest),
                [None, Some(0), Some(0), Some(1), Some(2), Some(2)]
            );
            let first = |from: u64, to: u64| {
                place(store.first_state(sample_type, Range { from: from * SECOND, to: to * SECOND }))
            };
            assert_eq!([first(0, 9999), first(1011, 1030), first(1020, 1020)], [Some(0), Some(1), Some(1)]);
            assert_eq!([first(1011, 1019), first(1031, 9999)], [None, None]);
        }
        assert_eq!(store.types(), SampleType::ALL[1..]);
        store.add(Stacks::new().sample("a", 1).shared());
        assert_eq!(store.types(), SampleType::ALL);
        assert!(store.select(SampleType::Cpu, ALWAYS).iter().all(|set| SampleType::Cpu.is_in(set)));
    }

    /// Check that heaps are joined into minutes beside CPU profiles: what was allocated is summed, of what is in use the last state
    /// stays.
    #[test]
    fn heaps_are_joined_into_minutes() {
        let store = Store::new(Duration::from_secs(3600), 1 << 20);
        for n in 1..=18 {
            store.add(heap(600 + 10 * n, 1024 * n as i64));
            store.add(Stacks::new().at(590 + 10 * n, 10).sample("main;a", 1).shared());
        }
        let allocated = store.select(SampleType::AllocSpace, ALWAYS);
        assert_eq!((allocated.len(), store.select(SampleType::Cpu, ALWAYS).len()), (13, 13));
        assert_eq!(values(&allocated[0], SampleType::AllocSpace), [2 * 1024 * (1 + 2 + 3 + 4 + 5 + 6)]);
        assert_eq!(values(&allocated[0], SampleType::InuseSpace), [1024 * 6]);
        let state = |second: u64| {
            store.newest_state(SampleType::InuseSpace, second * SECOND).map(|set| values(&set, SampleType::InuseSpace))
        };
        assert_eq!(
            [659, 660, 669, 670].map(state),
            [None, Some(vec![1024 * 6]), Some(vec![1024 * 6]), Some(vec![1024 * 7])]
        );
    }

    /// Check that neither CPU profiles nor heaps drive the others out of their half, that each may have what the others leave, and that
    /// the newest of each stays.
    #[test]
    fn cpu_and_heap_share_the_room() {
        let cpu = |n: u64| Stacks::new().at(1000 + n, 1).sample("main;a;b;c;d;e", 1).shared();
        let (of_cpu, of_heap) = (size::of(&cpu(0)), size::of(&heap(1000, 1)));
        let store = Store::new(Duration::from_secs(3600), 12 * of_heap.max(of_cpu));
        let count = |sample_type| store.select(sample_type, ALWAYS).len();
        (0..1000).for_each(|n| store.add(heap(2000 + n, 1)));
        let alone = count(SampleType::InuseSpace);
        assert!(alone > 10, "{alone}");
        (0..1000).for_each(|n| store.add(cpu(2000 + n)));
        let bytes = |sample_type| store.select(sample_type, ALWAYS).iter().map(|set| size::of(set)).sum::<usize>();
        let half = store.max_bytes / 2;
        let is_about_half = |bytes: usize| (half - of_heap.max(of_cpu)..=half + of_heap.max(of_cpu)).contains(&bytes);
        assert!(is_about_half(bytes(SampleType::InuseSpace)) && is_about_half(bytes(SampleType::Cpu)));
        (0..1000).for_each(|n| store.add(heap(4000 + n, 1)));
        assert!(is_about_half(bytes(SampleType::InuseSpace)) && is_about_half(bytes(SampleType::Cpu)));
        assert!(
            store
                .newest_state(SampleType::InuseSpace, u64::MAX)
                .is_some_and(|set| set.profiles[0].end_unix_nanos() == 4999 * SECOND)
        );
        let giant = (0..100_000).fold(Stacks::new().at(4990, 10), |stacks, n| stacks.sample("main", n + 1)).heap();
        let tight = Store::new(Duration::from_secs(3600), size::of(&giant) + 2 * of_cpu);
        (0..9).for_each(|n| tight.add(cpu(4990 + n)));
        tight.add(Arc::new(giant));
        tight.add(cpu(4999));
        assert_eq!(
            (tight.select(SampleType::InuseSpace, ALWAYS).len(), tight.select(SampleType::Cpu, ALWAYS).len()),
            (1, 2)
        );
    }
}
