//! Several sets of one process as one: what the in-memory store answers a window of time with.
//!
//! In: sets of the same resource, oldest first. Out: one compact set with one profile per kind; what is in use is not
//! summed, of it the last state stays. Costs one look-up per element of each set and one per sample.

use indexmap::IndexMap;

use super::compact::Sums;
use super::import::Import;
use super::{AttributeId, AttributeSetId, Dictionary, Kind, Profile, ProfileSet, Sample, Value};
use crate::loss;

/// A sum of sets under way.
#[derive(Debug, Default)]
pub struct Merge {
    sum: ProfileSet,
    profiles: IndexMap<Kind, Open>,
}

/// A profile whose samples still come in.
#[derive(Debug)]
pub(super) struct Open {
    start: u64,
    end: u64,
    attributes: IndexMap<AttributeKey, AttributeId>,
    pub(super) sums: Sums,
}

/// The key of an attribute, as an id of the sum's dictionary.
type AttributeKey = super::StringId;

impl Merge {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds all of `set`.
    pub fn add(&mut self, set: &ProfileSet) {
        self.add_samples(set, |_| true);
    }

    /// Adds `set` with only those samples that `keep` wants (see [`TagFilter`](super::TagFilter)).
    ///
    /// Samples of equal kind, stack, attributes and link are summed, windows are joined, the counts that
    /// [`loss`](crate::loss) puts on profiles are added up; of other attributes of a profile the last value holds.
    /// Of states ([`Kind::is_state`]) only the latest of each type stays, with its own attributes, and the joined window.
    /// Resource and scope are those of the first set.
    pub fn add_samples(&mut self, set: &ProfileSet, mut keep: impl FnMut(&Sample) -> bool) {
        if self.sum.profiles.is_empty() && self.profiles.is_empty() {
            self.sum.resource = set.resource.clone();
            self.sum.scope = set.scope.clone();
        }
        let (mut import, into) = (Import::new(&set.dictionary), &mut self.sum.dictionary);
        for profile in &set.profiles {
            let mut head = import.head(profile, into);
            if head.kind.is_state(into) && !takes_over(&mut head, &mut self.profiles) {
                continue;
            }
            let open = self.profiles.entry(head.kind).or_insert_with(|| Open::new(&head));
            open.join(&head, into);
            for sample in profile.samples.iter().filter(|sample| keep(sample)) {
                open.sums.add(import.sample(sample, into));
            }
        }
    }

    /// The sum of all that was added.
    #[must_use]
    pub fn finish(mut self) -> ProfileSet {
        let dictionary = &mut self.sum.dictionary;
        self.sum.profiles = self.profiles.into_iter().map(|(kind, open)| open.close(kind, dictionary)).collect();
        self.sum.compacted()
    }
}

/// Whether a state is the latest of its type so far; the one before goes then, whatever its period, and leaves its window.
fn takes_over(head: &mut Profile, profiles: &mut IndexMap<Kind, Open>) -> bool {
    let (sample_type, end) = (head.kind.sample_type, head.end_unix_nanos());
    let mut before = profiles.iter().filter(|(kind, _)| kind.sample_type == sample_type).map(|(_, open)| open);
    let Some((from, to)) = before.next().map(|open| (open.start, open.end)) else { return true };
    let start = head.time_unix_nanos.min(from);
    if to > end {
        let of_type = profiles.iter_mut().filter(|(kind, _)| kind.sample_type == sample_type);
        of_type.for_each(|(_, open)| open.start = start);
        return false;
    }
    head.time_unix_nanos = start;
    head.duration_nanos = end - start;
    profiles.retain(|kind, _| kind.sample_type != sample_type);
    true
}

/// The sum of `sets`, all of one process; see [`Merge::add_samples`].
#[must_use]
pub fn merge<'a>(sets: impl IntoIterator<Item = &'a ProfileSet>) -> ProfileSet {
    let mut sum = Merge::new();
    sets.into_iter().for_each(|set| sum.add(set));
    sum.finish()
}

impl Open {
    pub(super) fn new(head: &Profile) -> Self {
        let attributes = IndexMap::new();
        Self { start: head.time_unix_nanos, end: head.time_unix_nanos, attributes, sums: Sums::default() }
    }

    pub(super) fn join(&mut self, head: &Profile, dictionary: &mut Dictionary) {
        self.start = self.start.min(head.time_unix_nanos);
        self.end = self.end.max(head.end_unix_nanos());
        for id in ids_of(head.attributes, dictionary) {
            let Some(attribute) = dictionary.attributes.get(id).cloned() else { continue };
            let id = match self.attributes.get(&attribute.key).and_then(|known| dictionary.attributes.get(*known)) {
                Some(known) if loss::is_count(dictionary.strings.text(attribute.key)) => {
                    let value = added(&known.value, &attribute.value);
                    dictionary.attributes.intern(super::Attribute { value, ..attribute.clone() })
                }
                _ => id,
            };
            self.attributes.insert(attribute.key, id);
        }
    }

    pub(super) fn close(self, kind: Kind, dictionary: &mut Dictionary) -> Profile {
        Profile {
            kind,
            time_unix_nanos: self.start,
            duration_nanos: self.end - self.start,
            attributes: dictionary.attribute_set(self.attributes.into_values()),
            samples: self.sums.into_samples(),
        }
    }
}

fn ids_of(set: AttributeSetId, dictionary: &Dictionary) -> Vec<AttributeId> {
    dictionary.attribute_sets.get(set).map_or(&[][..], super::AttributeSet::ids).to_vec()
}

/// The sum of two counts; the later value where one is none.
fn added(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.saturating_add(*b)),
        (_, later) => later.clone(),
    }
}
