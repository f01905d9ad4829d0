//! Sums of sets, and choosing samples by tag.

use profiler_proto::ProfileSet;
use profiler_proto::model::{Merge, TagFilter, Value, merge};
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

/// Check that samples of equal stack, tags and span are summed, windows joined and counts added up.
#[test]
fn two_windows_become_one() {
    let sum = merge([&checkout(), &later(2)]);
    assert_eq!(values_of(&sum), [vec![10, 8], vec![131_072]]);
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
    assert_eq!(values_of(&merge([&checkout(), &faster])), [vec![5, 4], vec![131_072], vec![5, 4]]);
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
}
