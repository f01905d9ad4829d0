//! How large a request can be at most, and at least, without writing it: sums over the tables, each number counted as long as protobuf can make it, or left out.
//!
//! Most windows are far below a request's limit, and need not be encoded to know it; what has to be divided several times is far above.
//! Source: protobuf.dev, "Encoding": a tag of one byte, lengths and 32-bit numbers in up to 5 bytes, 64-bit ones in up to 10; opentelemetry/proto/profiles/v1development/profiles.proto.

use crate::model::{AttributeSet, AttributeSetId, Dictionary, Profile, ProfileSet, Value};

/// A field with a length before it, or a 32-bit number.
const FIELD: usize = 6;
/// A field with a 64-bit number.
const LONG: usize = 11;

/// At least what [`request_bytes`](super::request_bytes) says of `set`.
pub(super) fn request_bytes_at_most(set: &ProfileSet) -> usize {
    let dictionary = dictionary(&set.dictionary);
    let profiles = set.profiles.iter().map(|of| dictionary + profile(of, &set.dictionary));
    profiles.fold(0, usize::saturating_add).max(dictionary)
}

/// At most what [`request_bytes`](super::request_bytes) says of `set`: profiles without samples are not in a request.
pub(super) fn request_bytes_at_least(set: &ProfileSet) -> usize {
    let sent = set.profiles.iter().filter(|profile| !profile.samples.is_empty()).count();
    if sent < set.profiles.len() { 0 } else { texts_and_frames(set).saturating_mul(sent) }
}

/// Texts, a byte for each frame, and what stands before each text and stack: at most what the dictionary takes in a request.
pub(super) fn texts_and_frames(set: &ProfileSet) -> usize {
    let Dictionary { strings, stacks, .. } = &set.dictionary;
    let texts = strings.iter().map(|text| 2 + text.len());
    let stacks = stacks.iter().map(|stack| 2 + stack.locations.len());
    texts.chain(stacks).fold(0, usize::saturating_add)
}

fn dictionary(dictionary: &Dictionary) -> usize {
    let Dictionary { strings, mappings, functions, locations, stacks, attributes, attribute_sets: _, links } =
        dictionary;
    let indices = |set| indices(set, dictionary);
    let texts = strings.iter().map(|text| FIELD + text.len());
    let mappings = mappings.iter().map(|mapping| 2 * FIELD + 3 * LONG + indices(mapping.attributes));
    let functions = functions.iter().map(|_| 4 * FIELD + LONG);
    let locations = locations.iter().map(|location| {
        2 * FIELD + LONG + location.lines.len() * (2 * FIELD + 2 * LONG) + indices(location.attributes)
    });
    let stacks = stacks.iter().map(|stack| 2 * FIELD + 5 * stack.locations.len());
    let attributes = attributes.iter().map(|attribute| (3 * FIELD).saturating_add(value(&attribute.value)));
    let links = links.iter().map(|_| FIELD + 18 + 10);
    let sums = [texts.sum(), mappings.sum(), functions.sum(), locations.sum(), stacks.sum(), links.sum()];
    attributes.chain(sums).fold(0, usize::saturating_add)
}

/// A message within the dictionary or a sample that lists attributes by their numbers.
fn indices(set: AttributeSetId, dictionary: &Dictionary) -> usize {
    FIELD + 5 * dictionary.attribute_sets.get(set).map_or(0, |set| AttributeSet::ids(set).len())
}

fn profile(profile: &Profile, dictionary: &Dictionary) -> usize {
    let samples = profile.samples.iter().map(|sample| 4 * FIELD + LONG + indices(sample.attributes, dictionary));
    let types = 2 * (FIELD + 2 * FIELD);
    FIELD + types + 3 * LONG + indices(profile.attributes, dictionary) + samples.sum::<usize>()
}

/// A value, with the message around it.
fn value(value: &Value) -> usize {
    let within = match value {
        Value::Empty | Value::Bool(_) | Value::Int(_) | Value::Double(_) => LONG,
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(values) => values.iter().map(self::value).fold(0, usize::saturating_add),
        Value::Map(pairs) => {
            let each = pairs.iter().map(|(key, each)| (2 * FIELD + key.len()).saturating_add(self::value(each)));
            each.fold(0, usize::saturating_add)
        }
    };
    within.saturating_add(2 * FIELD)
}
