//! Captures of one process again and again, each for the time since the one before.
//!
//! In: a [`Source`]. Out: for each window one set: what is in use and which goroutines there are at its end; what was allocated and waited for in it,
//! where the runtime counts from its start. The first window has no such figures, for nothing says when they came about. Memory: names, and some 32 bytes for each record of
//! the runtime's, for twice as many as are captured at most; both if there is [`Room`] for them. On a thread that can be left behind.

use profiler_proto::ProfileSet;
use profiler_proto::hash::{Map, State};
use profiler_proto::model::Contention as Kind;
use profiler_proto::resource::Resource;

use crate::error::Error;

use super::awaited::Awaited;
use super::contention::Contention;
use super::figures::RuntimeFigures;
use super::heap::{Amount, Heap};
use super::profile::{Builder, Window};
use super::room::{Room, Taken};
use super::source::{Bounds, Source};

/// A process that is captured each window.
#[derive(Debug)]
pub struct Periodic {
    source: Source,
    allocated: Totals,
    blocked: Totals,
    held: Totals,
    /// Bytes that were ever allocated, as of the window before.
    counted: u64,
    /// The room of the names that are kept.
    taken: Option<Taken>,
    /// The room of what was counted.
    taken_by_totals: Option<Taken>,
}

impl Periodic {
    /// Begins with a process.
    #[must_use]
    pub fn new(source: Source) -> Self {
        let (allocated, blocked, held) = Default::default();
        Self { source, allocated, blocked, held, counted: 0, taken: None, taken_by_totals: None }
    }

    /// Reads for the next window as long as that is waited for.
    pub fn read_while(&mut self, awaited: Awaited) {
        self.source.read_while(awaited);
    }

    /// Keeps the names that were found for the next window where there is `room` for them, which other processes share. Else they are looked up again then.
    pub fn keep_names(&mut self, room: &Room) {
        // What it has already is its own.
        self.taken = None;
        self.taken = room.take(self.source.loaded().kept());
        if self.taken.is_none() {
            self.source.loaded().forget();
        }
    }

    /// Keeps what was counted, from which the next window's is taken, where there is `room` for it, which other processes share. Else the next one begins anew; whether it was kept.
    pub fn keep_totals(&mut self, room: &Room) -> bool {
        self.taken_by_totals = None;
        let bytes = [&self.allocated, &self.blocked, &self.held].map(Totals::bytes).iter().sum();
        self.taken_by_totals = room.take(bytes);
        if self.taken_by_totals.is_none() {
            (self.allocated, self.blocked, self.held) = Default::default();
        }
        self.taken_by_totals.is_some()
    }

    /// Bytes of names that are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.source.loaded().kept()
    }

    /// The process.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What is to be said of the window that ends now. Profiles that the program has off are left out; each kind that cannot be read is missing, with why,
    /// and keeps no other from being there. One at a time is read and built, so that no two are in memory at once.
    ///
    /// # Errors
    /// When the process is gone, runs another program, or not one kind can be read.
    pub fn capture(&mut self, resource: Resource, window: Window, bounds: Bounds) -> Result<Captured, Error> {
        let figures = self.source.figures();
        let counted = figures.as_ref().map_or(self.counted, |figures| figures.allocated);
        if std::mem::replace(&mut self.counted, counted) > counted {
            // It began anew, at the same addresses.
            (self.allocated, self.blocked, self.held) = Default::default();
        }
        let (mut builder, mut missing, mut count) = (Builder::new(&self.source, resource), Vec::new(), None);
        let (mut states, mut partial) = (Vec::new(), Vec::new());
        let mut note = |what: What, text: String| partial.extend((!text.is_empty()).then_some((what, text)));
        match self.source.heap(bounds) {
            // Without a sample there is no profile that could tell what is missing.
            Ok(heap) if heap.records.is_empty() && !heap.walk.is_whole() => {
                missing.push((What::Heap, self.source.nothing("the heap")));
            }
            Ok(mut heap) => {
                states.extend(heap.state.advice().map(|state| (What::Heap, state)));
                note(What::Heap, heap.walk.lacking("stacks"));
                let window = self.allocated.window(window);
                let is_off = heap.records.is_empty() && heap.state.is_off();
                self.allocated.since_heap(&mut heap, window, bounds.buckets);
                if !is_off {
                    builder.heap(&mut heap, window);
                }
            }
            Err(error) => missing.push((What::Heap, error)),
        }
        match self.source.goroutines(bounds) {
            Ok(goroutines) if goroutines.list.is_empty() => {
                missing.push((What::Goroutines, self.source.nothing("the goroutines")));
            }
            Ok(goroutines) => {
                note(What::Goroutines, goroutines.lacking());
                let told = builder.goroutines(&goroutines, window);
                // Of those beyond the bound it is not known which are the runtime's own, and what cannot be read may be one.
                count = told.filter(|_| goroutines.beyond + goroutines.broken + goroutines.nascent == 0);
            }
            Err(error) => missing.push((What::Goroutines, error)),
        }
        let contention = [(Kind::Block, What::Block, &mut self.blocked), (Kind::Mutex, What::Mutex, &mut self.held)];
        for (kind, what, totals) in contention {
            match self.source.contention(kind, bounds) {
                Ok(read) if read.records.is_empty() && !read.walk.is_whole() => {
                    missing.push((what, self.source.nothing(&format!("the {} profile", kind.name()))));
                }
                Ok(mut read) => {
                    states.extend(read.state().map(|state| (what, state)));
                    note(what, read.walk.lacking("stacks"));
                    let window = totals.window(window);
                    totals.since_contention(&mut read, window, bounds.buckets);
                    builder.contention(&read, window);
                }
                Err(error) => missing.push((what, error)),
            }
        }
        if missing.len() == What::ALL.len() || !self.source.is_same() {
            let first = missing.into_iter().next();
            return Err(first.map_or_else(|| self.source.changed(), |(_, error)| error));
        }
        let mut set = builder.finish();
        let ProfileSet { profiles, dictionary, .. } = &mut set;
        // That nothing is in use any more is a state, too.
        profiles.retain(|profile| !profile.samples.is_empty() || profile.kind.is_state(dictionary));
        let figures = figures.map(|figures| RuntimeFigures { goroutines: count, ..figures });
        Ok(Captured { set, missing, partial, states, figures })
    }
}

