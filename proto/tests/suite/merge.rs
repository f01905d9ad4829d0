//! Sums of sets, differences of states, and choosing samples by tag.

use std::borrow::Cow;

use profiler_proto::ProfileSet;
use profiler_proto::model::{
    Difference, Excerpts, Kind, Location, Mapping, Merge, Profile, Sample, Stack, TagFilter, Value, merge,
};
use proptest::prelude::*;

use crate::arbitrary::{plans, values};
use crate::sample::checkout;

/// `checkout` as captured `windows` times ten seconds later, its dictionary in another order.
fn later(windows: u64) -> ProfileSet {
    let mut set = ProfileSet::default();
    set.dictionary.attribute("other", "first");
    let mut sum = Merge::new();
    sum.add(&set);
    let mut checkout = checkout();
    checkout.profiles.reverse();
    for profile in &mut checkout.profiles {
        profile.time_unix_nanos += windows * 10_000_000_000;
    }
    sum.add(&checkout);
    sum.finish()
}

fn values_of(set: &ProfileSet) -> Vec<Vec<i64>> {
    set.profiles.iter().map(|profile| profile.samples.iter().map(|sample| sample.value).collect()).collect()
}

/// Check that samples of equal stack, tags and span are summed, but for what is in use; windows joined, counts added up.
#[test]
fn two_windows_become_one() {
    let sum = merge([&checkout(), &later(2)]);
    assert_eq!(values_of(&sum), [vec![10, 8], vec![65_536]]);
    let cpu = &sum.profiles[0];
    assert_eq!((cpu.time_unix_nanos, cpu.duration_nanos), (1_763_700_000_000_000_000, 30_000_000_000));
    let count = |key| sum.dictionary.value_of(cpu.attributes, key);
    assert_eq!(count("profiler.stacks"), Some(&Value::Int(16)));
    assert_eq!(count("profiler.lost.ring_full"), Some(&Value::Int(6)));
    assert_eq!(sum.resource, checkout().resource);
    assert_eq!(sum.dictionary.stacks, checkout().compacted().dictionary.stacks);
}

/// Check that a profile of another period is another profile: its values are of another weight.
#[test]
fn another_period_is_another_profile() {
    let mut faster = checkout();
    faster.profiles[0].kind.period = 1_000_000;
    assert_eq!(values_of(&merge([&checkout(), &faster])), [vec![5, 4], vec![5, 4], vec![65_536]]);
}

/// A set of what is in use, objects and bytes, at so many bytes to a sample: by stack and tags of `checkout`'s samples.
fn in_use(start: u64, period: i64, values: [[i64; 2]; 3]) -> ProfileSet {
    let mut set = checkout();
    let [_, _, objects, bytes] = Kind::heap(&mut set.dictionary, period);
    let samples = [set.profiles[0].samples.clone(), set.profiles[1].samples.clone()].concat();
    let profile = |kind, place: usize| {
        let mut profile = set.profiles[1].clone();
        (profile.kind, profile.time_unix_nanos, profile.samples) = (kind, start, samples.clone());
        profile.duration_nanos = 10;
        profile.samples.iter_mut().zip(values).for_each(|(sample, value)| sample.value = value[place]);
        profile.samples.retain(|sample| sample.value != 0);
        profile
    };
    set.profiles = vec![profile(objects, 0), profile(bytes, 1)];
    set
}

/// Check that of what is in use the last state stays, in whatever order states come and at whatever period, also where nothing is
/// in use any more; and that its window is the joined one.
#[test]
fn the_last_state_stays() {
    let (early, late) = (in_use(100, 512, [[1, 10], [2, 20], [3, 30]]), in_use(110, 1024, [[5, 50], [0, 0], [3, 30]]));
    for sum in [merge([&early, &late]), merge([&late, &early]), merge([&early, &late, &early])] {
        assert_eq!(values_of(&sum), [vec![5, 3], vec![50, 30]]);
        let window = |profile: &profiler_proto::Profile| {
            (profile.time_unix_nanos, profile.end_unix_nanos(), profile.kind.period)
        };
        assert_eq!(sum.profiles.iter().map(window).collect::<Vec<_>>(), [(100, 120, 1024); 2]);
    }
    let freed = in_use(120, 1024, [[0, 0]; 3]);
    assert_eq!(values_of(&merge([&early, &late, &freed])), [Vec::<i64>::new(), vec![]]);
}

