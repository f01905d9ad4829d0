//! Makes profiles of windows: the one place where the SDK builds a model.
//!
//! In: a [`Window`] of addresses and tags, the symbols, the resource. Out: a [`ProfileSet`] with one on-CPU
//! profile; of a window of the [`heap`], with its four. Runs on the `profiler-io` thread.

#[cfg(feature = "heap")]
mod allocator;
#[cfg(feature = "heap")]
mod heap;
mod places;
mod threads;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_proto::hash::Map;
use profiler_proto::loss::STACKS;
use profiler_proto::model::{
    AttributeId, AttributeSetId, Dictionary, Function, Kind, Line, Link, LinkId, Location, LocationId, Profile,
    ProfileSet, Sample, Scope, Stack, StackId, Value,
};
use profiler_proto::resource::Resource;

#[cfg(feature = "heap")]
pub(crate) use self::heap::assemble as assemble_heap;
pub(crate) use self::places::Granularity;
use self::places::Places;
use self::threads::ThreadLabels;
use crate::aggregate::{Entry, Window};
use crate::symbolize::Symbolizer;
use crate::unwind::frames::StackEnd;

/// Stands where frames between the leaf part and the root part of a deep stack were left out.
const GAP: &str = "[frames left out]";
/// Stands at the root of a stack whose walk ended before its root.
const STOPPED: &str = "[stack incomplete]";

/// The profile of `window`, whose symbols the symbolizer has learned.
pub(crate) fn assemble(
    window: &Window,
    symbolizer: &Symbolizer,
    resource: &Resource,
    granularity: Granularity,
) -> ProfileSet {
    let entries = window.entries();
    let places = Places::new(symbolizer, &window.eras, granularity);
    let mut assembly = Assembly::new(places, window.tags(), ThreadLabels::of(&entries));
    let kind = Kind::cpu(&mut assembly.dictionary, i64::try_from(window.period.as_nanos()).unwrap_or(i64::MAX));
    let attributes = assembly.profile_attributes(window);
    let samples = cpu_samples(&entries, &mut assembly, window.period);
    let (time_unix_nanos, duration_nanos) = nanos(window.started_at, window.duration);
    let profile = Profile { kind, time_unix_nanos, duration_nanos, attributes, samples };
    set_of(vec![profile], assembly.dictionary, resource)
}

/// A sample for each entry, in whole periods.
fn cpu_samples<'a>(entries: &[Entry<'a>], assembly: &mut Assembly<'a>, period: Duration) -> Vec<Sample> {
    // Where the rate changed, samples weigh periods of another length.
    let mut whole = Whole::of(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    let mut samples: Vec<_> =
        entries.iter().map(|entry| assembly.sample(entry, whole.units(entry.tally.nanos))).collect();
    if let Some(first) = samples.first_mut().filter(|_| whole.told == 0) {
        // All of it is less than half a period: the least that can be said.
        first.value = 1;
    }
    merged(samples.into_iter())
}

/// A start and a length as the model has them.
fn nanos(started_at: SystemTime, duration: Duration) -> (u64, u64) {
    let time = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    (whole(time), whole(duration))
}

fn set_of(profiles: Vec<Profile>, dictionary: Dictionary, resource: &Resource) -> ProfileSet {
    ProfileSet {
        resource: resource.clone(),
        scope: Scope { name: "profiler_sdk".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        dictionary,
        profiles,
    }
}

/// Adds up samples that differ only in what a profile does not show; one that stands for nothing is left out.
fn merged(samples: impl Iterator<Item = Sample>) -> Vec<Sample> {
    let mut places = Map::default();
    let mut merged: Vec<Sample> = Vec::new();
    for sample in samples {
        let place = *places.entry((sample.stack, sample.attributes, sample.link)).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(same) => same.value += sample.value,
            None => merged.push(sample),
        }
    }
    merged.retain(|sample| sample.value > 0);
    merged
}

