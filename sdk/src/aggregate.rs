//! Adds up equal samples of one window of time.
//!
//! In: records from the ring, on the `profiler` thread. Out: a [`Window`], handed to the `profiler-io` thread, in which
//! every distinct stack stands once for each context and thread, with its count and weight. Bounded in bytes: where there is
//! little room left, samples lose what tells them apart; what does not fit then is refused and noted as lost.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use profiler_proto::hash::Map;
use profiler_proto::loss::{Cause, Degraded, Flaw, Loss};

use crate::context::attributes::pairs;
use crate::context::tags::texts;
use crate::context::{Current, keys};
use crate::cpu::Sample;
use crate::cpu::record::Head;
use crate::unwind::eras::{Eras, places};
use crate::unwind::frames::StackEnd;
use crate::unwind::modules::Modules;

/// Most bytes of distinct stacks in one window.
const MAX_BYTES: usize = 8 << 20;
/// Most distinct sets of tags in one window; beyond, samples say `profiler.tags = overflow`.
const MAX_SETS: usize = 16_384;
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

    /// How long this window is open.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now - self.started
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
    if head.end == StackEnd::Stopped {
        degraded.add(Flaw::UnwindStopped, 1);
    }
    if lacks_context {
        degraded.add(Flaw::NoContext, 1);
    }
    if head.scaled {
        degraded.add(Flaw::Scaled, 1);
    }
    degraded
}

/// The samples of a window that has ended.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) started_at: SystemTime,
    pub(crate) duration: Duration,
    /// CPU time between samples.
    pub(crate) period: Duration,
    pub(crate) lost: Loss,
    pub(crate) degraded: Degraded,
    /// What the addresses of each era are in.
    pub(crate) eras: Vec<Arc<Modules>>,
    stacks: Map<Box<[u64]>, u32>,
    entries: Map<Key, Tally>,
    tag_sets: Map<Box<[u8]>, u32>,
    threads: Map<u32, Named>,
    names: Map<Arc<str>, u32>,
}

/// A distinct stack in one context on one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// Number of its set of tags: see [`Window::tags`].
    pub(crate) tag_set: u32,
    pub(crate) trace_id: [u64; 2],
    /// 0: none.
    pub(crate) span_id: u64,
    /// 0: not known.
    pub(crate) tid: u32,
    /// What the thread was called, where that is known.
    pub(crate) thread_name: Option<&'a str>,
    pub(crate) end: StackEnd,
    /// Which of the window's eras its addresses are of.
    pub(crate) era: usize,
    /// Leaf first.
    pub(crate) addresses: &'a [u64],
    /// Frames were left out behind this many.
    pub(crate) gap_behind: Option<usize>,
    pub(crate) tally: Tally,
}

impl Window {
    /// How many stacks there are in all.
    pub(crate) fn stacks(&self) -> u64 {
        self.entries.values().map(|tally| tally.count).sum()
    }

