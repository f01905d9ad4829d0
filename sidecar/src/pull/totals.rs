//! What is counted from a program's start, made into what came since it was asked last.
//!
//! In: one decoded answer after the other. Out: the same with the difference to the one before, sample by sample: a stack and its labels are known again
//! by a hash of addresses, names and lines, for ids are others in each answer. Where what was counted before fell as a whole, the count began anew, as the program
//! did: then nothing says when what it has came about. Pure.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use profiler_proto::ProfileSet;
use profiler_proto::hash::{Map, State};
use profiler_proto::model::{Dictionary, LocationId, Sample};

use crate::capture::{Room, Taken};

/// Values by profile and stack, as they were last; none before the first answer.
#[derive(Debug, Default)]
pub(super) struct Totals {
    before: Option<Before>,
    /// The room that they take.
    kept: Option<Taken>,
    /// When that was, nanoseconds since 1970.
    asked: Option<u64>,
    hasher: State,
}

#[derive(Debug, Default)]
struct Before {
    /// How many sample types there are.
    types: usize,
    /// By sample type, in the order of the answer.
    values: Map<u64, Vec<i64>>,
}

impl Before {
    /// Bytes of memory, about.
    fn bytes(&self) -> usize {
        const ENTRY: usize = 2 * size_of::<(u64, Vec<i64>)>();
        self.values.capacity() * ENTRY + self.values.len() * (size_of::<i64>() * self.types + 16)
    }
}

impl Totals {
    /// Leaves of each profile that counts from the start what came since the last answer; states stay. When the question to that was asked, nanoseconds since
    /// 1970, which is longer ago than the last one where that had no answer; this one is asked `now`. `Some(None)`: this is the first answer, or the count began anew,
    /// so nothing is told. `None`: there is no room for them, so they begin anew.
    pub(super) fn since(&mut self, set: &mut ProfileSet, now: u64, room: &Room) -> Option<Option<u64>> {
        let is_told = self.differ(set);
        self.kept = None;
        let Some(kept) = room.take(self.before.as_ref().map_or(0, Before::bytes)) else {
            *self = Self::default();
            return None;
        };
        self.kept = Some(kept);
        Some(self.asked.replace(now).filter(|_| is_told))
    }

    /// Whether there was a count to take from this one.
    fn differ(&mut self, set: &mut ProfileSet) -> bool {
        let mut now = self.read(set);
        let before = self.before.take().filter(|before| !has_fallen(before, &now));
        for (key, values) in before.iter().flat_map(|before| &before.values) {
            // The highest so far: what fell (estimates do) rises to what was told already.
            let risen = now.values.get_mut(key).into_iter().flatten().zip(values);
            risen.for_each(|(now, before)| *now = (*now).max(*before));
        }
        let known = before.as_ref().map(|before| &before.values);
        let is_told = known.is_some();
        let (hasher, mut keys) = (&self.hasher, Map::default());
        let (profiles, dictionary) = (&mut set.profiles, &set.dictionary);
        for (column, profile) in
            profiles.iter_mut().enumerate().filter(|(_, profile)| !profile.kind.is_state(dictionary))
        {
            // Of two samples with one key, which decoding leaves none of, the second would be taken for nothing.
            for sample in &mut profile.samples {
                let key =
                    *keys.entry((sample.stack, sample.attributes)).or_insert_with(|| key(hasher, dictionary, sample));
                let last = |known: &Map<u64, Vec<i64>>| known.get(&key).and_then(|values| values.get(column)).copied();
                sample.value = match known {
                    None => 0,
                    Some(known) => sample.value.saturating_sub(last(known).unwrap_or(0)).max(0),
                };
            }
        }
        self.before = Some(now);
        is_told
    }

    fn read(&self, set: &ProfileSet) -> Before {
        let mut now = Before { types: set.profiles.len(), ..Before::default() };
        for (column, profile) in set.profiles.iter().enumerate() {
            if profile.kind.is_state(&set.dictionary) {
                continue;
            }
            for sample in &profile.samples {
                let key = key(&self.hasher, &set.dictionary, sample);
                let values = now.values.entry(key).or_insert_with(|| vec![0; set.profiles.len()]);
                if let Some(value) = values.get_mut(column) {
                    *value = value.saturating_add(sample.value);
                }
            }
        }
        now
    }
}

/// Whether this is another count: other types, or, of the stacks that were known, less of one type in all. What came at others says nothing of it: a program that
/// began anew may have done more since than the one before.
fn has_fallen(before: &Before, now: &Before) -> bool {
    let change = |column: usize| {
        let value = |values: &Vec<i64>| values.get(column).map_or(0, |value| i128::from(*value));
        let of = |(key, values): (&u64, &Vec<i64>)| now.values.get(key).map_or(0, value) - value(values);
        before.values.iter().map(of).sum::<i128>()
    };
    before.types != now.types || (0..now.types).any(|column| change(column) < 0)
}

fn key(hasher: &State, dictionary: &Dictionary, sample: &Sample) -> u64 {
    let mut hash = hasher.build_hasher();
    let stack = dictionary.stacks.get(sample.stack);
    for location in stack.map_or(&[][..], |stack| &stack.locations) {
        location_key(&mut hash, dictionary, *location);
    }
    for (key, value) in dictionary.attributes_of(sample.attributes) {
        (key, value.to_string()).hash(&mut hash);
    }
    hash.finish()
}

