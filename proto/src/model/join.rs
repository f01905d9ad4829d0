//! Sets of several processes as one, their samples labelled: what a merged `/debug/pprof/profile` answers with.
//!
//! In: one set for each process, and the labels that tell it from the others. Out: one compact set with one profile per kind and one window.
//! States of different processes are summed, for they are there beside each other; on-CPU samples of different rates are brought to the finest
//! period of all.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::import::Import;
use super::merge::Open;
use super::resource::Resource;
use super::{AttributeId, AttributeSet, AttributeSetId, Dictionary, Kind, Profile, ProfileSet, Value, ValueType};

/// What tells the samples of one process from those of the others.
pub type Labels = Vec<(&'static str, Value)>;

/// The sum of `sets`, one or several for each process, each process merged before; each sample carries the labels of its set.
///
/// The resource is what all sets have in common, the scope that of the first.
#[must_use]
pub fn join(sets: &[(&ProfileSet, Labels)]) -> ProfileSet {
    let mut sum = ProfileSet { resource: in_common(sets), ..ProfileSet::default() };
    sum.scope = sets.first().map(|(set, _)| set.scope.clone()).unwrap_or_default();
    let mut profiles: IndexMap<Kind, Open> = IndexMap::new();
    let finest = Finest::of(sets.iter().map(|(set, _)| *set));
    for (set, labels) in sets {
        let (mut import, into) = (Import::new(&set.dictionary), &mut sum.dictionary);
        let labels: Vec<AttributeId> = labels.iter().map(|(key, value)| into.attribute(key, value.clone())).collect();
        let mut labelled = HashMap::new();
        for profile in &set.profiles {
            let mut head = import.head(profile, into);
            head.kind.period = finest.period(profile, &set.dictionary);
            let mut scale = Scale::new(profile.kind, head.kind.period, &set.dictionary);
            let open = profiles.entry(head.kind).or_insert_with(|| Open::new(&head));
            open.join(&head, into);
            for sample in &profile.samples {
                let mut sample = import.sample(sample, into);
                let attributes = sample.attributes;
                sample.attributes =
                    *labelled.entry(attributes).or_insert_with(|| with_labels(attributes, &labels, into));
                sample.value = scale.apply(sample.value);
                open.sums.add(sample);
            }
        }
    }
    sum.profiles = closed(profiles, &mut sum.dictionary);
    sum.compacted()
}

/// The profiles, all with the window of all, for one file has one window.
fn closed(profiles: IndexMap<Kind, Open>, dictionary: &mut Dictionary) -> Vec<Profile> {
    let mut closed: Vec<Profile> = profiles.into_iter().map(|(kind, open)| open.close(kind, dictionary)).collect();
    let start = closed.iter().map(|profile| profile.time_unix_nanos).min().unwrap_or(0);
    let end = closed.iter().map(Profile::end_unix_nanos).max().unwrap_or(0);
    for profile in &mut closed {
        (profile.time_unix_nanos, profile.duration_nanos) = (start, end - start);
    }
    closed
}

fn with_labels(set: AttributeSetId, labels: &[AttributeId], dictionary: &mut Dictionary) -> AttributeSetId {
    let ids = dictionary.attribute_sets.get(set).map_or(&[][..], AttributeSet::ids).to_vec();
    dictionary.attribute_set(ids.into_iter().chain(labels.iter().copied()))
}

/// The attributes that all sets have with the same value.
fn in_common(sets: &[(&ProfileSet, Labels)]) -> Resource {
    let Some(((first, _), others)) = sets.split_first() else { return Resource::new() };
    let is_common = |key: &str, value: &Value| others.iter().all(|(set, _)| set.resource.get(key) == Some(value));
    let common = first.resource.attributes().iter().filter(|(key, value)| is_common(key, value));
    common.fold(Resource::new(), |resource, (key, value)| resource.with(key.clone(), value.clone()))
}

/// The finest period of each type; one of zero or less is none.
struct Finest {
    periods: HashMap<(String, String), i64>,
}

impl Finest {
    fn of<'a>(sets: impl Iterator<Item = &'a ProfileSet>) -> Self {
        let mut periods = HashMap::new();
        for set in sets {
            for profile in set.profiles.iter().filter(|profile| profile.kind.period > 0) {
                let period = periods.entry(names(profile.kind.period_type, &set.dictionary)).or_insert(i64::MAX);
                *period = profile.kind.period.min(*period);
            }
        }
        Self { periods }
    }

    fn period(&self, profile: &Profile, dictionary: &Dictionary) -> i64 {
        let known = self.periods.get(&names(profile.kind.period_type, dictionary)).copied();
        known.filter(|_| profile.kind.period > 0).unwrap_or(profile.kind.period)
    }
}

fn names(of: ValueType, dictionary: &Dictionary) -> (String, String) {
    (dictionary.strings.text(of.kind).to_owned(), dictionary.strings.text(of.unit).to_owned())
}