/// What a runtime keeps of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// Allocations, and what of them is in use.
    Heap,
    /// What there is, and where each stands.
    Goroutines,
    /// Who waited.
    Block,
    /// Who let others wait.
    Mutex,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Heap, Self::Goroutines, Self::Block, Self::Mutex];

    /// The name of its profile in Go.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Goroutines => "goroutine",
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }
}

/// What came of a window.
#[derive(Debug)]
pub struct Captured {
    /// Profiles of the kinds that could be read.
    pub set: ProfileSet,
    /// Why the others could not.
    pub missing: Vec<(What, Error)>,
    /// What is missing of the others, for people, a line for each cause.
    pub partial: Vec<(What, String)>,
    /// Of kinds that can be read, why there is nothing or not what is expected: off, left out by the linker, nothing sampled or no garbage collected yet.
    pub states: Vec<(What, &'static str)>,
    /// The runtime's figures, or why there are none.
    pub figures: Result<RuntimeFigures, Error>,
}

/// Counts and amounts of the records of one list as of the window before; none before the first.
#[derive(Debug, Default)]
struct Totals(Option<Last>);

/// What was told last.
#[derive(Debug)]
struct Last {
    known: Map<u64, Value>,
    /// Whether all that the list had is among them.
    is_whole: bool,
    /// The end of its window, nanoseconds since 1970.
    ended: u64,
}

/// A count and an amount.
type Value = (i64, i64);

impl Totals {
    /// Bytes of memory, about.
    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |last| last.known.capacity() * size_of::<(u64, Value, u8)>())
    }

    /// The window that ends with this one and has all that came since the list was read last: a longer one, where it could not be read for a while.
    fn window(&self, window: Window) -> Window {
        let start_unix_nanos = self.0.iter().fold(window.start_unix_nanos, |start, last| start.min(last.ended));
        Window { start_unix_nanos, duration_nanos: window.end().saturating_sub(start_unix_nanos).max(1) }
    }

    /// Leaves of allocations those since the window before.
    fn since_heap(&mut self, heap: &mut Heap, window: Window, most: usize) {
        let value = |Amount { objects, bytes }| (objects, bytes);
        let records = heap.records.iter().map(|record| (record.at, value(record.allocated))).collect();
        let told = self.since(records, heap.walk.is_whole(), window.end(), most);
        for (record, (objects, bytes)) in heap.records.iter_mut().zip(told) {
            record.allocated = Amount { objects, bytes };
        }
    }

    /// Leaves of events those since the window before.
    fn since_contention(&mut self, contention: &mut Contention, window: Window, most: usize) {
        let records = contention.records.iter().map(|record| (record.at, (record.count, record.ticks))).collect();
        let told = self.since(records, contention.walk.is_whole(), window.end(), most);
        for (record, told) in contention.records.iter_mut().zip(told) {
            (record.count, record.ticks) = told;
        }
    }

    /// What came of each record since the window before, newest record first.
    ///
    /// One that is not known is new if all were known then. Else it may have been missed; but new ones are put in front of the list, so what stands before all
    /// that is known is new. Of others nothing says when they came about.
    fn since(&mut self, mut records: Vec<(u64, Value)>, is_whole: bool, ended: u64, most: usize) -> Vec<Value> {
        let before = self.0.take();
        let mut now = Map::with_capacity_and_hasher(records.len(), State::default());
        let known = |at: &u64| before.as_ref().and_then(|before| before.known.get(at)).copied();
        let new = match &before {
            None => 0,
            Some(before) if before.is_whole => records.len(),
            Some(_) => records.iter().position(|(at, _)| known(at).is_some()).unwrap_or(0),
        };
        for (place, (at, value)) in records.iter_mut().enumerate() {
            let last = known(at).unwrap_or(if place < new { (0, 0) } else { *value });
            // The highest so far: a total that fell (before the first collection, allocations are told that are not in it later) rises to what was
            // told already.
            now.insert(*at, (value.0.max(last.0), value.1.max(last.1)));
            *value = (value.0.saturating_sub(last.0).max(0), value.1.saturating_sub(last.1).max(0));
        }
        // Where not all was taken, the others are as they were when they are seen again; as many as a list may have, for a program's memory may name others each time.
        let unseen = before.into_iter().filter(|_| !is_whole).flat_map(|before| before.known);
        for (at, value) in unseen {
            if now.len() >= 2 * most {
                break;
            }
            now.entry(at).or_insert(value);
        }
        self.0 = Some(Last { known: now, is_whole, ended });
        records.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1000;

    fn told(totals: &mut Totals, records: &[(u64, Value)], is_whole: bool) -> Vec<Value> {
        totals.since(records.to_vec(), is_whole, 0, MOST)
    }

    /// Check that a window behind others in which the list could not be read says how long ago it was read.
    #[test]
    fn what_came_in_two_windows_is_told_of_both() {
        let window = |start, end| Window { start_unix_nanos: start, duration_nanos: end - start };
        let mut totals = Totals::default();
        assert_eq!(totals.window(window(100, 200)), window(100, 200));
        totals.since(vec![], true, 200, MOST);
        assert_eq!(
            [window(200, 300), window(300, 400)].map(|now| totals.window(now)),
            [window(200, 300), window(200, 400)]
        );
        // The clock was set back.
        assert_eq!(totals.window(window(50, 60)), window(50, 60));
    }

    #[test]
    fn what_came_since_is_told_and_nothing_of_the_time_before_the_first() {
        let mut totals = Totals::default();
        assert_eq!(told(&mut totals, &[(1, (5, 50))], true), [(0, 0)]);
        assert_eq!(told(&mut totals, &[(1, (7, 90)), (2, (3, 30))], true), [(2, 40), (3, 30)]);
        // A record that was read torn is not less than nothing.
        assert_eq!(told(&mut totals, &[(1, (6, 95)), (2, (3, 30))], true), [(0, 5), (0, 0)]);
    }

    /// Check that a record that was missed, as the walk ended before it, is not taken for one that began since; and that new ones are still told as new.
    #[test]
    fn what_a_walk_missed_is_not_new_when_it_is_seen() {
        let mut totals = Totals::default();
        assert_eq!(told(&mut totals, &[(5, (1, 10)), (4, (1, 10))], false), [(0, 0); 2]);
        let seen = [(6, (2, 20)), (5, (1, 10)), (4, (3, 30)), (3, (70, 700))];
        assert_eq!(told(&mut totals, &seen, true), [(2, 20), (0, 0), (2, 20), (0, 0)]);
        // Now all are known.
        assert_eq!(told(&mut totals, &[(3, (71, 710)), (2, (9, 90))], false), [(1, 10), (9, 90)]);
        // Nothing of it is known: it may be all that was missed.
        assert_eq!(told(&mut totals, &[(8, (1, 1))], false), [(0, 0)]);
    }

    /// Check that a program that names other records in each window, and never all of them, is remembered within bounds.
    #[test]
    fn records_that_are_others_each_time_are_not_kept_without_end() {
        let mut totals = Totals::default();
        for window in 0..100 {
            let records: Vec<_> = (0..MOST as u64).map(|record| (window * 10_000 + record, (1, 1))).collect();
            told(&mut totals, &records, false);
            let kept = totals.0.as_ref().unwrap().known.len();
            assert!(kept <= 2 * MOST, "{kept} after {window}");
        }
    }
}