fn location_key(hash: &mut impl std::hash::Hasher, dictionary: &Dictionary, location: LocationId) {
    let Some(location) = dictionary.locations.get(location) else { return };
    (location.address, location.lines.len()).hash(hash);
    for line in &location.lines {
        let name =
            dictionary.functions.get(line.function).map_or("", |function| dictionary.strings.text(function.name));
        (name, line.line).hash(hash);
    }
}

#[cfg(test)]
mod tests {
    use profiler_proto::model::{AttributeSetId, Function, Kind, Line, LinkId, Location, Profile, Stack};

    use super::*;

    /// A heap with allocations of these functions, and as much in use; the order changes ids.
    fn heap(allocated: &[(&str, i64)]) -> ProfileSet {
        let mut set = ProfileSet::default();
        let [_, space, _, in_use] = Kind::heap(&mut set.dictionary, 1);
        let samples: Vec<Sample> =
            allocated.iter().map(|(name, value)| sample(&mut set.dictionary, name, *value)).collect();
        for kind in [space, in_use] {
            set.profiles.push(Profile { kind, samples: samples.clone(), ..Profile::default() });
        }
        set
    }

    fn sample(dictionary: &mut Dictionary, name: &str, value: i64) -> Sample {
        let name = dictionary.strings.intern_str(name);
        let function = dictionary.functions.intern(Function { name, ..Function::default() });
        let lines = [Line { function, line: 1, column: 0 }].into();
        let location = dictionary.locations.intern(Location { lines, ..Location::default() });
        let stack = dictionary.stacks.intern(Stack { locations: [location].into() });
        Sample { stack, attributes: AttributeSetId::ZERO, link: LinkId::ZERO, value }
    }

    fn told(totals: &mut Totals, allocated: &[(&str, i64)]) -> [Vec<i64>; 2] {
        let mut set = heap(allocated);
        totals.since(&mut set, 0, &Room::of(1 << 20)).unwrap();
        [0, 1].map(|column| set.profiles[column].samples.iter().map(|sample| sample.value).collect())
    }

    #[test]
    fn what_came_since_is_told_and_states_as_they_are() {
        let mut totals = Totals::default();
        assert_eq!(told(&mut totals, &[("a", 5), ("b", 7)]), [vec![0, 0], vec![5, 7]]);
        assert_eq!(told(&mut totals, &[("b", 9), ("c", 3), ("a", 5)]), [vec![2, 3, 0], vec![9, 3, 5]]);
        // One stack fell, as an estimate may; not the whole.
        assert_eq!(told(&mut totals, &[("b", 8), ("c", 10), ("a", 5)])[0], [0, 7, 0]);
    }

    /// Check that a difference is said to be one only where there is: not of a first answer, nor of a count that began anew.
    #[test]
    fn a_first_answer_tells_nothing() {
        let mut totals = Totals::default();
        let told = [50, 60, 20, 20].map(|allocated| {
            totals.since(&mut heap(&[("a", allocated)]), allocated as u64, &Room::of(1 << 20)).unwrap()
        });
        assert_eq!(told, [None, Some(50), None, Some(20)]);
    }

    /// Check that what endpoints keep has room together: who finds none begins anew, and takes none; the others keep theirs, and give it back.
    #[test]
    fn totals_share_their_room() {
        let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let many: Vec<(&str, i64)> = names.iter().map(|name| (&**name, 1)).collect();
        let since = |totals: &mut Totals, room: &Room| totals.since(&mut heap(&many), 7, room);
        let [mut first, mut second, mut third] = [(); 3].map(|()| Totals::default());
        let needed = (1..).map(|kib| kib << 10).find(|bytes| since(&mut third, &Room::of(*bytes)).is_some()).unwrap();
        assert!(needed > 1000 * size_of::<[i64; 3]>(), "{needed}");
        let room = Room::of(needed * 3 / 2);
        assert_eq!([since(&mut first, &room), since(&mut second, &room)], [Some(None), None]);
        // Room is given back before more is taken.
        assert_eq!([since(&mut first, &room), since(&mut second, &room)], [Some(Some(7)), None]);
        drop(first);
        assert_eq!([since(&mut second, &room), since(&mut second, &room)], [Some(None), Some(Some(7))]);
    }

    #[test]
    fn a_count_that_fell_began_anew() {
        let mut totals = Totals::default();
        told(&mut totals, &[("a", 50)]);
        assert_eq!(told(&mut totals, &[("a", 20), ("b", 10)])[0], [0, 0]);
        assert_eq!(told(&mut totals, &[("a", 26), ("b", 10)])[0], [6, 0]);
        // More in all, and at other stacks: as of a program that lies elsewhere in memory each time it is started.
        assert_eq!(told(&mut totals, &[("c", 900), ("b", 10)])[0], [0, 0]);
        assert_eq!(told(&mut totals, &[("c", 905), ("b", 10), ("d", 1)])[0], [5, 0, 1]);
    }
}