/// Check that a difference has what grew and what shrank by stack and tags, in the same order for objects and bytes, over the
/// time between the states; that spans do not divide it; and that nothing else is in it.
#[test]
fn a_difference_tells_growth_from_shrinking() {
    let mut newest = in_use(200, 512, [[7, 70], [2, 20], [1, 10]]);
    // The same place in another span.
    for profile in &mut newest.profiles {
        let first = profile.samples[0];
        profile.samples.push(profiler_proto::Sample { link: Default::default(), value: first.value, ..first });
    }
    newest.profiles.push(checkout().profiles[0].clone());
    let mut difference = Difference::of(&newest);
    difference.less(&in_use(100, 512, [[4, 40], [2, 20], [3, 30]]));
    let grown = difference.finish();
    assert_eq!(values_of(&grown), [vec![10, 0, -2], vec![100, 0, -20]]);
    assert_eq!((grown.profiles[1].time_unix_nanos, grown.profiles[1].end_unix_nanos()), (110, 210));
    assert_eq!(grown.dictionary.links.len(), 1);
    let mut gone = Difference::of(&in_use(200, 512, [[0, 0]; 3]));
    gone.less(&in_use(100, 512, [[i64::MIN, 1], [0, 0], [0, 0]]));
    assert_eq!(values_of(&gone.finish()), [vec![i64::MAX], vec![-1]]);
}

/// Check that two places of one name are two: where one function grew and another one of the same name shrank, both are seen.
#[test]
fn places_of_one_name_are_two() {
    let at = |address: u64, bytes: i64| {
        let mut set = in_use(100, 512, [[1, bytes], [0, 0], [0, 0]]);
        let stack = set.dictionary.stacks.get(set.profiles[0].samples[0].stack).unwrap().clone();
        let [leaf, callers @ ..] = &*stack.locations else { panic!("{stack:?}") };
        let mut leaf = set.dictionary.locations.get(*leaf).unwrap().clone();
        leaf.address = address;
        let leaf = set.dictionary.locations.intern(leaf);
        let stack = set.dictionary.stacks.intern(Stack { locations: [&[leaf], callers].concat().into() });
        set.profiles.iter_mut().for_each(|profile| profile.samples[0].stack = stack);
        set
    };
    let changed = |newest: ProfileSet, first: ProfileSet| {
        let mut difference = Difference::of(&newest);
        difference.less(&first);
        values_of(&difference.finish())
    };
    assert_eq!(changed(at(1, 50), at(2, 30)), [vec![1, -1], vec![50, -30]]);
    assert_eq!(changed(at(1, 50), at(1, 30)), [vec![0], vec![20]]);
}

/// Check that a filter wants every key and one of each key's values, numbers by their text.
#[test]
fn a_filter_wants_every_key_and_one_of_its_values() {
    let values = |filter: TagFilter| values_of(&checkout().filtered(&filter));
    let orders = TagFilter::new().with("endpoint", "/orders");
    assert_eq!(values(TagFilter::new()), [vec![5, 4], vec![65_536]]);
    assert_eq!(values(orders.clone()), [vec![5, 4], vec![]]);
    assert_eq!(values(orders.clone().with("endpoint", "/search").with("thread.id", "7")), [vec![5, 4], vec![]]);
    assert_eq!(values(orders.with("thread.id", "8")), [vec![], vec![]]);
    assert_eq!(values(TagFilter::new().with("size", "512")), [vec![], vec![65_536]]);
}