struct Assembly<'a> {
    dictionary: Dictionary,
    places: Places<'a>,
    /// By tag set, thread and its name.
    labels: Map<(u32, u32, Option<&'a str>), AttributeSetId>,
    tags: Map<u32, Vec<(&'static str, String)>>,
    threads: ThreadLabels<'a>,
    /// The stack of the sample before: entries of one come one behind the other.
    last: Option<(&'a [u64], StackId)>,
}

/// A stack as it was taken.
#[derive(Debug, Clone, Copy)]
struct Path<'a> {
    /// Which of the eras its addresses are of.
    era: usize,
    /// Leaf first.
    addresses: &'a [u64],
    /// Frames were left out behind this many.
    gap_behind: Option<usize>,
    end: StackEnd,
    /// So many functions that are inlined at the leaf are not shown.
    hidden: usize,
}

/// Amounts in whole units, of which only all together are rounded: rounded each by itself, many small ones of a kind would be wrong
/// together.
#[derive(Debug)]
struct Whole {
    unit: u64,
    /// What was not a whole unit yet.
    left: u64,
    told: i64,
}

impl Whole {
    /// To the nearest.
    fn of(unit: u64) -> Self {
        Self::drawn(unit, unit / 2)
    }

    /// Up or down as `drawn` has it: where it is any number with the same chance, what is told is right on average, however little it is of.
    fn drawn(unit: u64, drawn: u64) -> Self {
        let unit = unit.max(1);
        Self { unit, left: drawn % unit, told: 0 }
    }

    /// The whole units in `amount` and what was left before; what is left goes to the next one.
    fn units(&mut self, amount: u64) -> i64 {
        self.left = self.left.saturating_add(amount);
        let units = i64::try_from(self.left / self.unit).unwrap_or(i64::MAX);
        self.left %= self.unit;
        self.told = self.told.saturating_add(units);
        units
    }
}

impl<'a> Assembly<'a> {
    fn new(places: Places<'a>, tags: Map<u32, Vec<(&'static str, String)>>, threads: ThreadLabels<'a>) -> Self {
        Self { dictionary: Dictionary::default(), places, labels: Map::default(), tags, threads, last: None }
    }

    fn sample(&mut self, entry: &Entry<'a>, value: i64) -> Sample {
        let stack = match self.last {
            Some((addresses, stack)) if std::ptr::eq(addresses, entry.addresses) => stack,
            _ => {
                let Entry { era, addresses, gap_behind, end, .. } = *entry;
                self.stack(&Path { era, addresses, gap_behind, end, hidden: 0 })
            }
        };
        self.last = Some((entry.addresses, stack));
        Sample {
            stack,
            attributes: self.labels(entry.tag_set, entry.tid, entry.thread_name),
            link: self.link(entry.trace_id, entry.span_id),
            value,
        }
    }

    fn stack(&mut self, path: &Path<'_>) -> StackId {
        let Path { era, addresses, gap_behind, end, mut hidden } = *path;
        let (leaf, root) = addresses.split_at(gap_behind.unwrap_or(addresses.len()).min(addresses.len()));
        let mut locations: Vec<LocationId> =
            leaf.iter().map(|address| self.location(era, *address, std::mem::take(&mut hidden))).collect();
        if gap_behind.is_some() {
            locations.push(self.marker(GAP));
        }
        locations.extend(root.iter().map(|address| self.location(era, *address, 0)));
        if end != StackEnd::Root {
            locations.push(self.marker(STOPPED));
        }
        self.dictionary.stacks.intern(Stack { locations: locations.into() })
    }

    fn location(&mut self, era: usize, address: u64, hidden: usize) -> LocationId {
        self.places.location(era, address, hidden, &mut self.dictionary)
    }

    /// A location that is no place in the code.
    fn marker(&mut self, name: &str) -> LocationId {
        let name = self.dictionary.strings.intern_str(name);
        let function = self.dictionary.functions.intern(Function { name, ..Function::default() });
        let lines = Box::new([Line { function, ..Line::default() }]);
        self.dictionary.locations.intern(Location { lines, ..Location::default() })
    }

    /// The tags, and the thread, of a sample. A tag of the user's goes before a label of ours with the same key.
    fn labels(&mut self, tag_set: u32, tid: u32, name: Option<&'a str>) -> AttributeSetId {
        if let Some(known) = self.labels.get(&(tag_set, tid, name)) {
            return *known;
        }
        let pairs = self.tags.get(&tag_set).map(Vec::as_slice).unwrap_or_default();
        let dictionary = &mut self.dictionary;
        let mut attributes: Vec<AttributeId> =
            pairs.iter().map(|(key, value)| dictionary.attribute(key, value.as_str())).collect();
        let of_thread = self.threads.labels(tid, name).filter(|(key, _)| !pairs.iter().any(|(known, _)| known == key));
        attributes.extend(of_thread.map(|(key, value)| dictionary.attribute(key, value)));
        let set = dictionary.attribute_set(attributes);
        self.labels.insert((tag_set, tid, name), set);
        set
    }

    fn link(&mut self, [high, low]: [u64; 2], span_id: u64) -> LinkId {
        if span_id == 0 {
            return LinkId::ZERO;
        }
        let trace_id = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        self.dictionary.links.intern(Link { trace_id, span_id: span_id.to_be_bytes() })
    }

    fn profile_attributes(&mut self, window: &Window) -> AttributeSetId {
        let stacks = Value::Int(i64::try_from(window.stacks()).unwrap_or(i64::MAX));
        let mut attributes = vec![self.dictionary.attribute(STACKS, stacks)];
        attributes.extend(window.lost.attributes(&mut self.dictionary));
        attributes.extend(window.degraded.attributes(&mut self.dictionary));
        self.dictionary.attribute_set(attributes)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::aggregate::Aggregate;
    use crate::context::Current;
    use crate::cpu::Sample as Taken;
    use crate::cpu::record::Head;
    use crate::unwind::modules::{Module, Modules};

    /// The samples of a window of 100 ns a period, whose stacks stand for so many nanoseconds.
    fn values(nanos: &[u32]) -> Vec<i64> {
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        let modules = &Arc::new(Modules::default());
        for (address, nanos) in (1..).zip(nanos) {
            let head = Head { weight: 1, period: *nanos, ..Head::default() };
            aggregate.add(&Taken { head, tags: &[], addresses: &[address], modules, thread_name: None }).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_nanos(100));
        let set = assemble(&window, &Symbolizer::new(None), &Resource::default(), Granularity::Lines);
        set.profiles[0].samples.iter().map(|sample| sample.value).collect()
    }

    /// Check that samples of other lengths than the period's are told in whole periods, to the nearest all in all, and that
    /// those of next to nothing are not told as nothing.
    #[test]
    fn time_is_told_in_whole_periods() {
        assert_eq!(values(&[100, 200]), [1, 2]);
        assert_eq!(values(&[149]).iter().chain(&values(&[151])).copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(values(&[40; 5]).iter().sum::<i64>(), 2);
        assert_eq!((values(&[10, 10]), values(&[])), (vec![1], vec![]));
    }

    /// Check that a profile of all that there is, spans, deep stacks and ends, places in two modules and in none, is compact as it is made: it is sent without a copy.
    #[test]
    fn what_is_made_is_compact() {
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        let modules =
            [(0x10_0000, "aa"), (0x20_0000, "bb")].map(|(start, build_id)| Module::at(start, build_id).into());
        let modules = Arc::new(Modules::of(modules.into(), (1, 0), false));
        let stacks: [&[u64]; 3] =
            [&[0x10_1001, 0x20_1001, 0x10_1002], &[0x20_1001, 7], &[0x10_1001, 0x10_1002, 0x20_1003, 7]];
        for (span_id, addresses) in (0..12).zip(stacks.into_iter().cycle()) {
            let (elided, leaf_frames) = if span_id % 3 == 2 { (9, 2) } else { (0, 0) };
            let end = if span_id % 2 == 0 { StackEnd::Root } else { StackEnd::Unknown };
            let context = Current { trace_id: [1, 2], span_id: span_id / 2, ..Current::default() };
            let head = Head { weight: 1, period: 1, tid: 7, elided, leaf_frames, end, context, ..Head::default() };
            let thread_name = Some("worker".into());
            let sample = Taken { head, tags: &[], addresses, modules: &modules, thread_name };
            aggregate.add(&sample).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_nanos(1));
        for granularity in [Granularity::Lines, Granularity::Addresses] {
            let set = assemble(&window, &Symbolizer::new(None), &Resource::default(), granularity);
            assert!(set.dictionary.links.len() > 4 && set.dictionary.locations.len() > 5);
            assert!(matches!(set.compact(), Cow::Borrowed(_)));
        }
    }

    /// Check that many small amounts are right together, in whichever unit.
    #[test]
    fn amounts_are_whole_together() {
        let told = |unit: u64, amounts: &[u64]| {
            let mut whole = Whole::of(unit);
            let told: i64 = amounts.iter().map(|amount| whole.units(*amount)).sum();
            assert_eq!(told, whole.told);
            told
        };
        // A thousand spans with a block of twice the interval each, which stands for 1.1565 of its kind.
        assert_eq!(told(1024, &[1184; 1000]), 1156);
        assert_eq!((told(1024, &[0; 9]), told(1024, &[511]), told(1024, &[512]), told(1, &[7, 0, 5])), (0, 0, 1, 12));
        assert_eq!(told(0, &[u64::MAX]), i64::MAX);
    }

    /// Check that an address at which there was one library, then another, then the first one again, is two places: each
    /// in its own library.
    #[test]
    fn one_address_in_two_libraries_is_two_places() {
        const ADDRESS: u64 = 0x10_1800;
        let mut aggregate = Aggregate::begin(Instant::now(), SystemTime::now());
        for build_id in ["aa", "bb", "aa"] {
            let modules = &Arc::new(Modules::only(Module::at(0x10_0000, build_id)));
            let head = Head { weight: 1, period: 1, ..Head::default() };
            let sample = Taken { head, tags: &[], addresses: &[ADDRESS], modules, thread_name: None };
            aggregate.add(&sample).unwrap();
        }
        let window = aggregate.end(Instant::now(), SystemTime::now(), Duration::from_nanos(1));
        let set = assemble(&window, &Symbolizer::new(None), &Resource::default(), Granularity::Lines);
        let dictionary = &set.dictionary;
        let library = |sample: &Sample| {
            let stack = dictionary.stacks.get(sample.stack).unwrap();
            let location = dictionary.locations.get(stack.locations[0]).unwrap();
            let mapping = dictionary.mappings.get(location.mapping).unwrap();
            let (_, build_id) = dictionary.attributes_of(mapping.attributes).next().unwrap();
            (location.address, build_id.clone(), sample.value)
        };
        let mut places: Vec<_> = set.profiles[0].samples.iter().map(library).collect();
        places.sort_by_key(|(.., value)| *value);
        assert_eq!(places, [(ADDRESS, Value::from("bb"), 1), (ADDRESS, Value::from("aa"), 2)]);
    }
}
