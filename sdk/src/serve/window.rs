//! What is known of a range of time before any tag is asked for: when, how long, how many stacks, which tags.
//!
//! In: the sets of the store, of which one type is looked at. Out: figures, and the tags and traces that can be chosen, with their weights.
//! Bounded: at most [`MOST_KEYS`] keys with [`MOST_VALUES`] values each, and [`MOST_TRACES`] traces.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::model::{AttributeSetId, Id, Link, TagFilter, Value};
use profiler_proto::{Profile, ProfileSet, Sample};

use super::evidence::Evidence;
use super::process::Process;
use super::sample_type::SampleType;
use super::weight::{finest, weighted};

/// The most keys of tags that are listed.
const MOST_KEYS: usize = 100;
/// The most values of one key that are listed.
const MOST_VALUES: usize = 200;

/// The most traces that are listed, and that are counted to find the heaviest.
const MOST_TRACES: usize = 50;
const COUNTED_TRACES: usize = 100_000;
/// The key that traces are listed under; a tag of this name is among them.
const TRACE: &str = "trace_id";

/// Of no use as a choice: threads come and go, and their names are a tag of their own; spans are many, and traces are listed.
const NOT_LISTED: [&str; 2] = ["thread.id", "span_id"];

/// The figures of a range of time.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) sample_type: SampleType,
    /// Start of the first profile, nanoseconds since 1970 UTC; of a state, its moment.
    pub(super) first: Option<u64>,
    /// End of the last one.
    pub(super) last: Option<u64>,
    /// Sum of the profiles' durations in nanoseconds, of the process that was profiled longest; a state has none.
    pub(super) duration: u64,
    /// Nanoseconds of CPU time for each unit of weight, or bytes between samples of the heap; the finest of all profiles.
    pub(super) period: Option<i64>,
    pub(super) evidence: Evidence,
    /// Values seen with their weights, by key, in order.
    pub(super) tags: BTreeMap<String, Vec<(String, u64)>>,
    /// Whether there are more than are listed.
    pub(super) tags_cut: bool,
}

impl Window {
    /// The figures of the profiles of one type in `sets`; of states, how they are at their moments.
    pub(super) fn of<'a>(sample_type: SampleType, sets: impl Iterator<Item = &'a ProfileSet> + Clone) -> Self {
        Self::with_time(sample_type, !sample_type.is_state(), sets)
    }

    /// The same for what changed between `states`.
    pub(super) fn of_change<'a>(
        sample_type: SampleType,
        change: impl Iterator<Item = &'a ProfileSet> + Clone,
        states: impl Iterator<Item = &'a ProfileSet>,
    ) -> Self {
        let mut window = Self::with_time(sample_type, true, change);
        window.evidence.vary_as(sample_type, states);
        window
    }

    fn with_time<'a>(
        sample_type: SampleType,
        over_time: bool,
        sets: impl Iterator<Item = &'a ProfileSet> + Clone,
    ) -> Self {
        let (first, last, duration, period) = (None, None, 0, finest(sample_type, sets.clone()));
        let (evidence, tags, tags_cut) = (Evidence::default(), BTreeMap::new(), false);
        let mut window = Self { sample_type, first, last, duration, period, evidence, tags, tags_cut };
        let (mut seen, mut traces, mut times) = (HashMap::new(), HashMap::new(), HashMap::new());
        for set in sets {
            for profile in sample_type.profiles(set) {
                let spent = window.count(profile, over_time);
                let time: &mut u64 = times.entry(Process::of(set)).or_default();
                *time = time.saturating_add(spent);
                window.evidence.add(sample_type, profile, set, period);
                collect_tags(set, profile, period, &mut seen);
                collect_traces(set, profile, period, &mut traces);
            }
        }
        // Processes run beside each other.
        window.duration = times.into_values().max().unwrap_or(0);
        window.list(seen);
        window.list_traces(traces);
        window
    }

    /// What a unit of weight adds to the sum of squared weights: see [`Evidence::mean_weight`].
    pub(super) fn mean_weight(&self) -> f64 {
        self.evidence.mean_weight(self.sample_type)
    }

    /// Takes in the time of a profile; gives how long it was.
    fn count(&mut self, profile: &Profile, over_time: bool) -> u64 {
        let end = profile.end_unix_nanos();
        let start = if over_time { profile.time_unix_nanos } else { end };
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.last = Some(self.last.map_or(end, |last| last.max(end)));
        end - start
    }

    /// Lists the heaviest traces, the heaviest first.
    fn list_traces(&mut self, seen: HashMap<[u8; 16], u64>) {
        let mut traces: Vec<([u8; 16], u64)> = seen.into_iter().collect();
        traces.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let named = traces.into_iter().take(MOST_TRACES).filter_map(|(trace_id, weight)| {
            let link = Link { trace_id, ..Link::default() };
            Some((link.trace()?, weight))
        });
        let named: Vec<(String, u64)> = named.collect();
        if !named.is_empty() {
            self.tags.entry(TRACE.to_owned()).or_default().extend(named);
        }
    }

    /// Lists the heaviest values of each key, in order.
    fn list(&mut self, seen: Seen<'_>) {
        let mut keys: Vec<_> = seen.into_iter().collect();
        keys.sort_unstable_by(|a, b| a.0.cmp(b.0));
        self.tags_cut = keys.len() > MOST_KEYS;
        for (key, values) in keys.into_iter().take(MOST_KEYS) {
            let mut values: Vec<(String, u64)> = values.into_iter().collect();
            values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            self.tags_cut |= values.len() > MOST_VALUES;
            values.truncate(MOST_VALUES);
            values.sort_unstable();
            self.tags.insert(key.to_owned(), values);
        }
    }
}

