//! Adds up equal samples of one window of time.
//!
//! In: records from the ring, on the `profiler` thread. Out: a [`Window`], handed to the `profiler-io` thread, in which
//! every distinct stack stands once for each context and thread, with its count and weight. Bounded in bytes: where there is
//! little room left, samples lose what tells them apart; what does not fit then is refused and noted as lost.

#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use profiler_proto::hash::Map;
use profiler_proto::loss::{Cause, Degraded, Flaw, Loss};

use crate::context::attributes::pairs;
use crate::context::{Current, keys};
use crate::cpu::Sample;
use crate::cpu::record::Head;
use crate::unwind::eras::Eras;
use crate::unwind::frames::StackEnd;

pub(crate) use self::window::{Entry, Window};

/// Most bytes of distinct stacks in one window.
const MAX_BYTES: usize = 8 << 20;
/// Most distinct sets of tags in one window; beyond, samples say `profiler.tags = overflow`.
const MAX_SETS: usize = 16_384;
/// From so many bytes on a window may end before its time, so that none of what follows applies to many samples.
const MAX_CALM: usize = MAX_BYTES / 2;
/// The least part of its time that a window has then: so much more often than asked for is sent at most.
const MOST_EARLY: u32 = 10;
/// Most bytes with which samples still have entries of their own for their spans. Beyond, they have no link, so that fewer are lost.
const MAX_LINKED: usize = MAX_BYTES / 4 * 3;
/// Most bytes with which they still have them for their tags. Beyond, they say `overflow`.
const MAX_TAGGED: usize = MAX_BYTES / 8 * 7;
/// Number of the empty set, and of the one beyond the bound.
const NO_TAGS: u32 = 0;
const OVERFLOW: u32 = u32::MAX;
/// What `profiler.tags` says of tags beyond a bound, here and in `context::scopes`.
const BEYOND: &str = "overflow";
/// What a stack costs beside its words: the key's pointer and length, its number, the map's control byte and slack.
const STACK_BYTES: usize = 48;
/// What an entry costs, the map's control byte and slack included.
const ENTRY_BYTES: usize = 2 * (size_of::<Key>() + size_of::<Tally>());
/// What a thread costs.
const THREAD_BYTES: usize = 64;

/// Samples of one window of time.
#[derive(Debug)]
pub(crate) struct Aggregate {
    /// By shape with the number of its era above it, and addresses: the number of the stack.
    stacks: Map<Box<[u64]>, u32>,
    entries: Map<Key, Tally>,
    /// By their bytes: the number of the set, from 1.
    tag_sets: Map<Box<[u8]>, u32>,
    threads: Map<u32, Named>,
    /// Names of threads: the number of each, from 1.
    names: Map<Arc<str>, u32>,
    bytes: usize,
    /// The stack that is looked up.
    words: Vec<u64>,
    started: Instant,
    started_at: SystemTime,
    lost: Loss,
    degraded: Degraded,
    eras: Eras,
}

/// What tells samples apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    stack: u32,
    tid: u32,
    /// Number of the thread's name when the sample was taken in; 0: not known then.
    name: u32,
    tag_set: u32,
    trace_id: [u64; 2],
    span_id: u64,
}

/// What a thread was called.
#[derive(Debug, Clone, Default)]
struct Named {
    /// Last.
    name: Option<Arc<str>>,
    number: u32,
    /// First: the number of that name; 0: none so far.
    first: u32,
}

/// How often a stack was seen in one context on one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Stacks.
    pub(crate) count: u64,
    /// Nanoseconds of CPU time that they stand for.
    pub(crate) nanos: u64,
}

