//! Dividing a set into parts that are small enough to send.
//!
//! In: a set of any size and the bound of a request. Out: parts in the order of the original, each with a dictionary of
//! its own. Some backends copy the dictionary of a request for each of its profiles, and store half a request if that
//! grows too large; so it is counted once per profile ([`request_bytes`]).

mod bound;

use std::borrow::Cow;

use crate::model::{Attribute, AttributeSet, Dictionary, Profile, ProfileSet, Sample, Value};
use crate::{loss, otlp, pprof};

/// What became of a set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    /// Parts within the bound, compact, in the order of the original.
    pub parts: Vec<ProfileSet>,
    /// Single samples that are beyond it alone, one set each; and what was left when dividing had copied many times the set, for texts in it that are nearly as long as a
    /// request.
    pub too_large: Vec<ProfileSet>,
}

/// Most samples of a profile that backends take: Pyroscope refuses more, with its default limits
/// (`max_profile_stacktrace_samples`), and with them all of the request.
pub const MAX_SAMPLES: usize = 16_000;

/// Divides `set` so that [`request_bytes`] of each part is at most `limit`, and no profile has more than [`MAX_SAMPLES`]: first by
/// profiles, then by samples.
///
/// What [`loss::is_count`] counts on a profile is shared out among its parts in proportion to the weight of their
/// samples; the sums over the parts and what is too large are exactly the original's.
#[must_use]
pub fn split(set: &ProfileSet, limit: usize) -> Split {
    let mut split = Split::default();
    let fits = |part: &ProfileSet| fits(part, limit).then_some(());
    split_by(set, fits, |part, fits| match fits {
        Some(()) => split.parts.push(part.into_owned()),
        None => split.too_large.push(part.into_owned()),
    });
    split
}

/// Whether [`request_bytes`] of `set`, which is compact, is at most `limit`; told without encoding it where it is far below or far above.
#[must_use]
pub fn fits(set: &ProfileSet, limit: usize) -> bool {
    bound::request_bytes_at_most(set) <= limit
        || (bound::request_bytes_at_least(set) <= limit && request_bytes(set) <= limit)
}