/// The weight of the samples that `filter` keeps, by their value of the tag `key`; `None` where they have none.
pub(super) fn weights_by<'a>(
    key: &str,
    sample_type: SampleType,
    filter: &TagFilter,
    sets: impl Iterator<Item = &'a ProfileSet> + Clone,
) -> HashMap<Option<String>, u64> {
    let (mut weights, finest) = (HashMap::new(), finest(sample_type, sets.clone()));
    for set in sets {
        let keeps = filter.of(&set.dictionary);
        let samples = sample_type.profiles(set).flat_map(|profile| weighted(profile, set, finest));
        for (id, weight) in weights_of(set, samples.filter(|(sample, _)| keeps(sample))) {
            let value = set.dictionary.value_of(id, key).map(Value::to_string);
            add(weights.entry(value).or_default(), weight);
        }
    }
    weights
}

/// By key and value: the weight.
type Seen<'a> = HashMap<&'a str, HashMap<String, u64>>;

fn collect_tags<'a>(set: &'a ProfileSet, profile: &Profile, finest: Option<i64>, seen: &mut Seen<'a>) {
    for (id, weight) in weights_of(set, weighted(profile, set, finest)) {
        for (key, value) in set.dictionary.attributes_of(id).filter(|(key, _)| !NOT_LISTED.contains(key)) {
            add(seen.entry(key).or_default().entry(value.to_string()).or_default(), weight);
        }
    }
}

/// Adds the weights of traces by their ids, of not more than can be counted.
fn collect_traces(set: &ProfileSet, profile: &Profile, finest: Option<i64>, seen: &mut HashMap<[u8; 16], u64>) {
    let mut weights = vec![0; set.dictionary.links.len()];
    for (sample, weight) in weighted(profile, set, finest) {
        weights.get_mut(sample.link.index() as usize).into_iter().for_each(|sum| add(sum, weight));
    }
    for (link, weight) in set.dictionary.links.iter().zip(weights) {
        let is_known = seen.len() < COUNTED_TRACES || seen.contains_key(&link.trace_id);
        if weight > 0 && is_known && link.trace_id != [0; 16] {
            add(seen.entry(link.trace_id).or_default(), weight);
        }
    }
}

fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

