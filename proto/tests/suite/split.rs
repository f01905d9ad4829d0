//! Parts are within the bound, hold all samples, and share the counts out without a remainder.

use std::collections::BTreeMap;

use profiler_proto::model::{
    Dictionary, Function, Kind, Line, Location, Mapping, Profile, ProfileSet, Stack, Value, merge,
};
use profiler_proto::otlp::ExportProfilesServiceRequest;
use profiler_proto::pprof::is_capture;
use profiler_proto::split::{MAX_SAMPLES, fits, request_bytes, split, split_by};
use profiler_proto::{loss, otlp};
use proptest::prelude::*;
use prost::Message;

use crate::arbitrary::{plans, values};
use crate::sample::checkout;

fn counts<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>) -> BTreeMap<(String, String), i64> {
    let mut counts = BTreeMap::new();
    for set in sets {
        for profile in &set.profiles {
            for (key, value) in set.dictionary.attributes_of(profile.attributes).filter(|(key, _)| loss::is_count(key))
            {
                let kind = set.dictionary.strings.text(profile.kind.sample_type.kind).to_owned();
                *counts.entry((kind, key.to_owned())).or_default() += value.as_int().unwrap();
            }
        }
    }
    counts
}

/// The samples, told apart by all that they have, with their sums.
fn samples(set: &ProfileSet) -> BTreeMap<String, i128> {
    let mut sums = BTreeMap::new();
    for profile in &set.profiles {
        for sample in &profile.samples {
            *sums.entry(readable(sample, profile, &set.dictionary)).or_default() += i128::from(sample.value);
        }
    }
    sums
}

fn readable(sample: &profiler_proto::Sample, profile: &Profile, d: &Dictionary) -> String {
    let mut tags: Vec<_> = d.attributes_of(sample.attributes).map(|(key, value)| format!("{key}={value:?}")).collect();
    tags.sort_unstable();
    let stack: Vec<_> = d.stacks.get(sample.stack).unwrap().locations.iter().map(|id| d.locations.get(*id)).collect();
    let stack: Vec<_> = stack.into_iter().flatten().map(|location| (location.address, location.lines.len())).collect();
    let kind = d.strings.text(profile.kind.sample_type.kind);
    format!("{kind} {} {tags:?} {stack:?} {:?}", profile.time_unix_nanos, d.links.get(sample.link))
}

/// `checkout` with as many on-CPU samples as `n`, each under a tag of its own.
fn wide(n: i64) -> ProfileSet {
    let mut set = checkout();
    let sample = set.profiles[0].samples[0];
    set.profiles[0].samples = (0..n)
        .map(|i| {
            let request = set.dictionary.attribute("request", i);
            profiler_proto::Sample { attributes: set.dictionary.attribute_set([request]), value: i, ..sample }
        })
        .collect();
    set.compacted()
}

/// Check that a profile of more samples than backends take is divided, however small it is, and that nothing of it is lost.
#[test]
fn no_part_has_more_samples_than_backends_take() {
    let most = MAX_SAMPLES as i64;
    // Of two profiles the longer one.
    for (number, parts) in [(most, 1), (most + 1, 3)] {
        let set = wide(number);
        let split = split(&set, usize::MAX);
        assert_eq!((split.parts.len(), split.too_large.len()), (parts, 0));
        let longest = split.parts.iter().flat_map(|part| &part.profiles).map(|profile| profile.samples.len()).max();
        assert!(longest <= Some(MAX_SAMPLES), "{longest:?}");
        assert_eq!(samples(&merge(&split.parts)), samples(&set));
    }
}

/// Check that a set within the bound is its own only part.
#[test]
fn a_small_set_stays_whole() {
    let set = checkout().compacted();
    let parts = split(&set, request_bytes(&set));
    assert_eq!((parts.parts, parts.too_large), (vec![set], vec![]));
}

