//! What changed of the heap between two times, as Go's `net/http/pprof` answers `seconds=` for profiles that are states or totals.
//!
//! In: the profiles of the beginning and of the end. Out: one whose values are those of the end less those of the beginning, by stack, tags and
//! span; a value below zero is memory that went. Pure.

use std::collections::HashMap;

use profiler_proto::ProfileSet;
use profiler_proto::model::{AttributeSetId, Difference, merge};

use super::process::Process;

/// What changed of each process that is in both, in the order of `after`.
pub(super) fn changes(before: Vec<ProfileSet>, after: Vec<ProfileSet>) -> Vec<ProfileSet> {
    let mut before: HashMap<Process, ProfileSet> = before.into_iter().map(|set| (Process::of(&set), set)).collect();
    after.into_iter().filter_map(|after| Some(change(before.remove(&Process::of(&after))?, after))).collect()
}

/// `after` less `before`, from the one's end to the other's. Of what is in use, spans are left out.
fn change(before: ProfileSet, after: ProfileSet) -> ProfileSet {
    let mut states = Difference::of(&after);
    states.less(&before);
    let (mut before, mut after) = (totals(before), totals(after));
    for (before, after) in before.profiles.iter_mut().zip(&mut after.profiles) {
        let (began, ended) = (before.end_unix_nanos(), after.end_unix_nanos());
        (before.time_unix_nanos, before.duration_nanos) = (began, 0);
        (after.time_unix_nanos, after.duration_nanos) = (began, ended.saturating_sub(began));
        // The interval may be another one by now, and counts of what was lost are sums already.
        before.kind.period = after.kind.period;
        before.attributes = AttributeSetId::default();
        before.samples.iter_mut().for_each(|sample| sample.value = sample.value.saturating_neg());
    }
    let mut change = merge([&merge([&before, &after]), &states.finish()]);
    change.profiles.iter_mut().for_each(|profile| profile.samples.retain(|sample| sample.value != 0));
    change.compacted()
}

/// The profiles that are totals, and no states.
fn totals(set: ProfileSet) -> ProfileSet {
    let ProfileSet { resource, scope, dictionary, profiles } = set;
    let profiles = profiles.into_iter().filter(|profile| !profile.kind.is_state(&dictionary)).collect();
    ProfileSet { resource, scope, dictionary, profiles }
}

#[cfg(test)]
mod tests {
    use profiler_proto::model::{Kind, Profile};

    use super::super::testing::Stacks;
    use super::*;

    /// A profile of what lives: begun at second 1,000, after so many seconds.
    fn heap(seconds: u64, interval: i64, samples: &[(&str, i64)]) -> ProfileSet {
        let stacks = Stacks::new().at(1000, seconds).stacks(seconds as i64);
        let mut set = samples.iter().fold(stacks, |stacks, (path, bytes)| stacks.sample(path, *bytes)).set();
        let kinds = Kind::heap(&mut set.dictionary, interval);
        let states = Profile { kind: kinds[3], ..set.profiles[0].clone() };
        set.profiles[0].kind = kinds[1];
        set.profiles.push(states);
        set
    }

    /// Check that what grew and what shrank is what is left, over the time between, also where the interval changed; and that what stayed
    /// is gone.
    #[test]
    fn what_stayed_is_gone() {
        let before = heap(10, 512, &[("main;grows", 100), ("main;stays", 70), ("main;goes", 30)]);
        let after = heap(14, 1024, &[("main;grows", 250), ("main;stays", 70), ("main;comes", 5)]);
        let change = change(before, after);
        assert_eq!(change.profiles.len(), 2);
        for profile in &change.profiles {
            assert_eq!((profile.time_unix_nanos, profile.duration_nanos), (1_010_000_000_000, 4_000_000_000));
            assert_eq!(profile.kind.period, 1024);
            let mut values: Vec<i64> = profile.samples.iter().map(|sample| sample.value).collect();
            values.sort_unstable();
            assert_eq!(values, [-30, 5, 150]);
            let counts: Vec<_> = change.dictionary.attributes_of(profile.attributes).collect();
            assert_eq!(counts.iter().map(|(_, count)| count.as_int()).collect::<Vec<_>>(), [Some(14)]);
        }
        let names: Vec<&str> =
            change.dictionary.functions.iter().map(|function| change.dictionary.strings.text(function.name)).collect();
        assert!(names.contains(&"comes") && !names.contains(&"stays"), "{names:?}");
    }
    /// Check that each process is compared with itself, and that one that came or went in between is left out.
    #[test]
    fn each_process_is_compared_with_itself() {
        let of = |pid: i64, bytes: i64| {
            let mut set = heap(bytes as u64, 512, &[("main;a", bytes)]);
            set.resource.set("process.pid", pid);
            set
        };
        let changes = changes(vec![of(1, 10), of(2, 20), of(3, 30)], vec![of(2, 25), of(1, 40), of(4, 50)]);
        let values: Vec<i64> = changes.iter().map(|set| set.profiles[0].samples[0].value).collect();
        assert_eq!(values, [5, 30]);
    }
}
