//! A profile of the heap, summed so that a scenario can compare it: by function, by tag, by span.
//!
//! In: a profile set. Out: the four values for each function that is anywhere in a stack, for each tag, for each span.

use std::collections::{BTreeMap, BTreeSet};

use profiler_proto::ProfileSet;
use profiler_proto::model::{Dictionary, Sample};
use serde_json::{Value, json};

/// Objects and bytes allocated, objects and bytes in use: Go's order.
pub(crate) type Four = [i64; 4];

/// The types that a profile of the heap has.
pub(crate) const TYPES: [&str; 4] = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];

/// Sums over all samples.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) total: Four,
    /// By the last part of a function's name.
    pub(crate) by_function: BTreeMap<String, Four>,
    /// Written `key=value`; what has no tags is under the empty text.
    pub(crate) by_tag: BTreeMap<String, Four>,
    /// By the last byte of the span's id, 0 where there is none, and the tag `endpoint`.
    pub(crate) by_span: BTreeMap<(u8, String), Four>,
    /// The functions at the leaves.
    pub(crate) leaves: BTreeSet<String>,
}

impl Sums {
    /// Sums up `set`.
    pub(crate) fn of(set: &ProfileSet) -> Self {
        let mut sums = Self::default();
        let dictionary = &set.dictionary;
        for profile in &set.profiles {
            let kind = dictionary.strings.text(profile.kind.sample_type.kind);
            let Some(place) = TYPES.iter().position(|name| *name == kind) else { continue };
            for sample in &profile.samples {
                sums.add(place, sample, dictionary);
            }
        }
        sums
    }

    fn add(&mut self, place: usize, sample: &Sample, dictionary: &Dictionary) {
        let value = sample.value;
        self.total[place] += value;
        let functions = functions_of(sample, dictionary);
        let names: Vec<String> = functions.iter().map(|name| last_part(name)).collect();
        self.leaves.extend(functions.into_iter().next());
        for name in names.iter().collect::<BTreeSet<_>>() {
            self.by_function.entry(name.clone()).or_default()[place] += value;
        }
        let tags: Vec<_> = dictionary.attributes_of(sample.attributes).collect();
        if tags.is_empty() {
            self.by_tag.entry(String::new()).or_default()[place] += value;
        }
        for (key, tag) in &tags {
            self.by_tag.entry(format!("{key}={tag}")).or_default()[place] += value;
        }
        let endpoint =
            tags.iter().find(|(key, _)| *key == "endpoint").map_or_else(String::new, |(_, tag)| tag.to_string());
        let span = dictionary.links.get(sample.link).map_or(0, |link| link.span_id[7]);
        self.by_span.entry((span, endpoint)).or_default()[place] += value;
    }

    /// The values of a function.
    pub(crate) fn function(&self, name: &str) -> Four {
        self.by_function.get(name).copied().unwrap_or_default()
    }

    /// The values of a tag.
    pub(crate) fn tag(&self, tag: &str) -> Four {
        self.by_tag.get(tag).copied().unwrap_or_default()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "total": self.total, "by_function": self.by_function, "by_tag": self.by_tag, "leaves": self.leaves })
    }
}

/// The functions of a sample's stack, leaf first.
pub(crate) fn functions_of(sample: &Sample, dictionary: &Dictionary) -> Vec<String> {
    let stack = dictionary.stacks.get(sample.stack);
    let locations = stack.map_or(&[][..], |stack| &stack.locations);
    let lines = locations.iter().filter_map(|id| dictionary.locations.get(*id)).flat_map(|location| &location.lines);
    let names = lines.filter_map(|line| dictionary.functions.get(line.function));
    names.map(|function| dictionary.strings.text(function.name).to_owned()).collect()
}

fn last_part(name: &str) -> String {
    name.rsplit("::").next().unwrap_or(name).to_owned()
}
