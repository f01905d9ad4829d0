//! What a profile says, summed so that a test can compare it: by function, by tag, by span, by whole stack.
//!
//! In: profiles as they were decoded, from OTLP or from pprof. Out: sums of weights, and of stacks where the profile says
//! how many it stands for. Only on-CPU profiles are counted; pure.

use std::collections::{BTreeMap, BTreeSet};

use profiler_proto::loss::stacks_of;
use profiler_proto::model::{Dictionary, Kind, Location, Profile, ProfileSet, Sample, StackId, Value};

/// Sums over the on-CPU samples of any number of profiles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Stacks that the profiles say they stand for.
    pub stacks: u64,
    /// Sum of the samples' values: their weight, in periods.
    pub weight: i64,
    /// Nanoseconds of CPU time that they stand for: weight × the period of each profile.
    pub nanos: i64,
    /// Weight by the name of the function that was running.
    pub by_leaf: BTreeMap<String, i64>,
    /// Weight by the name of each function that is anywhere in the stack, once per stack.
    pub by_function: BTreeMap<String, i64>,
    /// Weight by tag, written `key=value`.
    pub by_tag: BTreeMap<String, i64>,
    /// Weight by the ids of the span, in hexadecimal, written `trace/span`.
    pub by_link: BTreeMap<String, i64>,
    /// Weight by the whole stack, names from the leaf to the root.
    pub by_stack: BTreeMap<Vec<String>, i64>,
    /// Sum of the counts that the profiles carry as attributes: `profiler.lost.*`, `profiler.degraded.*`.
    pub counts: BTreeMap<String, i64>,
}

impl Tally {
    /// The sums over `sets`.
    pub fn of<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>) -> Self {
        let mut tally = Self::default();
        sets.into_iter().for_each(|set| tally.add(set));
        tally
    }

    /// Counts the on-CPU profiles of `set` too.
    pub fn add(&mut self, set: &ProfileSet) {
        for profile in set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary)) {
            self.add_profile(profile, &set.dictionary);
        }
    }

    /// The weight below (and in) functions whose name ends in `name`, as a path's last part.
    #[must_use]
    pub fn below(&self, name: &str) -> i64 {
        let stacks = self.by_stack.iter();
        stacks
            .filter(|(stack, _)| stack.iter().any(|function| is_named(function, name)))
            .map(|(_, weight)| weight)
            .sum()
    }

    /// The weight under the tag `key=value`.
    #[must_use]
    pub fn tagged(&self, key: &str, value: &str) -> i64 {
        self.by_tag.get(&format!("{key}={value}")).copied().unwrap_or(0)
    }

    /// The stacks that end before the first function of the process or of a thread, each with its weight.
    pub fn torn(&self) -> impl Iterator<Item = (&Vec<String>, i64)> {
        self.by_stack.iter().filter(|(stack, _)| !is_whole(stack)).map(|(stack, weight)| (stack, *weight))
    }

    fn add_profile(&mut self, profile: &Profile, dictionary: &Dictionary) {
        self.stacks += stacks_of(profile, dictionary);
        self.nanos += profile.kind.period * profile.samples.iter().map(|sample| sample.value).sum::<i64>();
        for (key, count) in dictionary.attributes_of(profile.attributes) {
            if let Some(count) = count.as_int().filter(|_| key.starts_with("profiler.")) {
                *self.counts.entry(key.to_owned()).or_default() += count;
            }
        }
        profile.samples.iter().for_each(|sample| self.add_sample(sample, dictionary));
    }

    fn add_sample(&mut self, sample: &Sample, dictionary: &Dictionary) {
        let stack = names_of(sample.stack, dictionary);
        self.weight += sample.value;
        if let Some(leaf) = stack.first() {
            *self.by_leaf.entry(leaf.clone()).or_default() += sample.value;
        }
        for function in stack.iter().collect::<BTreeSet<_>>() {
            *self.by_function.entry(function.clone()).or_default() += sample.value;
        }
        for (key, value) in dictionary.attributes_of(sample.attributes) {
            *self.by_tag.entry(format!("{key}={}", text_of(value))).or_default() += sample.value;
        }
        if let Some(link) = dictionary.links.get(sample.link).filter(|_| !sample.link.is_zero()) {
            *self.by_link.entry(format!("{}/{}", hex(&link.trace_id), hex(&link.span_id))).or_default() += sample.value;
        }
        *self.by_stack.entry(stack).or_default() += sample.value;
    }
}

/// Whether a stack, leaf first, ends where a whole one does: with the first function of the process or of a thread, as glibc and
/// the kernel have it.
#[must_use]
pub fn is_whole(stack: &[String]) -> bool {
    const ROOTS: [&str; 6] = ["_start", "__libc_start_main", "__libc_start_call_main", "clone3", "__clone3", "clone"];
    stack.last().is_some_and(|root| ROOTS.contains(&root.split('@').next().unwrap_or(root)))
}

