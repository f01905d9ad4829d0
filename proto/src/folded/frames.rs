//! How the frames of a stack are called, wherever they are shown as text.
//!
//! In: a stack of a dictionary. Out: a name for each of its frames, from the root, inlined functions being frames like others.

use std::borrow::Cow;

use crate::model::{Dictionary, Line, Location, StackId};

/// The names of the frames of `stack`, from the root. One without a name shows the file it is mapped from and its address there, as
/// `libc.so.6+0x28b0`.
pub(crate) fn frames_of(stack: StackId, dictionary: &Dictionary) -> impl Iterator<Item = Cow<'_, str>> {
    let locations = dictionary.stacks.get(stack).map_or(&[][..], |stack| &stack.locations).iter().rev();
    let locations = locations.filter_map(|location| dictionary.locations.get(*location));
    locations.flat_map(move |location| {
        let nothing_known = location.lines.is_empty().then(|| Cow::Owned(address_name(location, dictionary)));
        let lines = location.lines.iter().rev();
        nothing_known.into_iter().chain(lines.map(move |line| name_of(line, location, dictionary)))
    })
}

fn name_of<'a>(line: &Line, location: &Location, dictionary: &'a Dictionary) -> Cow<'a, str> {
    let function = dictionary.functions.get(line.function).copied().unwrap_or_default();
    let texts = [function.name, function.system_name].map(|id| dictionary.strings.text(id));
    let name = texts.into_iter().find(|text| !text.is_empty());
    name.map_or_else(|| Cow::Owned(address_name(location, dictionary)), Cow::Borrowed)
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