/// Check that a sum of filtered sets holds nothing of what was left out.
#[test]
fn a_filtered_sum_is_compact() {
    let (set, filter) = (checkout(), TagFilter::new().with("size", "512"));
    let mut sum = Merge::new();
    sum.add_samples(&set, filter.of(&set.dictionary));
    let sum = sum.finish();
    assert_eq!(sum, set.filtered(&filter));
    assert_eq!(sum.dictionary.attributes.iter().filter(|a| a.value == Value::from("/orders")).count(), 0);
    assert_eq!(sum.dictionary.links.len(), 1);
}

/// Check that a mapping whose build nobody can name is left out, and one with a build stays.
#[test]
fn mappings_have_builds() {
    let mut set = ProfileSet::default();
    let dictionary = &mut set.dictionary;
    let kind = Kind::cpu(dictionary, 1);
    let id = dictionary.attribute("process.executable.build_id.go", "abc");
    let other = dictionary.attribute("pprof.mapping.has_functions", true);
    let builds = [dictionary.attribute_set([id, other]), dictionary.attribute_set([other])];
    let samples = builds.into_iter().zip(1..).map(|(attributes, place)| {
        let mapping = Mapping { start: place << 20, limit: (place + 1) << 20, attributes, ..Mapping::default() };
        let mapping = dictionary.mappings.intern(mapping);
        let location = Location { mapping, address: (place << 20) + 1, ..Location::default() };
        let locations = Box::new([dictionary.locations.intern(location)]);
        Sample { stack: dictionary.stacks.intern(Stack { locations }), value: 1, ..Sample::default() }
    });
    let samples = samples.collect();
    set.profiles.push(Profile { kind, samples, ..Profile::default() });
    let known = set.of_known_builds();
    let starts: Vec<u64> = known.dictionary.mappings.iter().map(|mapping| mapping.start).collect();
    let of_places: Vec<bool> = known.dictionary.locations.iter().map(|place| place.mapping.is_zero()).collect();
    assert_eq!((starts, of_places), (vec![0, 1 << 20], vec![true, false, true]));
}

proptest! {
    /// Check that a set merged with nothing is its compact self, and with itself has every value twice.
    #[test]
    fn a_set_is_its_own_sum(plan in plans(values())) {
        let mut set = plan.build(false);
        // Two profiles of one kind would become one.
        set.profiles.truncate(1);
        for profile in &mut set.profiles {
            profile.samples.iter_mut().for_each(|sample| sample.value /= 64);
        }
        prop_assert_eq!(merge([&set]), set.compacted());
        let mut twice = set.compacted();
        twice.profiles.iter_mut().flat_map(|profile| &mut profile.samples).for_each(|sample| sample.value *= 2);
        prop_assert_eq!(merge([&set, &set]), twice);
    }

    /// Check that a set is taken as it is if, and only if, its compact form is the same.
    #[test]
    fn what_is_compact_is_not_copied(plan in plans(values()), twice in any::<bool>()) {
        let mut set = plan.build(false);
        if twice {
            set = set.compacted();
        }
        let copy = set.compacted();
        prop_assert_eq!(matches!(set.compact(), Cow::Borrowed(_)), set == copy);
        prop_assert_eq!(set.compact().into_owned(), copy);
    }

    /// Check that excerpts of one dictionary, made one after another, are what each is alone.
    #[test]
    fn an_excerpt_knows_nothing_of_the_one_before(plan in plans(values())) {
        let set = plan.build(false);
        let mut excerpts = Excerpts::new(&set.dictionary);
        for profile in &set.profiles {
            let alone =
                ProfileSet { dictionary: set.dictionary.clone(), profiles: vec![profile.clone()], ..ProfileSet::default() };
            prop_assert_eq!(excerpts.of([profile]), alone.compacted());
        }
    }
}
