//! The hottest functions of a capture, as a table.
//!
//! In: a set. Out: lines, hottest first: time on CPU in the function itself, and in it with all that it called. Pure.

use std::fmt::Write as _;

use profiler_proto::ProfileSet;

use crate::text::{by_function, percent, ranked, total};

/// The `most` functions with most time of their own.
#[must_use]
pub fn table(set: &ProfileSet, most: usize) -> String {
    let all = total(set, "samples");
    let mut text = String::from("     self   self%    total  total%  function\n");
    for (name, (own, with_callees)) in ranked(by_function(set, "samples"), most) {
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        // Writing to a `String` cannot fail.
        _ = writeln!(
            text,
            "{:8.2}s {:6.1}% {:7.2}s {:6.1}%  {name}",
            seconds(own),
            percent(own, all),
            seconds(with_callees),
            percent(with_callees, all),
        );
    }
    text
}
