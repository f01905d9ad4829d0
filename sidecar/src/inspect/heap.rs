//! The heap as a table: what is in use, by the function that allocated it.

use std::fmt::Write as _;

use profiler_proto::ProfileSet;

use crate::capture::heap::State;
use crate::capture::lacking::counted;
use crate::capture::{Heap, Source};

use crate::text::{by_function, bytes, head, percent, ranked, total};

/// What is printed of a heap.
pub(super) fn text(source: &Source, heap: &Heap, set: &ProfileSet, rows: usize) -> String {
    let mut text = format!("{}: heap", head(source));
    // Writing to a `String` cannot fail, here and below.
    if heap.state == State::Collected {
        _ = write!(text, " as of the newest garbage collection that Go has published");
    }
    if heap.rate > 0 {
        _ = write!(text, ", one sample each {} on average", bytes(i64::try_from(heap.rate).unwrap_or(i64::MAX)));
    }
    text.push('\n');
    if let Some(advice) = heap.state.advice() {
        _ = writeln!(text, "{advice}");
    }
    let is_off = heap.state.is_off();
    let is_there = match is_off {
        true => set.profiles.iter().any(|profile| !profile.samples.is_empty()),
        false => heap.walk.taken > 0 || heap.walk.is_whole(),
    };
    // Of a list of which nothing could be read no sum is known.
    if is_there {
        text += if is_off { "what was sampled before that:\n" } else { "" };
        text += &table(set, rows);
    }
    text + &lost(heap)
}

/// What keeps it from being the whole heap, a line each; nothing where nothing does.
pub(super) fn remarks(heap: &Heap) -> String {
    heap.state.advice().map_or_else(String::new, |advice| format!("{advice}\n")) + &lost(heap)
}

fn lost(heap: &Heap) -> String {
    let torn = match heap.torn {
        0 => String::new(),
        torn => format!("{} written to meanwhile: what is in use there is as of between\n", counted(torn, "stacks")),
    };
    let mixed = match heap.mixed {
        false => "",
        true => "garbage was collected faster than all stacks could be read: they are as of more than one collection\n",
    };
    torn + mixed + &heap.walk.lacking("stacks")
}

fn table(set: &ProfileSet, rows: usize) -> String {
    let (in_use, allocated) = (total(set, "inuse_space"), total(set, "alloc_space"));
    let mut text = format!(
        "in use: {} in {} objects; allocated: {} in {} objects\n\n",
        bytes(in_use),
        total(set, "inuse_objects"),
        bytes(allocated),
        total(set, "alloc_objects")
    );
    _ = writeln!(text, "{:>12} {:>6} {:>12} {:>6} {:>12}  function", "in use", "%", "with callees", "%", "allocated");
    let all = by_function(set, "alloc_space");
    for (name, (own, with_callees)) in ranked(by_function(set, "inuse_space"), rows) {
        let made = all.get(&name).map_or(0, |(own, _)| *own);
        _ = writeln!(
            text,
            "{:>12} {:>5.1}% {:>12} {:>5.1}% {:>12}  {name}",
            bytes(own),
            percent(own, in_use),
            bytes(with_callees),
            percent(with_callees, in_use),
            bytes(made)
        );
    }
    text
}