/// One on-CPU sample, in words.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Written `key=value`.
    pub tags: BTreeSet<String>,
    /// Names from the leaf to the root.
    pub stack: Vec<String>,
    /// In periods.
    pub weight: i64,
}

/// The on-CPU samples of `set`.
#[must_use]
pub fn samples_of(set: &ProfileSet) -> Vec<Seen> {
    seen(set, |kind| kind.is_cpu(&set.dictionary))
}

/// What of the heap is in use, in objects.
#[must_use]
pub fn objects_in_use(set: &ProfileSet) -> Vec<Seen> {
    seen(set, |kind| set.dictionary.strings.text(kind.sample_type.kind) == "inuse_objects")
}

fn seen(set: &ProfileSet, is_wanted: impl Fn(&Kind) -> bool) -> Vec<Seen> {
    let dictionary = &set.dictionary;
    let profiles = set.profiles.iter().filter(|profile| is_wanted(&profile.kind));
    let seen = |sample: &Sample| Seen {
        tags: dictionary
            .attributes_of(sample.attributes)
            .map(|(key, value)| format!("{key}={}", text_of(value)))
            .collect(),
        stack: names_of(sample.stack, dictionary),
        weight: sample.value,
    };
    profiles.flat_map(|profile| profile.samples.iter().map(seen)).collect()
}

/// Whether the path `function` ends in the name `name`; generic arguments and a hash behind it do not count.
#[must_use]
pub fn is_named(function: &str, name: &str) -> bool {
    let path = function.split('<').next().unwrap_or(function);
    path == name || path.rsplit("::").any(|part| part == name)
}

/// The names of a stack's functions from the leaf to the root, inlined ones included.
fn names_of(stack: StackId, dictionary: &Dictionary) -> Vec<String> {
    let ids = dictionary.stacks.get(stack).map_or(&[][..], |stack| &stack.locations);
    ids.iter().filter_map(|id| dictionary.locations.get(*id)).flat_map(|at| functions_of(at, dictionary)).collect()
}

fn functions_of<'a>(location: &'a Location, dictionary: &'a Dictionary) -> impl Iterator<Item = String> + 'a {
    let functions = location.lines.iter().filter_map(|line| dictionary.functions.get(line.function));
    functions.map(|function| dictionary.strings.text(function.name).to_owned())
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use profiler_proto::loss::STACKS;
    use profiler_proto::model::{Function, Line, Link, LocationId, Stack};

    use super::*;

    fn frame(dictionary: &mut Dictionary, names: &[&str]) -> LocationId {
        let lines = names.iter().map(|name| {
            let name = dictionary.strings.intern_str(name);
            let function = dictionary.functions.intern(Function { name, ..Function::default() });
            Line { function, ..Line::default() }
        });
        let lines = lines.collect();
        dictionary.locations.intern(Location { lines, ..Location::default() })
    }

    /// Check that inlined functions count as functions, a recursive one once, tags by key and value, and spans by their ids.
    #[test]
    fn weights_are_summed_by_function_tag_and_span() {
        let mut set = ProfileSet::default();
        let dictionary = &mut set.dictionary;
        let (leaf, main) = (frame(dictionary, &["a::inlined", "a::work"]), frame(dictionary, &["main"]));
        let stack = dictionary.stacks.intern(Stack { locations: [leaf, leaf, main].into() });
        let tag = dictionary.attribute("endpoint", "/a");
        let attributes = dictionary.attribute_set([tag]);
        let link = dictionary.links.intern(Link { trace_id: [0xab; 16], span_id: [1; 8] });
        let (stacks, lost) = (dictionary.attribute(STACKS, 2), dictionary.attribute("profiler.lost.ring_full", 4));
        let profile = Profile {
            kind: Kind::cpu(dictionary, 10_000_000),
            attributes: dictionary.attribute_set([stacks, lost]),
            samples: vec![Sample { stack, attributes, link, value: 3 }],
            ..Profile::default()
        };
        set.profiles = vec![profile.clone(), Profile { kind: Kind::default(), ..profile }];

        let tally = Tally::of([&set, &set]);
        assert_eq!((tally.stacks, tally.weight), (4, 6));
        assert_eq!((tally.by_leaf["a::inlined"], tally.by_function["a::work"]), (6, 6));
        assert_eq!((tally.below("work"), tally.below("wor"), tally.tagged("endpoint", "/a")), (6, 0, 6));
        assert_eq!(tally.by_link[&format!("{}/{}", "ab".repeat(16), "01".repeat(8))], 6);
        assert_eq!(tally.counts["profiler.lost.ring_full"], 8);
    }
}
