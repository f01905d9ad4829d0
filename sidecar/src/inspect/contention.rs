//! Block and mutex profiles as a table: time waited, by function.

use std::fmt::Write as _;

use profiler_proto::ProfileSet;

use crate::capture::lacking::counted;
use crate::capture::{Contention, Source};

use crate::text::{by_function, head, nanos, percent, ranked, total};

/// What is printed of a block or mutex profile.
pub(super) fn text(source: &Source, read: &Contention, set: &ProfileSet, rows: usize) -> String {
    let mut text = format!("{}: {} profile since the start\n", head(source), read.kind.name());
    text += &advice(read);
    if !read.records.is_empty() {
        text += &table(set, rows);
    }
    text + &read.walk.lacking("stacks")
}

/// What keeps it from being the whole profile, a line each; nothing where nothing does.
pub(super) fn remarks(read: &Contention) -> String {
    advice(read) + &read.walk.lacking("stacks")
}

fn advice(read: &Contention) -> String {
    read.state().map_or_else(String::new, |state| format!("{state}\n"))
}

fn table(set: &ProfileSet, rows: usize) -> String {
    let delay = total(set, "delay");
    let mut text = format!("{} in {}\n\n", nanos(delay), counted(total(set, "contentions").unsigned_abs(), "events"));
    // Writing to a `String` cannot fail, here and below.
    _ = writeln!(text, "{:>10} {:>6} {:>12} {:>6} {:>10}  function", "time", "%", "with callees", "%", "events");
    let events = by_function(set, "contentions");
    for (name, (own, with_callees)) in ranked(by_function(set, "delay"), rows) {
        let (_, count) = events.get(&name).copied().unwrap_or_default();
        _ = writeln!(
            text,
            "{:>10} {:>5.1}% {:>12} {:>5.1}% {count:>10}  {name}",
            nanos(own),
            percent(own, delay),
            nanos(with_callees),
            percent(with_callees, delay)
        );
    }
    text
}
