//! Choosing samples by their tags.
//!
//! In: keys and values, as a person picks them. Out: the samples that carry them. Whether a set of attributes matches is
//! found out once per set, not once per sample.

use std::collections::{BTreeMap, BTreeSet};

use super::{Dictionary, Id, Link, ProfileSet, Sample, Value};

/// Which samples to keep: for every key named here, the sample must have it with one of the values named for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagFilter {
    wanted: BTreeMap<String, BTreeSet<String>>,
}

impl TagFilter {
    /// A filter that keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wants `key` to be `value`, or one of the values wanted for it before; a value that is no text is compared by its
    /// `Display` form.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.wanted.entry(key.into()).or_default().insert(value.into());
        self
    }

    /// Whether it keeps everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The test for samples that refer to `dictionary`.
    ///
    /// `trace_id` and `span_id`, in hexadecimal, are also those of the span that a sample links to.
    pub fn of(&self, dictionary: &Dictionary) -> impl Fn(&Sample) -> bool + use<> {
        let sets: Vec<u8> = dictionary.attribute_sets.entries().map(|(set, _)| self.met_by(set, dictionary)).collect();
        let links: Vec<u8> = dictionary.links.iter().map(|link| self.met_by_link(link)).collect();
        move |sample| {
            let of_set = sets.get(sample.attributes.index() as usize).copied().unwrap_or(0);
            let of_link = links.get(sample.link.index() as usize).copied().unwrap_or(0);
            of_set | of_link == ALL
        }
    }

    /// What a set of attributes meets: a bit for all keys that a link does not have, one for each that it has.
    fn met_by(&self, set: super::AttributeSetId, dictionary: &Dictionary) -> u8 {
        let is_met = |key: &str, values: &BTreeSet<String>| {
            dictionary.value_of(set, key).is_some_and(|value| match value {
                Value::String(text) => values.contains(&**text),
                other => values.contains(&other.to_string()),
            })
        };
        let plain = self.wanted.iter().filter(|(key, _)| !OF_LINK.contains(&key.as_str()));
        let all = u8::from(plain.clone().all(|(key, values)| is_met(key, values)));
        self.met(all, |place, values| is_met(OF_LINK[place], values))
    }

    /// The same for a link.
    fn met_by_link(&self, link: &Link) -> u8 {
        let ids = [link.trace(), link.span()];
        self.met(0, |place, values| ids[place].as_ref().is_some_and(|id| values.contains(id)))
    }

    fn met(&self, first: u8, is_met: impl Fn(usize, &BTreeSet<String>) -> bool) -> u8 {
        let bits = OF_LINK.iter().enumerate().map(|(place, key)| {
            let met = self.wanted.get(*key).is_none_or(|values| is_met(place, values));
            u8::from(met) << (place + 1)
        });
        bits.fold(first, |all, bit| all | bit)
    }
}

/// The keys that the link of a sample has values for.
const OF_LINK: [&str; 2] = ["trace_id", "span_id"];
/// All bits of [`TagFilter::met_by`].
const ALL: u8 = 0b111;

impl ProfileSet {
    /// The compact set of the samples that `filter` keeps; profiles stay, even if none of their samples does.
    #[must_use]
    pub fn filtered(&self, filter: &TagFilter) -> Self {
        let keeps = filter.of(&self.dictionary);
        self.with_samples(&self.profiles, |sample| keeps(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Link, Profile};
    use super::*;

    /// Check that a trace is found by links and by attributes, together with tags, and by nothing else.
    #[test]
    fn a_trace_is_found_by_links_and_attributes() {
        let mut set = ProfileSet::default();
        let dictionary = &mut set.dictionary;
        let link = dictionary.links.intern(Link { trace_id: [0xab; 16], span_id: [1; 8] });
        let other = dictionary.links.intern(Link { trace_id: [0xcd; 16], span_id: [2; 8] });
        let [method, trace] = [("method", "GET".to_owned()), ("trace_id", "ab".repeat(16))]
            .map(|(key, value)| dictionary.attribute(key, value));
        let [tagged, traced] = [method, trace].map(|attribute| dictionary.attribute_set([attribute]));
        let sample = |value, link, attributes| Sample { value, link, attributes, ..Sample::default() };
        let none = super::super::AttributeSetId::ZERO;
        let samples = vec![
            sample(1, link, none),
            sample(2, link, tagged),
            sample(4, other, tagged),
            sample(8, super::super::LinkId::ZERO, traced),
            sample(16, super::super::LinkId::ZERO, none),
        ];
        set.profiles.push(Profile { samples, ..Profile::default() });
        let kept = |filter: TagFilter| {
            let keeps = filter.of(&set.dictionary);
            set.profiles[0].samples.iter().filter(|sample| keeps(sample)).map(|sample| sample.value).sum::<i64>()
        };
        let trace = TagFilter::new().with("trace_id", "ab".repeat(16));
        assert_eq!(kept(trace.clone()), 1 + 2 + 8);
        assert_eq!(kept(trace.clone().with("method", "GET")), 2);
        assert_eq!(kept(trace.with("trace_id", "cd".repeat(16))), 1 + 2 + 4 + 8);
        assert_eq!(kept(TagFilter::new().with("span_id", "02".repeat(8))), 4);
        assert_eq!(kept(TagFilter::new().with("trace_id", "00".repeat(16))), 0);
        assert_eq!(kept(TagFilter::new()), 31);
    }
}
