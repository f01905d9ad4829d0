//! The samples of one process in one window of time.
//!
//! In: samples with named stacks. Out: distinct entries with counts, in an order that depends on nothing but the samples. Numbers stand for
//! locations, stacks, names and sets of tags, so that an entry is small.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use profiler_proto::hash::Map;
use profiler_proto::loss::{Cause, Degraded, Flaw, Loss};
use profiler_proto::paths;

use super::Full;
use super::context::Context;
use super::table::Table;
use crate::naming::{Granularity, Kind, Location, Stack};
use crate::sample::{Sample, Span};
use crate::target::Process;

/// What a value in a table costs beside itself: its number, its key, the map's control byte and slack.
const VALUE_BYTES: usize = 48;
/// What a window costs without samples, with what is known of its process.
pub(super) const EMPTY: usize = size_of::<Window>() + 1024;
/// What an entry costs, the map's slack included.
const ENTRY_BYTES: usize = 2 * (size_of::<Key>() + size_of::<u64>());

/// Tags by key.
type Tags = Box<[(String, String)]>;

/// The samples of a process.
#[derive(Debug)]
pub struct Window {
    process: Process,
    started_at: SystemTime,
    duration: Duration,
    locations: Vec<Arc<Location>>,
    /// The number of each location by where it is kept: naming hands out the same one for the same place, and here it stays.
    places: Map<usize, u32>,
    stacks: Table<Box<[u32]>>,
    /// Those that naming has numbers for, by these.
    numbered: Map<u64, Place>,
    names: Table<Box<str>>,
    tags: Table<Tags>,
    entries: Map<Key, u64>,
    bytes: usize,
    lost: Loss,
    degraded: Degraded,
}

/// A stack of the window.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: u32,
    /// Whether it runs, or was called by, code of Go.
    is_of_go: bool,
}

/// What tells entries apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    period_nanos: u64,
    stack: u32,
    tid: u32,
    name: u32,
    /// `None`: there is no room for its set of tags.
    tags: Option<u32>,
    /// Trace and span.
    span: Option<([u8; 16], [u8; 8])>,
    /// Where it is asked for.
    processor: Option<u32>,
}

/// A distinct stack, as a profile tells it, on one thread under one set of tags in one span, taken at one rate.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Nanoseconds of CPU time that each sample stands for.
    pub period_nanos: u64,
    /// Leaf first.
    pub stack: Vec<&'a Arc<Location>>,
    /// The thread; 0 of Go's: goroutines move from thread to thread, whose numbers say nothing of the program.
    pub tid: u32,
    /// What it was called; nothing of Go's.
    pub name: &'a str,
    /// Its tags by key; `None`: there was no room for them.
    pub tags: Option<&'a [(String, String)]>,
    /// The span.
    pub span: Option<Span>,
    /// The processor, where samples are told apart by it.
    pub processor: Option<u32>,
    /// How often it was seen.
    pub count: u64,
}

impl Window {
    pub(super) fn begin(process: Process) -> Self {
        Self {
            process,
            started_at: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            locations: Vec::new(),
            places: Map::default(),
            stacks: Table::default(),
            numbered: Map::default(),
            names: Table::default(),
            tags: Table::default(),
            entries: Map::default(),
            bytes: EMPTY,
            lost: Loss::default(),
            degraded: Degraded::default(),
        }
    }

    /// The window, which was open from then on for so long.
    pub(super) fn ended(self, started_at: SystemTime, duration: Duration) -> Self {
        Self { started_at, duration, ..self }
    }

    /// Adds a sample, as long as all takes at most so many bytes.
    pub(super) fn add(
        &mut self,
        sample: &Sample,
        stack: &Stack,
        processor: Option<u32>,
        most: usize,
    ) -> Result<(), Full> {
        self.try_add(sample, stack, processor, most).inspect_err(|Full| self.lost.add(Cause::AggregateFull, 1))
    }

