//! From folded stacks to the model.

use super::escape::unescape;
use crate::error::DecodeError;
use crate::limits::{Budget, Limits};
use crate::model::compact::{SumEntry, Sums};
use crate::model::{
    AttributeSetId, Dictionary, Function, Kind, Line, LinkId, Location, LocationId, Profile, ProfileSet, Sample, Stack,
    StackId, ValueType,
};

/// What an interned name costs at most, beyond its text: a function, a location with a line, their slots.
const FRAME: usize = 256;

/// The profile in `text`, of `samples`/`count` per `samples`/`count`, for the format does not say what it counts.
///
/// A set with that one profile, without a window of time. Empty lines are passed over. Tags become attributes of type
/// string.
///
/// # Errors
///
/// [`DecodeError`] if `text` is not UTF-8, a line does not end in a space and an integer, or the input goes beyond `limits`.
pub fn decode(text: &[u8], limits: &Limits) -> Result<ProfileSet, DecodeError> {
    limits.check_len(text.len())?;
    let text = std::str::from_utf8(text)
        .map_err(|error| DecodeError::Malformed { format: "folded stacks", detail: error.to_string() })?;
    let (mut set, mut budget, mut sums) = (ProfileSet::default(), Budget::new(limits), Sums::default());
    let count = ValueType::new(&mut set.dictionary, "samples", "count");
    let kind = Kind { sample_type: count, period_type: count, period: 1 };
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let invalid = |what: &str| DecodeError::invalid(format!("line {}", i + 1), what);
        let (frames, value) = line.trim_end().rsplit_once(' ').ok_or_else(|| invalid("no space before a value"))?;
        let value = value.parse().map_err(|_| invalid("the last word is not an integer"))?;
        let (tags, frames) = split_tags(frames);
        budget.spend(size_of::<SumEntry>() + line.len())?;
        budget.spend(FRAME.saturating_mul(1 + frames.matches(';').count() + tags.matches(',').count()))?;
        let stack = decode_stack(frames, &mut set.dictionary);
        let attributes = decode_tags(tags, &mut set.dictionary);
        sums.add(Sample { stack, attributes, link: LinkId::ZERO, value });
    }
    set.profiles.push(Profile { kind, samples: sums.into_samples(), ..Profile::default() });
    Ok(set)
}

/// The tags, without their braces, and the frames. A root frame that just begins with a brace is a frame.
fn split_tags(line: &str) -> (&str, &str) {
    match line.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
        Some((tags, rest))
            if tags.split(',').all(|tag| tag.contains('=')) && (rest.is_empty() || rest.starts_with(';')) =>
        {
            (tags, rest.strip_prefix(';').unwrap_or(rest))
        }
        _ => ("", line),
    }
}

fn decode_stack(frames: &str, dictionary: &mut Dictionary) -> StackId {
    if frames.is_empty() {
        return StackId::ZERO;
    }
    let locations = frames.rsplit(';').map(|frame| decode_frame(&unescape(frame), dictionary)).collect();
    dictionary.stacks.intern(Stack { locations })
}

fn decode_frame(name: &str, dictionary: &mut Dictionary) -> LocationId {
    let name = dictionary.strings.intern_str(name);
    let function = dictionary.functions.intern(Function { name, ..Function::default() });
    let line = Line { function, ..Line::default() };
    dictionary.locations.intern(Location { lines: [line].into(), ..Location::default() })
}

fn decode_tags(tags: &str, dictionary: &mut Dictionary) -> AttributeSetId {
    let pairs = tags.split(',').filter_map(|tag| tag.split_once('='));
    let ids: Vec<_> = pairs.map(|(key, value)| dictionary.attribute(&unescape(key), unescape(value))).collect();
    dictionary.attribute_set(ids)
}