/// The weight of samples by their attributes, where it is not zero.
fn weights_of<'a>(
    set: &ProfileSet,
    samples: impl Iterator<Item = (&'a Sample, u64)>,
) -> impl Iterator<Item = (AttributeSetId, u64)> {
    let mut weights = vec![0; set.dictionary.attribute_sets.len()];
    for (sample, weight) in samples {
        weights.get_mut(sample.attributes.index() as usize).into_iter().for_each(|sum| add(sum, weight));
    }
    let ids = (0..=u32::MAX).map(AttributeSetId::from_index);
    ids.zip(weights).filter(|(_, weight)| *weight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{PERIOD, Stacks};

    fn cpu<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>) -> Window {
        let sets: Vec<&ProfileSet> = sets.into_iter().collect();
        Window::of(SampleType::Cpu, sets.into_iter())
    }

    /// Check that times, stacks and weights are summed.
    #[test]
    fn figures_are_summed() {
        let sets = [
            Stacks::new().at(1000, 10).stacks(3).sample("a", 3).set(),
            Stacks::new().at(1010, 10).stacks(4).sample("a", 6).set(),
        ];
        let window = cpu(&sets);
        assert_eq!((window.first, window.last), (Some(1_000_000_000_000), Some(1_020_000_000_000)));
        assert_eq!((window.evidence.stacks(), window.evidence.weight(), window.duration), (7, 9, 20_000_000_000));
        assert_eq!((window.period, window.mean_weight()), (Some(PERIOD), 9.0 / 7.0));
        assert_eq!(cpu([]).first, None);
    }

    /// Check that a state has a moment and no length, and that what was allocated and what changed have one.
    #[test]
    fn a_state_has_a_moment() {
        let set = Stacks::new().at(1000, 10).sample("a", 4096).heap();
        let times = |window: Window| (window.first, window.last, window.duration);
        let (start, end) = (Some(1_000_000_000_000), Some(1_010_000_000_000));
        assert_eq!(times(Window::of(SampleType::InuseSpace, [&set].into_iter())), (end, end, 0));
        assert_eq!(times(Window::of(SampleType::AllocSpace, [&set].into_iter())), (start, end, 10_000_000_000));
        assert_eq!(
            times(Window::of_change(SampleType::InuseSpace, [&set].into_iter(), std::iter::empty())),
            (start, end, 10_000_000_000)
        );
    }

    /// Check that tags are listed in order, and that the lightest beyond the bound are left out and said to be.
    #[test]
    fn tags_are_listed_and_bounded() {
        let mut stacks = Stacks::new().tagged("a", 1, &[("method", "GET"), ("thread.id", "7")]);
        stacks = (0..MOST_VALUES).fold(stacks, |s, n| s.tagged("a", 2, &[("user", &format!("u{n:03}"))]));
        let set = stacks.set();
        let window = cpu([&set]);
        assert_eq!(window.tags.keys().collect::<Vec<_>>(), ["method", "user"]);
        assert_eq!((window.tags["user"].len(), window.tags_cut), (MOST_VALUES, false));
        assert_eq!(
            (&window.tags["method"], &window.tags["user"][7]),
            (&vec![("GET".to_owned(), 1)], &("u007".to_owned(), 2))
        );
        let more = Stacks::new().tagged("a", 1, &[("user", "a-light-one")]).set();
        let window = cpu([&set, &more]);
        assert!(window.tags_cut && window.tags["user"].iter().all(|(value, _)| value != "a-light-one"));
    }

    /// Check that weights are told apart by a tag, those without it too, among the samples that are wanted.
    #[test]
    fn weights_are_told_apart_by_a_tag() {
        let set = Stacks::new()
            .tagged("a", 1, &[("endpoint", "/orders"), ("method", "GET")])
            .tagged("b", 2, &[("endpoint", "/search"), ("method", "GET")])
            .tagged("c", 4, &[("method", "GET")])
            .tagged("c", 8, &[("endpoint", "/orders"), ("method", "POST")])
            .set();
        let filter = TagFilter::new().with("method", "GET");
        let weights = weights_by("endpoint", SampleType::Cpu, &filter, [&set].into_iter());
        let expected = [(Some("/orders".to_owned()), 1), (Some("/search".to_owned()), 2), (None, 4)];
        assert_eq!(weights, HashMap::from(expected));
    }
    /// Check that the heaviest traces are listed like a tag, the heaviest first, each with all that ran in it, and not more than there is
    /// room for.
    #[test]
    fn the_heaviest_traces_are_listed() {
        let traced = |traces: &[(u8, i64)]| {
            let mut set = traces.iter().fold(Stacks::new(), |stacks, (_, weight)| stacks.sample("a", *weight)).set();
            for (place, (trace, _)) in traces.iter().enumerate() {
                let link = Link { trace_id: [*trace; 16], span_id: [place as u8 + 1; 8] };
                set.profiles[0].samples[place].link = set.dictionary.links.intern(link);
            }
            set
        };
        let sets = [traced(&[(1, 5), (0, 90), (2, 7)]), traced(&[(1, 6), (3, 1)])];
        let listed = [("01", 11), ("02", 7), ("03", 1)].map(|(digits, weight)| (digits.repeat(16), weight));
        assert_eq!(cpu(&sets).tags["trace_id"], listed);
        let many: Vec<(u8, i64)> = (1..=200).map(|trace| (trace, i64::from(trace))).collect();
        let window = cpu(&[traced(&many)]);
        assert_eq!((window.tags["trace_id"].len(), window.tags_cut), (MOST_TRACES, false));
        assert_eq!(window.tags["trace_id"][0].1, 200);
    }

    /// Check that the time of processes that ran beside each other is not summed, and that their weights are, in one period.
    #[test]
    fn processes_run_beside_each_other() {
        let set = |pid: i64, start, period| {
            let mut set = Stacks::new().at(start, 10).stacks(3).sample("a", 3).set();
            set.resource.set("process.pid", pid);
            set.profiles[0].kind.period = period;
            set
        };
        let window = cpu(&[set(1, 1000, PERIOD), set(2, 1000, 2 * PERIOD), set(1, 1010, PERIOD)]);
        assert_eq!((window.duration, window.period), (20_000_000_000, Some(PERIOD)));
        assert_eq!((window.evidence.stacks(), window.evidence.weight()), (9, 12));
    }

    /// Check that sums of what somebody sent end at the end of their type.
    #[test]
    fn sums_end_where_their_type_ends() {
        let set = (0..3).fold(Stacks::new(), |s, _| s.tagged("a", i64::MAX, &[("user", "a")])).set();
        let window = cpu([&set, &set]);
        assert_eq!((window.evidence.weight(), window.tags["user"][0].1), (u64::MAX, u64::MAX));
    }
}
