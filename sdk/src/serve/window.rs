//! What is known of a range of time before any tag is asked for: when, how long, how many stacks, which tags.
//!
//! In: the sets of the store. Out: figures, and the tags that can be chosen. Bounded: at most [`MOST_KEYS`] keys with
//! [`MOST_VALUES`] values each.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::loss::stacks_of;
use profiler_proto::model::{AttributeSetId, Id, TagFilter, Value};
use profiler_proto::{Profile, ProfileSet, Sample};

use super::store::end_of;

/// The most keys of tags that are listed.
const MOST_KEYS: usize = 100;
/// The most values of one key that are listed.
const MOST_VALUES: usize = 200;

/// Of no use as a choice: threads come and go, and their names are a tag of their own.
const NOT_LISTED: [&str; 1] = ["thread.id"];

/// The figures of a range of time.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Start of the first profile, nanoseconds since 1970 UTC.
    pub(super) first: Option<u64>,
    /// End of the last one.
    pub(super) last: Option<u64>,
    /// Sum of the profiles' durations in nanoseconds.
    pub(super) duration: u64,
    /// Nanoseconds of CPU time for each unit of weight; that of the newest profile.
    pub(super) period: Option<i64>,
    /// Stacks that were taken.
    pub(super) stacks: u64,
    /// The sum of their weights.
    pub(super) weight: u64,
    /// Values seen, by key, in order.
    pub(super) tags: BTreeMap<String, Vec<String>>,
    /// Whether there are more than are listed.
    pub(super) tags_cut: bool,
}

impl Window {
    /// The figures of the on-CPU profiles of `sets`.
    pub(super) fn of<'a>(sets: impl Iterator<Item = &'a ProfileSet>) -> Self {
        let mut window = Self::default();
        let mut seen = HashMap::new();
        for set in sets {
            for profile in cpu_profiles(set) {
                window.count(profile, stacks_of(profile, &set.dictionary));
                collect_tags(set, profile, &mut seen);
            }
        }
        window.list(seen);
        window
    }

    /// The mean weight of a stack; 1 where profiles do not say how many stacks they stand for.
    ///
    /// Weight times this is the least that the sum of squared weights can be (Cauchy and Schwarz), and exactly that sum
    /// where all stacks weigh the same; weight divided by it is a number of stacks.
    pub(super) fn mean_weight(&self) -> f64 {
        if self.stacks == 0 || self.weight == 0 { 1.0 } else { self.weight as f64 / self.stacks as f64 }
    }

    fn count(&mut self, profile: &Profile, stacks: u64) {
        let (start, end) = (profile.time_unix_nanos, end_of(profile));
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.last = Some(self.last.map_or(end, |last| last.max(end)));
        self.duration = self.duration.saturating_add(profile.duration_nanos);
        self.period = Some(profile.kind.period);
        self.stacks += stacks;
        self.weight += profile.samples.iter().filter_map(|sample| u64::try_from(sample.value).ok()).sum::<u64>();
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
            let mut values: Vec<String> = values.into_iter().take(MOST_VALUES).map(|(value, _)| value).collect();
            values.sort_unstable();
            self.tags.insert(key.to_owned(), values);
        }
    }
}

/// The on-CPU profiles of a set.
pub(super) fn cpu_profiles(set: &ProfileSet) -> impl Iterator<Item = &Profile> + '_ {
    set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary))
}

/// The weight of the samples that `filter` keeps, by their value of the tag `key`; `None` where they have none.
pub(super) fn weights_by<'a>(
    key: &str,
    filter: &TagFilter,
    sets: impl Iterator<Item = &'a ProfileSet>,
) -> HashMap<Option<String>, u64> {
    let mut weights = HashMap::new();
    for set in sets {
        let keeps = filter.of(&set.dictionary);
        for (id, weight) in weights_of(set, cpu_profiles(set).flat_map(|p| &p.samples).filter(|s| keeps(s))) {
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
            *weight += u64::try_from(sample.value).unwrap_or(0);
        }
    }
    let ids = (0..=u32::MAX).map(AttributeSetId::from_index);
    ids.zip(weights).filter(|(_, weight)| *weight > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{PERIOD, Stacks};

    /// Check that times, stacks and weights are summed, and that the mean weight is one period where each is.
    #[test]
    fn figures_are_summed() {
        let sets = [
            Stacks::new().at(1000, 10).stacks(3).sample("a", 3).set(),
            Stacks::new().at(1010, 10).stacks(4).sample("a", 6).set(),
        ];
        let window = Window::of(sets.iter());
        assert_eq!((window.first, window.last), (Some(1_000_000_000_000), Some(1_020_000_000_000)));
        assert_eq!((window.stacks, window.weight, window.duration), (7, 9, 20_000_000_000));
        assert_eq!((window.period, window.mean_weight()), (Some(PERIOD), 9.0 / 7.0));
        let first = Window::of(sets[..1].iter());
        assert_eq!((first.stacks, first.mean_weight()), (3, 1.0));
        assert_eq!(Window::of([].into_iter()).first, None);
    }

    /// Check that tags are listed in order, and that the lightest beyond the bound are left out and said to be.
    #[test]
    fn tags_are_listed_and_bounded() {
        let mut stacks = Stacks::new().tagged("a", 1, &[("method", "GET"), ("thread.id", "7")]);
        stacks = (0..MOST_VALUES).fold(stacks, |s, n| s.tagged("a", 2, &[("user", &format!("u{n:03}"))]));
        let set = stacks.set();
        let window = Window::of([&set].into_iter());
        assert_eq!(window.tags.keys().collect::<Vec<_>>(), ["method", "user"]);
        assert_eq!((window.tags["user"].len(), window.tags_cut), (MOST_VALUES, false));
        let more = Stacks::new().tagged("a", 1, &[("user", "a-light-one")]).set();
        let window = Window::of([&set, &more].into_iter());
        assert!(window.tags_cut && !window.tags["user"].contains(&"a-light-one".to_owned()));
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
        let weights = weights_by("endpoint", &filter, [&set].into_iter());
        let expected = [(Some("/orders".to_owned()), 1), (Some("/search".to_owned()), 2), (None, 4)];
        assert_eq!(weights, HashMap::from(expected));
    }
}
