//! From one profile of a set to folded stacks.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::escape::{IN_FRAMES, IN_TAGS, escape};
use super::frames::frames_of;
use crate::model::{AttributeSetId, Dictionary, Profile, Sample};

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
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for sample in &profile.samples {
        let sum = sums.entry(line(sample, dictionary, tags)).or_default();
        *sum = sum.saturating_add(sample.value);
    }
    sums.retain(|line, value| !line.is_empty() && *value != 0);
    sums.iter().fold(String::new(), |mut text, (line, value)| {
        // Writing to a `String` cannot fail.
        _ = writeln!(text, "{line} {value}");
        text
    })
}

fn line(sample: &Sample, dictionary: &Dictionary, tags: Tags) -> String {
    let mut line = String::new();
    if tags == Tags::Kept && !sample.attributes.is_zero() {
        push_tags(sample.attributes, dictionary, &mut line);
    }
    frames_of(sample.stack, dictionary).for_each(|name| push_frame(&name, &mut line));
    line
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
