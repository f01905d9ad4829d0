//! What is known of a range of time before any tag is asked for: when, how long, how many stacks, which tags.
//!
//! In: the sets of the store, of which one type is looked at. Out: figures, and the tags that can be chosen, with their weights.
//! Bounded: at most [`MOST_KEYS`] keys with [`MOST_VALUES`] values each.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::model::{AttributeSetId, Id, TagFilter, Value};
use profiler_proto::{Profile, ProfileSet, Sample};

use super::evidence::{Evidence, weight_of};
use super::sample_type::SampleType;

/// The most keys of tags that are listed.
const MOST_KEYS: usize = 100;
/// The most values of one key that are listed.
const MOST_VALUES: usize = 200;

/// Of no use as a choice: threads come and go, and their names are a tag of their own.
const NOT_LISTED: [&str; 1] = ["thread.id"];

/// The figures of a range of time.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) sample_type: SampleType,
    /// Start of the first profile, nanoseconds since 1970 UTC; of a state, its moment.
    pub(super) first: Option<u64>,
    /// End of the last one.
    pub(super) last: Option<u64>,
    /// Sum of the profiles' durations in nanoseconds; a state has none.
    pub(super) duration: u64,
    /// Nanoseconds of CPU time for each unit of weight, or bytes between samples of the heap; that of the newest profile.
    pub(super) period: Option<i64>,
    pub(super) evidence: Evidence,
    /// Values seen with their weights, by key, in order.
    pub(super) tags: BTreeMap<String, Vec<(String, u64)>>,
    /// Whether there are more than are listed.
    pub(super) tags_cut: bool,
}

impl Window {
    /// The figures of the profiles of one type in `sets`; of states, how they are at their moments.
    pub(super) fn of<'a>(sample_type: SampleType, sets: impl Iterator<Item = &'a ProfileSet>) -> Self {
        Self::with_time(sample_type, !sample_type.is_state(), sets)
    }

    /// The same for what changed between `states`.
    pub(super) fn of_change<'a>(
        sample_type: SampleType,
        change: impl Iterator<Item = &'a ProfileSet>,
        states: impl Iterator<Item = &'a ProfileSet>,
    ) -> Self {
        let mut window = Self::with_time(sample_type, true, change);
        window.evidence.vary_as(sample_type, states);
        window
    }

    fn with_time<'a>(sample_type: SampleType, over_time: bool, sets: impl Iterator<Item = &'a ProfileSet>) -> Self {
        let (first, last, duration, period) = (None, None, 0, None);
        let (evidence, tags, tags_cut) = (Evidence::default(), BTreeMap::new(), false);
        let mut window = Self { sample_type, first, last, duration, period, evidence, tags, tags_cut };
        let mut seen = HashMap::new();
        for set in sets {
            for profile in sample_type.profiles(set) {
                window.count(profile, over_time);
                window.evidence.add(sample_type, profile, set);
                collect_tags(set, profile, &mut seen);
            }
        }
        window.list(seen);
        window
    }

    /// What a unit of weight adds to the sum of squared weights: see [`Evidence::mean_weight`].
    pub(super) fn mean_weight(&self) -> f64 {
        self.evidence.mean_weight(self.sample_type)
    }

    fn count(&mut self, profile: &Profile, over_time: bool) {
        let end = profile.end_unix_nanos();
        let start = if over_time { profile.time_unix_nanos } else { end };
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.last = Some(self.last.map_or(end, |last| last.max(end)));
        self.duration = self.duration.saturating_add(end - start);
        self.period = Some(profile.kind.period);
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
    sets: impl Iterator<Item = &'a ProfileSet>,
) -> HashMap<Option<String>, u64> {
    let mut weights = HashMap::new();
    for set in sets {
        let keeps = filter.of(&set.dictionary);
        for (id, weight) in weights_of(set, sample_type.profiles(set).flat_map(|p| &p.samples).filter(|s| keeps(s))) {
            let value = set.dictionary.value_of(id, key).map(Value::to_string);
            *weights.entry(value).or_default() += weight;
        }
    }
    weights
}

/// By key and value: the weight.
type Seen<'a> = HashMap<&'a str, HashMap<String, u64>>;

fn collect_tags<'a>(set: &'a ProfileSet, profile: &Profile, seen: &mut Seen<'a>) {
    for (id, weight) in weights_of(set, profile.samples.iter()) {
        for (key, value) in set.dictionary.attributes_of(id).filter(|(key, _)| !NOT_LISTED.contains(key)) {
            *seen.entry(key).or_default().entry(value.to_string()).or_default() += weight;
        }
    }
}

/// The weight of samples by their attributes, where it is not zero.
fn weights_of<'a>(
    set: &ProfileSet,
    samples: impl Iterator<Item = &'a Sample>,
) -> impl Iterator<Item = (AttributeSetId, u64)> {
    let mut weights = vec![0; set.dictionary.attribute_sets.len()];
    for sample in samples {
        if let Some(weight) = weights.get_mut(sample.attributes.index() as usize) {
            *weight += weight_of(sample);
        }
    }
    let ids = (0..=u32::MAX).map(AttributeSetId::from_index);
    ids.zip(weights).filter(|(_, weight)| *weight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{PERIOD, Stacks};

    fn cpu<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>) -> Window {
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
}