    fn try_add(&mut self, sample: &Sample, stack: &Stack, processor: Option<u32>, most: usize) -> Result<(), Full> {
        let place = self.place(stack, most)?;
        let mut room = Room { bytes: &mut self.bytes, most };
        let (tid, name) = if place.is_of_go { (0, "".into()) } else { (sample.tid, sample.comm.text()) };
        let name = known_or(&mut self.names, &*name, |name| name.into(), name.len(), &mut room).ok_or(Full)?;
        let context = Context::of(sample);
        let tags = context.tags.as_slice();
        // With little room left there is none for what would be seen once: spans first, then tags.
        let tags = if room.is_below(7) || tags.is_empty() || self.tags.find(tags).is_some() {
            known_or(&mut self.tags, tags, |tags| tags.into(), tags_bytes(tags), &mut room)
        } else {
            None
        };
        let span = context.span.map(|span| (span.trace_id, span.span_id));
        let mut key = Key { period_nanos: sample.period_nanos, stack: place.number, tid, name, tags, span, processor };
        if !self.entries.contains_key(&key) {
            key.span = span.filter(|_| room.is_below(6));
            if !self.entries.contains_key(&key) {
                room.take(ENTRY_BYTES)?;
            }
        }
        *self.entries.entry(key).or_default() += 1;
        self.degraded.merge(&stack.flaws);
        if context.is_cut || key.tags.is_none() || key.span != span {
            self.degraded.add(Flaw::NoContext, 1);
        }
        Ok(())
    }

    /// The stack's place among those of the window, which gets it if there is room.
    fn place(&mut self, stack: &Stack, most: usize) -> Result<Place, Full> {
        if let Some(known) = stack.number.and_then(|number| self.numbered.get(&number)) {
            return Ok(*known);
        }
        let mut room = Room { bytes: &mut self.bytes, most };
        let numbers = locations(&mut self.places, &mut self.locations, stack, &mut room)?;
        let bytes = size_of_val(&*numbers);
        let number = known_or(&mut self.stacks, &*numbers, |numbers| numbers.into(), bytes, &mut room).ok_or(Full)?;
        let place = Place { number, is_of_go: stack.frames.iter().any(|location| location.kind == Kind::Go) };
        // It is only asked for sooner there: not where that is room for samples.
        if let Some(number) = stack.number.filter(|_| room.is_below(4) && room.take(VALUE_BYTES).is_ok()) {
            self.numbered.insert(number, place);
        }
        Ok(place)
    }

    /// Notes what was lost while this window was open.
    #[cfg(test)]
    pub(super) fn lose(&mut self, lost: &Loss) {
        self.lost.merge(lost);
    }

    /// Which process it is of.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// When it began.
    #[must_use]
    pub fn started_at(&self) -> SystemTime {
        self.started_at
    }

