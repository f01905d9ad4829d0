//! From one profile of a set to folded stacks.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::escape::{IN_FRAMES, IN_TAGS, escape};
use super::frames::frames_of;
use crate::hash::Map;
use crate::model::{AttributeSetId, Dictionary, Profile, StackId};

/// Whether samples are told apart by their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tags {
    /// Samples of the same stack are one line, whatever their tags.
    #[default]
    Left,
    /// A frame before the root holds the tags.
    Kept,
}

/// The samples of `profile`, which refers to `dictionary`: one line per distinct stack, ordered by text, each ended by a
/// line feed.
///
/// A frame without a name shows the file it is mapped from and its address there, as `libc.so.6+0x28b0`. Samples that sum
/// up to 0, and those without a stack and tags, have no line.
#[must_use]
pub fn encode(profile: &Profile, dictionary: &Dictionary, tags: Tags) -> String {
    encode_within(profile, dictionary, tags, usize::MAX).unwrap_or_default()
}

/// The same, in at most so many bytes; `None` where it takes more. Each line has the names of all its frames: a few long names in deep stacks make a text that is
/// thousands of times as large as the profile.
#[must_use]
pub fn encode_within(profile: &Profile, dictionary: &Dictionary, tags: Tags, most: usize) -> Option<String> {
    let mut values: Map<(StackId, AttributeSetId), i64> = Map::default();
    for sample in &profile.samples {
        let attributes = if tags == Tags::Kept { sample.attributes } else { AttributeSetId::ZERO };
        let value = values.entry((sample.stack, attributes)).or_default();
        *value = value.saturating_add(sample.value);
    }
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    let mut left = most;
    for ((stack, attributes), value) in values {
        let line = line(stack, attributes, dictionary, left)?;
        left -= line.len();
        let sum = sums.entry(line).or_default();
        *sum = sum.saturating_add(value);
    }
    sums.retain(|line, value| !line.is_empty() && *value != 0);
    Some(sums.iter().fold(String::new(), |mut text, (line, value)| {
        // Writing to a `String` cannot fail.
        _ = writeln!(text, "{line} {value}");
        text
    }))
}

/// The line of a stack with its tags, unless it is longer than `most`.
fn line(stack: StackId, tags: AttributeSetId, dictionary: &Dictionary, most: usize) -> Option<String> {
    let mut line = String::new();
    if !tags.is_zero() {
        push_tags(tags, dictionary, &mut line);
    }
    for name in frames_of(stack, dictionary) {
        if line.len() > most {
            return None;
        }
        push_frame(&name, &mut line);
    }
    (line.len() <= most).then_some(line)
}

fn push_tags(set: AttributeSetId, dictionary: &Dictionary, line: &mut String) {
    let tags: BTreeMap<_, _> = dictionary.attributes_of(set).collect();
    for (i, (key, value)) in tags.into_iter().enumerate() {
        line.push(if i == 0 { '{' } else { ',' });
        escape(key, IN_TAGS, line);
        line.push('=');
        escape(&value.to_string(), IN_TAGS, line);
    }
    line.push('}');
}

fn push_frame(name: &str, line: &mut String) {
    let name = if line.is_empty() {
        // A root frame that begins with a brace would read as tags.
        name.strip_prefix('{').inspect(|_| line.push_str("\\x7b")).unwrap_or(name)
    } else {
        line.push(';');
        name
    };
    escape(name, IN_FRAMES, line);
}