    /// The entries in an order that does not depend on the maps'.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let mut stacks: Vec<&[u64]> = vec![&[]; self.stacks.len()];
        self.stacks.iter().for_each(|(words, number)| stacks[*number as usize] = words);
        let mut names: Vec<&str> = vec![""; self.names.len() + 1];
        self.names.iter().for_each(|(name, number)| names[*number as usize] = name);
        let mut sorted: Vec<_> = self.entries.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| (stacks[key.stack as usize], **key));
        let entries = sorted.into_iter().filter_map(|(key, tally)| {
            let (shape, addresses) = stacks[key.stack as usize].split_first()?;
            let head = Head::of_shape(*shape);
            let Key { tid, tag_set, trace_id, span_id, .. } = *key;
            let gap_behind = (head.elided > 0).then_some(usize::from(head.leaf_frames));
            // The name that became known first has been the thread's all along, as far as anybody knows.
            let known_later = || self.threads.get(&tid).map_or(0, |named| named.first);
            let name = if key.name == 0 { known_later() } else { key.name };
            let thread_name = (name != 0).then(|| names[name as usize]);
            let (end, era) = (head.end, (*shape >> Head::SHAPE_BITS) as usize);
            Some(Entry { tag_set, trace_id, span_id, tid, thread_name, end, era, addresses, gap_behind, tally: *tally })
        });
        entries.collect()
    }

    /// The sets of tags, by number.
    pub(crate) fn tags(&self) -> Map<u32, Vec<(&'static str, String)>> {
        let sets = self.tag_sets.iter().map(|(bytes, number)| (*number, texts(bytes).collect()));
        let overflow = keys::text(keys::OF_TAGS).map(|key| (key, BEYOND.to_owned()));
        sets.chain([(NO_TAGS, Vec::new()), (OVERFLOW, overflow.into_iter().collect())]).collect()
    }

    /// Every distinct address of each era, with what it is in.
    pub(crate) fn places(&self) -> Vec<(Vec<u64>, &Modules)> {
        let stacks = self.stacks.keys().filter_map(|words| words.split_first());
        places(&self.eras, stacks.map(|(shape, addresses)| ((*shape >> Head::SHAPE_BITS) as usize, addresses)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u32 = 10_000_000;

    fn window(samples: &[(Head, &[u8], &[u64])]) -> (Window, usize) {
        let modules = Arc::new(Modules::default());
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        let mut add = |(head, tags, addresses): &(Head, &[u8], &[u64])| {
            let thread_name = (head.tid == 7).then(|| "worker".into());
            aggregate.add(&Sample { head: *head, tags, addresses, modules: &modules, thread_name })
        };
        let refused = samples.iter().filter(|sample| add(sample).is_err()).count();
        (aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10)), refused)
    }

    /// Check that equal stacks of one thread under equal tags are added up and others are kept apart.
    #[test]
    fn equal_samples_are_added_up() {
        let head = |weight, epoch, tid| Head { weight, epoch, tid, period: PERIOD, ..Head::default() };
        let samples: [(Head, &[u8], &[u64]); 5] = [
            (head(1, 0, 7), &[1, 0], &[10, 20]),
            (head(3, 1, 7), &[1, 0], &[10, 20]),
            (head(1, 0, 7), &[], &[10, 20]),
            (head(1, 0, 7), &[1, 0], &[10]),
            (head(1, 0, 8), &[1, 0], &[10]),
        ];
        let (window, refused) = window(&samples);
        let periods = |entry: &Entry<'_>| (entry.tally.count, entry.tally.nanos / u64::from(PERIOD));
        let tallies: Vec<_> = window.entries().iter().map(periods).collect();
        let sum = tallies.iter().fold((0, 0), |sum, tally| (sum.0 + tally.0, sum.1 + tally.1));
        assert_eq!((sum, tallies.len(), refused), ((5, 7), 4, 0));
        assert!(tallies.contains(&(2, 4)));
        let places: Vec<_> = window.places().into_iter().map(|(addresses, _)| addresses).collect();
        assert_eq!((window.stacks(), places), (5, vec![vec![10, 20]]));
        let named = |entry: &Entry<'_>| (entry.thread_name == Some("worker")) == (entry.tid == 7);
        assert!(window.entries().iter().all(named));
    }

    /// Check that a thread's samples keep the name that it had, and that a name found out later holds for those before it.
    #[test]
    fn a_renamed_thread_keeps_its_earlier_name_on_earlier_samples() {
        let modules = Arc::new(Modules::default());
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        for (address, name) in [(1, None), (2, Some("first")), (3, Some("second")), (4, None), (5, Some("third"))] {
            let head = Head { tid: 7, weight: 1, ..Head::default() };
            let thread_name = name.map(Into::into);
            aggregate.add(&Sample { head, tags: &[], addresses: &[address], modules: &modules, thread_name }).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10));
        let names: Vec<_> = window.entries().iter().map(|entry| entry.thread_name.unwrap()).collect();
        assert_eq!(names, ["first", "first", "second", "second", "third"]);
        assert_eq!(window.names.len(), 3);
    }

    /// Check that equal addresses are kept apart where they were in different libraries, and added up where they were not.
    #[test]
    fn equal_addresses_of_different_libraries_are_kept_apart() {
        let library = |build_id: &str| Arc::new(Modules::only(crate::unwind::modules::Module::at(0x10_0000, build_id)));
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        for build_id in ["aa", "bb", "aa"] {
            let (head, modules) = (Head { weight: 1, elided: 3, ..Head::default() }, &library(build_id));
            let sample = Sample { head, tags: &[], addresses: &[0x10_1800], modules, thread_name: None };
            aggregate.add(&sample).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_millis(10));
        let library = |modules: &Modules| modules.find(0x10_1800).unwrap().build_id.clone().unwrap();
        let of = |entry: &Entry<'_>| (library(&window.eras[entry.era]), entry.tally.count, entry.gap_behind);
        let entries: Vec<_> = window.entries().iter().map(of).collect();
        assert_eq!(entries, [("aa".to_owned(), 2, Some(0)), ("bb".to_owned(), 1, Some(0))]);
        let places: Vec<_> = window.places().into_iter().map(|(all, modules)| (all, library(modules))).collect();
        assert_eq!(places, [(vec![0x10_1800], "aa".to_owned()), (vec![0x10_1800], "bb".to_owned())]);
    }

    /// Check that memory is bounded and that what is beyond is refused.
    #[test]
    fn a_full_window_refuses() {
        let stacks: Vec<Vec<u64>> = (0..3000).map(|n| vec![n; 512]).collect();
        let samples: Vec<_> =
            stacks.iter().map(|stack| (Head { weight: 1, ..Head::default() }, &[][..], stack.as_slice())).collect();
        let (window, refused) = window(&samples);
        let kept = (MAX_BYTES - THREAD_BYTES) / (513 * 8 + STACK_BYTES + ENTRY_BYTES);
        assert_eq!((window.stacks() as usize, refused), (kept, 3000 - kept));
        assert_eq!(window.lost.count(Cause::AggregateFull) as usize, refused, "and a profile says so");
    }

    /// Check that requests without number, each with its span, fill a window only so far: further samples of the same stack lose their
    /// links and keep their tags, and this is counted, rather than being lost; others are as they would be.
    #[test]
    fn spans_without_number_lose_no_samples() {
        let head = |span_id| Head {
            weight: 1,
            context: Current { trace_id: [span_id; 2], span_id, ..Current::default() },
            ..Head::default()
        };
        let samples = (1..100_001).map(|span| (head(span), &[1, 1, b'a'][..], &[1][..]));
        let plain = (0..1000).map(|_| (head(0), &[][..], &[2][..]));
        let (window, refused) = window(&samples.chain(plain).collect::<Vec<_>>());
        let (linked, others): (Vec<_>, Vec<_>) = window.entries().into_iter().partition(|entry| entry.span_id != 0);
        let others: Vec<_> = others.iter().map(|entry| (entry.tag_set, entry.trace_id, entry.tally.count)).collect();
        assert!(linked.len().abs_diff(MAX_LINKED / ENTRY_BYTES) < 10, "{}", linked.len());
        let unlinked = 100_000 - linked.len() as u64;
        assert_eq!(others, [(1, [0; 2], unlinked), (NO_TAGS, [0; 2], 1000)]);
        assert_eq!((refused, window.stacks()), (0, 101_000));
        assert_eq!(window.degraded.count(Flaw::NoContext), unlinked);
    }

    /// Check that many tags at many stacks fill a window only so far: further samples say that they lack theirs.
    #[test]
    fn tags_at_many_stacks_lose_no_samples() {
        let head = Head { weight: 1, ..Head::default() };
        let tags: Vec<[u8; 4]> = (0..1000_u16).map(|tag| [1, 2, tag.to_le_bytes()[0], tag.to_le_bytes()[1]]).collect();
        let stacks: Vec<[u64; 1]> = (1..=100).map(|stack| [stack]).collect();
        let samples = tags.iter().flat_map(|tags| stacks.iter().map(move |stack| (head, &tags[..], &stack[..])));
        let (window, refused) = window(&samples.collect::<Vec<_>>());
        let entries = window.entries();
        let beyond: Vec<_> = entries.iter().filter(|entry| entry.tag_set == OVERFLOW).collect();
        let beyond_samples: u64 = beyond.iter().map(|entry| entry.tally.count).sum();
        assert!((MAX_TAGGED / ENTRY_BYTES).abs_diff(entries.len()) < 3000, "{}", entries.len());
        assert_eq!((beyond.len(), refused, window.stacks()), (stacks.len(), 0, 100_000));
        assert_eq!((window.degraded.count(Flaw::NoContext), beyond_samples > 10_000), (beyond_samples, true));
    }

    /// Check that sets of tags are bounded, that those beyond share one, and that this is said of each sample.
    #[test]
    fn sets_of_tags_are_bounded() {
        let sets: Vec<[u8; 6]> = (0..MAX_SETS as u32 + 10)
            .map(|number| {
                let [a, b, c, d] = number.to_ne_bytes();
                [0, 4, a, b, c, d]
            })
            .collect();
        let samples: Vec<_> =
            sets.iter().map(|set| (Head { weight: 1, ..Head::default() }, &set[..], &[1][..])).collect();
        let (window, refused) = window(&samples);
        assert_eq!((window.degraded.count(Flaw::NoContext), refused, window.tags().len()), (10, 0, MAX_SETS + 2));
        let beyond: Vec<_> = window.entries().into_iter().filter(|entry| entry.tag_set == OVERFLOW).collect();
        assert_eq!((beyond.len(), beyond[0].tally.count), (1, 10));
        assert_eq!(window.tags()[&OVERFLOW], [("profiler.tags", "overflow".to_owned())]);
    }

    /// Check that it is also said of samples whose tags a thread's record had no room for, alone and below others.
    #[test]
    fn tags_beyond_a_threads_bound_are_counted() {
        let head = Head { weight: 1, ..Head::default() };
        let sets: [&[u8]; 5] = [b"\0\x08overflow", b"\x01\x01a\0\x08overflow", b"\x01\x08overflow", b"\0\x01a", b""];
        let (window, _) = window(&sets.map(|set| (head, set, &[1][..])));
        assert_eq!((window.degraded.count(Flaw::NoContext), window.stacks()), (2, 5));
    }
}
