//! From one profile of a set to folded stacks.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::escape::{IN_FRAMES, IN_TAGS, escape};
use crate::model::{AttributeSetId, Dictionary, Location, Profile, Sample};

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
    let stack = dictionary.stacks.get(sample.stack);
    let locations = stack.map_or(&[][..], |stack| &stack.locations).iter().rev();
    for location in locations.filter_map(|location| dictionary.locations.get(*location)) {
        push_frames(location, dictionary, &mut line);
    }
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

/// The frames of a location, outermost first.
fn push_frames(location: &Location, dictionary: &Dictionary, line: &mut String) {
    if location.lines.is_empty() {
        push_frame(&address_name(location, dictionary), line);
    }
    for inlined in location.lines.iter().rev() {
        let function = dictionary.functions.get(inlined.function).copied().unwrap_or_default();
        let texts = [function.name, function.system_name].map(|id| dictionary.strings.text(id));
        match texts.into_iter().find(|text| !text.is_empty()) {
            Some(name) => push_frame(name, line),
            None => push_frame(&address_name(location, dictionary), line),
        }
    }
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

/// File and address within it; the bare address where nothing is known to be mapped there.
fn address_name(location: &Location, dictionary: &Dictionary) -> String {
    let mapping = dictionary.mappings.get(location.mapping).copied().unwrap_or_default();
    let path = dictionary.strings.text(mapping.filename);
    let file = path.rsplit('/').next().unwrap_or(path);
    if file.is_empty() {
        return format!("{:#x}", location.address);
    }
    let offset = location.address.wrapping_sub(mapping.start).wrapping_add(mapping.offset);
    format!("{file}+{offset:#x}")
}