/// Check that one byte less divides it by profiles before it divides samples.
#[test]
fn profiles_are_parted_first() {
    let set = checkout().compacted();
    let parts = split(&set, request_bytes(&set) - 1).parts;
    assert_eq!(parts.iter().map(|part| part.profiles.len()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(parts[0].profiles[0].samples.len(), 2);
    assert_eq!(merge(&parts), set);
}

/// Check that profiles of one file are parted from others before they are from each other, wherever they stand.
#[test]
fn what_is_one_file_stays_together() {
    let mut heap = checkout();
    let kinds = Kind::heap(&mut heap.dictionary, 1 << 19);
    let of_heap: Vec<Profile> = kinds.into_iter().map(|kind| Profile { kind, ..heap.profiles[0].clone() }).collect();
    for before in 0..5 {
        let mut set = heap.clone();
        let other = |number: usize| Profile { time_unix_nanos: 1 + number as u64, ..of_heap[0].clone() };
        set.profiles = (0..before).map(other).chain(of_heap.iter().cloned()).chain([other(9)]).collect();
        let mut parts = Vec::new();
        split_by(&set, |part| is_capture(part).then_some(()), |part, _| parts.push(part.profiles.len()));
        parts.sort_unstable();
        assert_eq!(parts, [vec![1; before + 1], vec![of_heap.len()]].concat());
    }
}

/// Check that a profile of many samples becomes parts within the bound that together are the profile.
#[test]
fn samples_are_parted_and_counts_shared() {
    let set = wide(1_000);
    let limit = request_bytes(&set) / 7;
    let parts = split(&set, limit);
    assert_eq!(parts.too_large, []);
    assert!(parts.parts.len() > 7, "{} parts", parts.parts.len());
    assert!(parts.parts.iter().all(|part| request_bytes(part) <= limit));
    assert_eq!(samples(&merge(&parts.parts)), samples(&set));
    let expected = [("profiler.lost.ring_full", 3), ("profiler.stacks", 8)];
    let expected = expected.map(|(key, n)| (("samples".to_owned(), key.to_owned()), n));
    assert_eq!(counts(&parts.parts), BTreeMap::from(expected));
}

/// Check that what cannot be made small enough is handed back with its counts, and the rest is not lost for it.
#[test]
fn a_sample_too_large_is_handed_back() {
    let mut set = wide(8);
    let text = set.dictionary.attribute("query", "x".repeat(10_000));
    set.profiles[0].samples[5].attributes = set.dictionary.attribute_set([text]);
    let parts = split(&set, 5_000);
    assert_eq!(parts.too_large.len(), 1);
    let large = &parts.too_large[0];
    let attributes = large.profiles[0].samples[0].attributes;
    assert_eq!(large.dictionary.value_of(attributes, "query"), Some(&Value::from("x".repeat(10_000))));
    let all = parts.parts.iter().chain(&parts.too_large);
    assert_eq!(counts(all.clone()), counts([&set]));
    assert_eq!(samples(&merge(all)), samples(&set));
}

/// Check that a set one of whose profiles has no samples, and is not sent, fits at its size.
#[test]
fn a_profile_without_samples_takes_no_room() {
    let mut set = checkout();
    set.profiles[1].samples.clear();
    set.profiles[1].kind.sample_type.kind = set.dictionary.strings.intern_str(&"x".repeat(100_000));
    let set = set.compacted();
    assert!(fits(&set, request_bytes(&set)));
}

/// Check that a text that no request holds, or nearly none, is not copied for each sample that refers to it: what is left then is handed back with its counts.
#[test]
fn a_text_of_megabytes_is_not_copied_for_each_sample() {
    for (text, limit) in [(3 << 20, 2 << 20), (2 << 20, (2 << 20) + 2_000)] {
        let mut set = wide(20_000);
        set.profiles.truncate(1);
        let filename = set.dictionary.strings.intern_str(&"x".repeat(text));
        let name = set.dictionary.strings.intern_str("f");
        let function = set.dictionary.functions.intern(Function { name, filename, ..Function::default() });
        let line = Line { function, ..Line::default() };
        let root = set.dictionary.locations.intern(Location { lines: [line].into(), ..Location::default() });
        for sample in &mut set.profiles[0].samples {
            let leaves = set.dictionary.stacks.get(sample.stack).unwrap().locations.clone();
            let locations = leaves.iter().copied().chain([root]).collect();
            sample.stack = set.dictionary.stacks.intern(Stack { locations });
        }
        let parts = split(&set, limit);
        assert!(parts.parts.len() + parts.too_large.len() < 100, "{} {}", parts.parts.len(), parts.too_large.len());
        let all = parts.parts.iter().chain(&parts.too_large);
        assert_eq!(counts(all.clone()), counts([&set]));
        let many = |sets: &[ProfileSet]| sets.iter().map(|set| set.profiles[0].samples.len()).sum::<usize>();
        assert_eq!(many(&parts.parts) + many(&parts.too_large), 20_000);
    }
}

/// Check that a set whose texts and numbers are as long as they can be is not told to be smaller than it is.
#[test]
fn long_numbers_and_texts_are_counted_whole() {
    let mut set = checkout();
    let d = &mut set.dictionary;
    let texts = (0..20_000).map(|i| d.strings.intern_str(&format!("{i:0200}"))).collect::<Vec<_>>();
    let stacks = texts.iter().map(|text| {
        let function =
            d.functions.intern(Function { name: *text, system_name: *text, filename: *text, start_line: u32::MAX });
        let line = Line { function, line: u32::MAX, column: u32::MAX };
        let mapping =
            Mapping { start: u64::MAX - 1, limit: u64::MAX, offset: u64::MAX, filename: *text, ..Mapping::default() };
        let mapping = d.mappings.intern(mapping);
        let location = Location { mapping, address: u64::MAX, lines: [line; 1].into(), ..Location::default() };
        let location = d.locations.intern(location);
        d.stacks.intern(Stack { locations: [location; 1].into() })
    });
    let stacks: Vec<_> = stacks.collect();
    let sample = set.profiles[0].samples[0];
    let value = i64::MAX / stacks.len() as i64;
    set.profiles.truncate(1);
    set.profiles[0].samples =
        stacks.into_iter().map(|stack| profiler_proto::Sample { stack, value, ..sample }).collect();
    let set = set.compacted();
    let bytes = request_bytes(&set);
    assert!(fits(&set, bytes) && !fits(&set, bytes - 1));
}

proptest! {
    /// Check that what is told of a set without encoding it never lets one pass that is too large.
    #[test]
    fn a_set_fits_from_its_size_on(plan in plans(values())) {
        let set = plan.build(true).compacted();
        let bytes = request_bytes(&set);
        prop_assert!(fits(&set, bytes) && fits(&set, 100 * bytes + 1_000));
        prop_assert!(bytes == 0 || !fits(&set, bytes - 1));
    }

    /// Check that nothing is lost, whatever the set and the bound.
    #[test]
    fn nothing_is_lost(plan in plans(values()), stacks in any::<u32>(), lost in any::<u32>(), limit in 0..4_000_usize) {
        let mut set = plan.build(false);
        for profile in &mut set.profiles {
            let d = &mut set.dictionary;
            let ids = [d.attribute(loss::STACKS, i64::from(stacks)), d.attribute("profiler.lost.blocked", i64::from(lost))];
            profile.attributes = d.attribute_set(ids);
        }
        let set = set.compacted();
        let parts = split(&set, limit);
        prop_assert!(parts.parts.iter().all(|part| request_bytes(part) <= limit));
        // As bytes: what is not a number is not equal to itself.
        let written = |part: &ProfileSet| {
            let mut bytes = Vec::new();
            otlp::Request::of(part).write(&mut bytes).unwrap();
            ExportProfilesServiceRequest::decode(&*bytes).unwrap().encode_to_vec()
        };
        prop_assert!(parts.parts.iter().all(|part| written(part) == otlp::encode_to_vec(part)));
        let all: Vec<_> = parts.parts.iter().chain(&parts.too_large).collect();
        prop_assert_eq!(counts(all.iter().copied()), counts([&set]));
        let mut sums = BTreeMap::new();
        for part in &all {
            for (sample, value) in samples(part) {
                *sums.entry(sample).or_default() += value;
            }
        }
        prop_assert_eq!(sums, samples(&set));
    }
}