/// The window holds as much as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Aggregate {
    /// An empty window that begins now.
    pub(crate) fn begin(now: Instant, now_at: SystemTime) -> Self {
        Self {
            stacks: Map::default(),
            entries: Map::default(),
            tag_sets: Map::default(),
            threads: Map::default(),
            names: Map::default(),
            bytes: 0,
            words: Vec::new(),
            started: now,
            started_at: now_at,
            lost: Loss::default(),
            degraded: Degraded::default(),
            eras: Eras::default(),
        }
    }

    /// Adds one sample; what is less than perfect about it. One for which there is no room is noted as lost.
    pub(crate) fn add(&mut self, sample: &Sample<'_>) -> Result<Degraded, Full> {
        self.try_add(sample).inspect_err(|Full| self.lost.add(Cause::AggregateFull, 1))
    }

    fn try_add(&mut self, sample: &Sample<'_>) -> Result<Degraded, Full> {
        let head = &sample.head;
        let stack = self.stack(sample)?;
        let name = self.name(head.tid, sample.thread_name.as_ref())?;
        let tag_set = self.tag_set(sample.tags);
        let Current { trace_id, span_id, .. } = head.context;
        let mut key = Key { stack, tid: head.tid, name, tag_set, trace_id, span_id };
        if self.bytes > MAX_LINKED && !self.entries.contains_key(&key) {
            (key.trace_id, key.span_id) = ([0; 2], 0);
        }
        if self.bytes > MAX_TAGGED && tag_set != NO_TAGS && !self.entries.contains_key(&key) {
            key.tag_set = OVERFLOW;
        }
        if !self.entries.contains_key(&key) {
            self.take(ENTRY_BYTES)?;
        }
        let tally = self.entries.entry(key).or_default();
        tally.count += 1;
        tally.nanos += u64::from(head.weight) * u64::from(head.period);
        let lacks_context = key.tag_set == OVERFLOW || key.span_id != span_id || are_beyond(sample.tags);
        let flaws = flaws(head, lacks_context);
        self.degraded.merge(&flaws);
        Ok(flaws)
    }

    /// The number of a set of tags.
    fn tag_set(&mut self, tags: &[u8]) -> u32 {
        if tags.is_empty() {
            return NO_TAGS;
        }
        if let Some(number) = self.tag_sets.get(tags) {
            return *number;
        }
        if self.tag_sets.len() >= MAX_SETS || self.bytes > MAX_TAGGED || self.take(tags.len() + STACK_BYTES).is_err() {
            return OVERFLOW;
        }
        let number = self.tag_sets.len() as u32 + 1;
        self.tag_sets.insert(tags.into(), number);
        number
    }

    /// The number of a stack.
    fn stack(&mut self, sample: &Sample<'_>) -> Result<u32, Full> {
        let era = self.eras.of(sample.modules) as u64;
        self.words.clear();
        self.words.push(sample.head.shape() | era << Head::SHAPE_BITS);
        self.words.extend_from_slice(sample.addresses);
        if let Some(number) = self.stacks.get(self.words.as_slice()) {
            return Ok(*number);
        }
        self.take(size_of_val(self.words.as_slice()) + STACK_BYTES)?;
        let number = u32::try_from(self.stacks.len()).map_err(|_| Full)?;
        self.stacks.insert(self.words.as_slice().into(), number);
        Ok(number)
    }

    /// The number of a thread's name, which is the last one known where it cannot be had any more.
    fn name(&mut self, tid: u32, name: Option<&Arc<str>>) -> Result<u32, Full> {
        let first = match self.threads.get(&tid) {
            Some(known) if known.name.as_ref() == name || name.is_none() => return Ok(known.number),
            Some(known) => known.first,
            None => {
                self.take(THREAD_BYTES)?;
                0
            }
        };
        let number = name.map(|name| self.name_number(name)).transpose()?.unwrap_or(0);
        let first = if first == 0 { number } else { first };
        self.threads.insert(tid, Named { name: name.cloned(), number, first });
        Ok(number)
    }

    fn name_number(&mut self, name: &Arc<str>) -> Result<u32, Full> {
        if let Some(number) = self.names.get(name) {
            return Ok(*number);
        }
        self.take(name.len() + STACK_BYTES)?;
        let number = self.names.len() as u32 + 1;
        self.names.insert(Arc::clone(name), number);
        Ok(number)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Full> {
        if self.bytes + bytes > MAX_BYTES {
            return Err(Full);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Notes what was lost while this window was open.
    pub(crate) fn lose(&mut self, lost: &Loss) {
        self.lost.merge(lost);
    }

    /// Ends the window; the next one begins at once.
    pub(crate) fn end(&mut self, now: Instant, now_at: SystemTime, period: Duration) -> Window {
        let ended = std::mem::replace(self, Self::begin(now, now_at));
        Window {
            duration: now - ended.started,
            started_at: ended.started_at,
            period,
            stacks: ended.stacks,
            entries: ended.entries,
            tag_sets: ended.tag_sets,
            threads: ended.threads,
            names: ended.names,
            lost: ended.lost,
            degraded: ended.degraded,
            eras: ended.eras.into_modules(),
        }
    }

    /// How many stacks there are so far.
    pub(crate) fn stacks(&self) -> u64 {
        self.entries.values().map(|tally| tally.count).sum()
    }

    /// Whether it is time to end this window, of which there shall be one per `interval`: or sooner, where it fills up.
    pub(crate) fn is_due(&self, now: Instant, interval: Duration) -> bool {
        let least = if self.bytes > MAX_CALM { interval / MOST_EARLY } else { interval };
        now.saturating_duration_since(self.started) >= least
    }
}

/// Whether tags say that there are others which a thread's record had no room for.
fn are_beyond(tags: &[u8]) -> bool {
    pairs(tags).any(|tag| tag == (keys::OF_TAGS, BEYOND.as_bytes()))
}

/// What is less than perfect about a sample.
fn flaws(head: &Head, lacks_context: bool) -> Degraded {
    let mut degraded = Degraded::default();
    if head.elided > 0 || head.end == StackEnd::TooDeep {
        degraded.add(Flaw::Truncated, 1);
    }
    if let Some(why) = why_stopped(head.end) {
        degraded.add(Flaw::UnwindStopped, 1);
        degraded.add(why, 1);
    }
    if lacks_context {
        degraded.add(Flaw::NoContext, 1);
    }
    if head.scaled {
        degraded.add(Flaw::Scaled, 1);
    }
    degraded
}

/// Why the walk of a stack ended before its root, where it did.
fn why_stopped(end: StackEnd) -> Option<Flaw> {
    match end {
        StackEnd::Root | StackEnd::TooDeep => None,
        StackEnd::Unknown => Some(Flaw::UnwindUnknown),
        StackEnd::Unreadable => Some(Flaw::UnwindUnreadable),
        StackEnd::InDoubt => Some(Flaw::UnwindInDoubt),
    }
}