    /// How long it was open.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How many stacks it holds.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.entries.values().sum()
    }

    /// Stacks of its process that were lost.
    #[must_use]
    pub fn lost(&self) -> Loss {
        self.lost
    }

    /// In what way its stacks are less than perfect.
    #[must_use]
    pub fn degraded(&self) -> Degraded {
        self.degraded
    }

    /// Bytes of memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entries: those of one period behind one another, of these those of one set of tags and one thread, of these those that were seen as often, by stack from its root
    /// on. Neighbours have much in common then. Stacks that are the same in a profile of this granularity are one, that of the first of them.
    #[must_use]
    pub fn entries(&self, granularity: Granularity) -> Vec<Entry<'_>> {
        let stacks: Vec<&[u32]> = self.stacks.values().into_iter().map(|stack| &**stack).collect();
        let (names, tags) = (self.names.values(), self.tags.values());
        let of_tags = places_by(tags.len(), |one, other| tags[*one].cmp(tags[*other]));
        let of_stacks = self.order_from_root(&stacks, granularity);
        let mut in_order: Vec<&[u32]> = vec![&[]; stacks.len()];
        stacks.iter().zip(&of_stacks).rev().for_each(|(stack, place)| in_order[*place as usize] = stack);
        let mut sums: Map<(u32, Key), u64> = Map::default();
        sums.reserve(self.entries.len());
        for (key, count) in &self.entries {
            *sums.entry((of_stacks[key.stack as usize], Key { stack: 0, ..*key })).or_default() += count;
        }
        let mut sorted: Vec<((u32, Key), u64)> = sums.into_iter().collect();
        sorted.sort_unstable_by_key(|((place, key), count)| {
            let tags = key.tags.map(|number| of_tags[number as usize]);
            (key.period_nanos, tags, key.tid, *count, *place, *key)
        });
        let entry = |((place, key), count): ((u32, Key), u64)| Entry {
            period_nanos: key.period_nanos,
            stack: in_order[place as usize].iter().map(|number| &self.locations[*number as usize]).collect(),
            tid: key.tid,
            name: names.get(key.name as usize).map_or("", |name| name),
            tags: key.tags.and_then(|set| tags.get(set as usize)).map(|tags| &***tags),
            span: key.span.map(|(trace_id, span_id)| Span { trace_id, span_id }),
            processor: key.processor,
            count,
        };
        sorted.into_iter().map(entry).collect()
    }

    /// Where each stack comes in the order of its places from the root's on; of those that were called by one, who calls others is first, and then the leaves.
    fn order_from_root(&self, stacks: &[&[u32]], granularity: Granularity) -> Vec<u32> {
        let place = |number: &usize| self.locations[*number].place(granularity);
        let rank = places_by(self.locations.len(), |one, other| place(one).cmp(&place(other)));
        paths::places(stacks.len(), |stack, depth| {
            let left = stacks[stack].len().checked_sub(depth + 1)?;
            Some((left == 0, rank[stacks[stack][left] as usize]))
        })
    }
}

/// Which place each of so many numbers has in an order; equal ones have the same.
fn places_by(count: usize, order: impl Fn(&usize, &usize) -> Ordering) -> Vec<u32> {
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_unstable_by(&order);
    let mut places = vec![0; count];
    for (place, equal) in (0..).zip(numbers.chunk_by(|one, other| order(one, other) == Ordering::Equal)) {
        equal.iter().for_each(|number| places[*number] = place);
    }
    places
}

/// The bytes that are taken, and how many may be.
struct Room<'a> {
    bytes: &'a mut usize,
    most: usize,
}

impl Room<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), Full> {
        let taken = self.bytes.checked_add(bytes).filter(|taken| *taken <= self.most).ok_or(Full)?;
        *self.bytes = taken;
        Ok(())
    }

    /// Whether fewer than so many eighths are taken.
    fn is_below(&self, eighths: usize) -> bool {
        *self.bytes <= self.most / 8 * eighths
    }
}

/// The numbers of a stack's locations.
fn locations(
    places: &mut Map<usize, u32>,
    all: &mut Vec<Arc<Location>>,
    stack: &Stack,
    room: &mut Room<'_>,
) -> Result<Box<[u32]>, Full> {
    let mut numbers = Vec::with_capacity(stack.frames.len());
    for location in stack.frames.iter() {
        let place = Arc::as_ptr(location).addr();
        let number = match places.get(&place) {
            Some(number) => *number,
            None => {
                room.take(VALUE_BYTES + location.bytes())?;
                let number = u32::try_from(all.len()).map_err(|_| Full)?;
                places.insert(place, number);
                all.push(Arc::clone(location));
                number
            }
        };
        numbers.push(number);
    }
    Ok(numbers.into())
}

/// The number of a value, which is added if there is room for so many bytes.
fn known_or<T, Q>(
    table: &mut Table<T>,
    value: &Q,
    owned: impl Fn(&Q) -> T,
    bytes: usize,
    room: &mut Room<'_>,
) -> Option<u32>
where
    T: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
{
    match table.find(value) {
        Some(number) => Some(number),
        None => {
            room.take(VALUE_BYTES + bytes).ok()?;
            table.add(owned(value))
        }
    }
}

fn tags_bytes(tags: &[(String, String)]) -> usize {
    tags.iter().map(|(key, value)| key.len() + value.len() + size_of::<(String, String)>()).sum()
}