/// Divides `set` as [`split`] does, where `write` writes a compact part as it is to be sent, if it is small enough for that. Each part
/// is `given` with what was written of it as soon as it is found, in the order of the original; what is too large ([`Split::too_large`]) comes without.
pub fn split_by<T>(
    set: &ProfileSet,
    mut write: impl FnMut(&ProfileSet) -> Option<T>,
    mut given: impl FnMut(Cow<'_, ProfileSet>, Option<T>),
) {
    let set = set.compact();
    let mut work = Work(bound::texts_and_frames(&set).saturating_mul(WORK).max(LEAST_WORK));
    halve(set, &mut work, &mut write, &mut given);
}

/// Bytes that dividing a set may copy, as often as it has. To divide what can be divided takes some times the whole, but each part has its own copy of a text that all
/// refer to, and one of megabytes would be copied for each sample.
const WORK: usize = 8;
/// Bytes that it may copy in any case.
const LEAST_WORK: usize = 64 << 20;

/// Bytes that may still be copied.
struct Work(usize);

impl Work {
    /// Whether there is work left for `set`, which is taken off.
    fn takes(&mut self, set: &ProfileSet) -> bool {
        self.0 = self.0.saturating_sub(bound::texts_and_frames(set));
        self.0 > 0
    }
}

/// The size of `set`, which is compact, as an OTLP request, in bytes before compression, with the dictionary counted once per profile.
#[must_use]
pub fn request_bytes(set: &ProfileSet) -> usize {
    otlp::Request::of(set).bytes_as_stored()
}

fn halve<T>(
    set: Cow<'_, ProfileSet>,
    work: &mut Work,
    write: &mut impl FnMut(&ProfileSet) -> Option<T>,
    given: &mut impl FnMut(Cow<'_, ProfileSet>, Option<T>),
) {
    if !work.takes(&set) {
        return given(set, None);
    }
    let are_short = set.profiles.iter().all(|profile| profile.samples.len() <= MAX_SAMPLES);
    if are_short && let Some(written) = write(&set) {
        return given(set, Some(written));
    }
    let halves = match set.profiles.as_slice() {
        [profile] if profile.samples.len() > 1 => halves_of(profile, &set),
        [] | [_] => {
            return given(set, None);
        }
        profiles => {
            let (head, tail) = profiles.split_at(middle_of(profiles));
            [set.with_profiles(head), set.with_profiles(tail)]
        }
    };
    // The whole goes before its halves are divided further, so that memory stays within a few times the original.
    drop(set);
    halves.into_iter().for_each(|half| halve(Cow::Owned(half), work, write, given));
}

/// Where to divide profiles: at the middle, or near it where what belongs together stays so, for some destinations take it alone.
fn middle_of(profiles: &[Profile]) -> usize {
    let middle = profiles.len() / 2;
    let is_seam = |at: &usize| !pprof::is_together(&profiles[at - 1], &profiles[*at]);
    (1..profiles.len()).filter(is_seam).min_by_key(|at| at.abs_diff(middle)).unwrap_or(middle)
}

fn halves_of(profile: &Profile, set: &ProfileSet) -> [ProfileSet; 2] {
    let (head, tail) = profile.samples.split_at(profile.samples.len() / 2);
    let share = Share::between(head, tail);
    let mut dictionary = set.dictionary.clone();
    let (first, second) = share.attributes(profile, &mut dictionary);
    let whole =
        ProfileSet { resource: set.resource.clone(), scope: set.scope.clone(), dictionary, profiles: Vec::new() };
    [(head, first), (tail, second)].map(|(samples, attributes)| {
        whole.with_profiles(&[Profile { attributes, samples: samples.to_vec(), ..*profile }])
    })
}

/// How much of a count goes with the first of two parts: `part` of `whole`.
struct Share {
    part: u128,
    whole: u128,
}

impl Share {
    /// By weight, or by number where there is no weight.
    fn between(head: &[Sample], tail: &[Sample]) -> Self {
        let weight = |samples: &[Sample]| -> u128 { samples.iter().map(|s| u128::from(s.value.unsigned_abs())).sum() };
        let (first, second) = (weight(head), weight(tail));
        if first + second > 0 {
            Self { part: first, whole: first + second }
        } else {
            Self { part: head.len() as u128, whole: (head.len() + tail.len()).max(1) as u128 }
        }
    }

    /// The first part of `count`, rounded down; the second one is what is left of it.
    fn of(&self, count: i64) -> i64 {
        // A weight is a sum of fewer than 2³² values below 2⁶⁴: scaled down to 64 bits, the product stays within `u128`.
        let scale = self.whole.ilog2().saturating_sub(63);
        let product = u128::from(count.unsigned_abs()) * (self.part >> scale);
        let part = i64::try_from(product / (self.whole >> scale).max(1)).unwrap_or(i64::MAX);
        part.min(count.saturating_abs()) * count.signum()
    }

    /// The attributes of `profile` for either part.
    fn attributes(
        &self,
        profile: &Profile,
        dictionary: &mut Dictionary,
    ) -> (crate::model::AttributeSetId, crate::model::AttributeSetId) {
        let ids = dictionary.attribute_sets.get(profile.attributes).map_or(&[][..], AttributeSet::ids).to_vec();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for id in ids {
            match dictionary.attributes.get(id).cloned() {
                Some(Attribute { key, value: Value::Int(count), unit })
                    if loss::is_count(dictionary.strings.text(key)) =>
                {
                    let part = self.of(count);
                    let mut share =
                        |value| dictionary.attributes.intern(Attribute { key, value: Value::Int(value), unit });
                    first.push(share(part));
                    second.push(share(count - part));
                }
                _ => {
                    first.push(id);
                    second.push(id);
                }
            }
        }
        (dictionary.attribute_set(first), dictionary.attribute_set(second))
    }
}