/// Brings on-CPU samples, whose values are periods, to another period.
///
/// What a value is more than whole periods goes over to the next one, so that a sum is wrong by less than one period, however many
/// samples there are. Values of all other kinds have units of their own and stay.
#[derive(Debug, Clone)]
pub struct Scale {
    from: i128,
    to: i128,
    rest: i128,
}

impl Scale {
    /// From the period of `kind` to `period`.
    #[must_use]
    pub fn new(kind: Kind, period: i64, dictionary: &Dictionary) -> Self {
        if kind.is_cpu(dictionary) && kind.period > 0 && period > 0 {
            Self { from: kind.period.into(), to: period.into(), rest: 0 }
        } else {
            Self { from: 1, to: 1, rest: 0 }
        }
    }

    /// The value in the new period; it ends at the ends of `i64`.
    pub fn apply(&mut self, value: i64) -> i64 {
        if self.from == self.to {
            return value;
        }
        // Two 64-bit numbers multiplied and a rest below a third fit.
        let whole = i128::from(value) * self.from + self.rest;
        self.rest = whole.rem_euclid(self.to);
        let scaled = whole.div_euclid(self.to);
        i64::try_from(scaled).unwrap_or(if scaled > 0 { i64::MAX } else { i64::MIN })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Function, Line, Location, Sample, Stack};
    use super::*;

    /// On-CPU samples at `hz`, one for each value, each in a function of its own.
    fn cpu(service: &str, hz: i64, values: &[i64]) -> ProfileSet {
        let mut set = ProfileSet::default();
        set.resource.set("service.name", service);
        set.resource.set("host.name", "one");
        let kind = Kind::cpu(&mut set.dictionary, 1_000_000_000 / hz);
        let mut profile = Profile { kind, time_unix_nanos: 100, duration_nanos: hz as u64, ..Profile::default() };
        profile.samples = values.iter().enumerate().map(|(n, value)| sample(&mut set.dictionary, n, *value)).collect();
        set.profiles.push(profile);
        set
    }

    fn sample(dictionary: &mut Dictionary, n: usize, value: i64) -> Sample {
        let name = dictionary.strings.intern_str(&format!("f{n}"));
        let function = dictionary.functions.intern(Function { name, ..Function::default() });
        let lines = vec![Line { function, line: 0, column: 0 }].into();
        let location = dictionary.locations.intern(Location { address: n as u64, lines, ..Location::default() });
        let stack = dictionary.stacks.intern(Stack { locations: vec![location].into() });
        Sample { stack, value, ..Sample::default() }
    }

    /// Check that equal stacks of two processes stay apart by their labels, that rates are brought to the finest period with sums that are
    /// wrong by less than one, and that only common attributes stay.
    #[test]
    fn processes_stay_apart_and_periods_agree() {
        let (rust, go) = (cpu("shop", 100, &[5, 7]), cpu("inventory", 99, &[1; 200]));
        let labels = |service: &str, pid: i64| vec![("service", Value::from(service)), ("pid", Value::from(pid))];
        let sum = join(&[(&rust, labels("shop", 1)), (&go, labels("inventory", 2))]);
        assert_eq!(sum.profiles.len(), 1);
        let profile = &sum.profiles[0];
        assert_eq!((profile.kind.period, profile.duration_nanos, profile.samples.len()), (10_000_000, 100, 202));
        let of = |service: &str| -> i64 {
            let is_of = |sample: &&Sample| {
                sum.dictionary.value_of(sample.attributes, "service").and_then(Value::as_str) == Some(service)
            };
            profile.samples.iter().filter(is_of).map(|sample| sample.value).sum()
        };
        // 200 samples of 10,101,010 ns are 202.02 of 10 ms.
        assert_eq!((of("shop"), of("inventory")), (12, 202));
        assert_eq!(sum.resource.attributes(), [("host.name".to_owned(), Value::from("one"))]);
    }

    /// Check that what two processes have at the same time is summed.
    #[test]
    fn states_of_processes_are_summed() {
        let state = |value| {
            let mut set = cpu("a", 100, &[value]);
            set.profiles[0].kind = Kind::goroutine(&mut set.dictionary);
            set
        };
        let sum = join(&[(&state(3), Vec::new()), (&state(4), Vec::new())]);
        assert_eq!(sum.profiles[0].samples.iter().map(|sample| sample.value).collect::<Vec<_>>(), [7]);
    }

    /// Check that scaling ends at the ends of its type, below zero too, and leaves bad periods alone.
    #[test]
    fn scaling_is_total() {
        let mut dictionary = Dictionary::default();
        let [fine, coarse, none] = [1, i64::MAX, 0].map(|period| Kind::cpu(&mut dictionary, period));
        let mut up = Scale::new(coarse, 1, &dictionary);
        assert_eq!([i64::MAX, i64::MIN, 0].map(|value| up.apply(value)), [i64::MAX, i64::MIN, 0]);
        let mut down = Scale::new(fine, i64::MAX, &dictionary);
        assert_eq!([-1, -1, i64::MAX].map(|value| down.apply(value)), [-1, 0, 1]);
        assert_eq!(Scale::new(none, 5, &dictionary).apply(9), 9);
    }
}
