//! Parts of what is printed: amounts, tables by function. What programs name themselves is shown without control characters.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use profiler_proto::ProfileSet;
use profiler_proto::model::Profile;

use crate::capture::{Source, Walk};

/// "process 7 (/usr/bin/shop, go1.26.8): ".
pub(super) fn head(source: &Source) -> String {
    let (pid, path) = (source.process().pid(), source.code().path.to_string_lossy());
    format!("process {pid} ({}, {})", plain(&path), plain(&source.loaded().program().version().text))
}

/// A text without what a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Bytes as a person reads them.
pub(super) fn bytes(value: i64) -> String {
    let mut scaled = value as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled.abs() < 1024.0 {
            return if unit == "B" { format!("{value} B") } else { format!("{scaled:.1} {unit}") };
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1} TiB")
}

/// Nanoseconds as a person reads them.
pub(super) fn nanos(value: i64) -> String {
    let value = value as f64;
    match value.abs() {
        nanos if nanos < 1e3 => format!("{value} ns"),
        nanos if nanos < 1e6 => format!("{:.1} µs", value / 1e3),
        nanos if nanos < 1e9 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// So many of `what`, which is a plural.
pub(super) fn counted(count: u64, what: &str) -> String {
    let what = if count == 1 { what.strip_suffix('s').unwrap_or(what) } else { what };
    format!("{count} {what}")
}

/// What is missing, a line each; nothing where all is there.
pub(super) fn missing(walk: &Walk, what: &str) -> String {
    let causes = [
        (walk.beyond, "left out, as there are more than asked for"),
        (walk.over_bytes, "left out, as those before have all the bytes that a capture may have"),
        (walk.foreign, "left out, with addresses that are no code of the program"),
        (walk.implausible, "left out, with figures that cannot be"),
        (walk.over_work, "more at least left out, as a capture may do no more work"),
        (walk.broken, "could not be read; what stood behind is missing"),
    ];
    causes.iter().filter(|(count, _)| *count > 0).fold(String::new(), |mut text, (count, why)| {
        // Writing to a `String` cannot fail.
        _ = writeln!(text, "{} {why}", counted(*count, what));
        text
    })
}

/// The profile of this type.
pub(super) fn profile<'s>(set: &'s ProfileSet, kind: &str) -> Option<&'s Profile> {
    set.profiles.iter().find(|profile| set.dictionary.strings.text(profile.kind.sample_type.kind) == kind)
}

/// The sum of a type's values.
pub(super) fn total(set: &ProfileSet, kind: &str) -> i64 {
    let samples = profile(set, kind).map_or(&[][..], |profile| &profile.samples);
    samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.value))
}

/// Value by function: of its own, and with all that it called.
pub(super) fn by_function(set: &ProfileSet, kind: &str) -> HashMap<String, (i64, i64)> {
    let mut functions: HashMap<String, (i64, i64)> = HashMap::new();
    let Some(profile) = profile(set, kind) else { return functions };
    for sample in &profile.samples {
        let mut seen = HashSet::new();
        for (depth, name) in names(set, sample).into_iter().enumerate() {
            let (own, all) = functions.entry(name.clone()).or_default();
            if depth == 0 {
                *own = own.saturating_add(sample.value);
            }
            // A function that calls itself stands in the stack more than once.
            if seen.insert(name) {
                *all = all.saturating_add(sample.value);
            }
        }
    }
    functions
}

/// Functions of a sample's stack, leaf first.
fn names(set: &ProfileSet, sample: &profiler_proto::Sample) -> Vec<String> {
    let dictionary = &set.dictionary;
    let stack = dictionary.stacks.get(sample.stack);
    let locations = stack.map_or(&[][..], |stack| &stack.locations).iter();
    let lines = locations.filter_map(|id| dictionary.locations.get(*id)).flat_map(|location| &location.lines);
    let functions = lines.filter_map(|line| dictionary.functions.get(line.function));
    functions.map(|function| plain(dictionary.strings.text(function.name))).collect()
}

/// The functions with most of their own, then with most in all; at most `most`.
pub(super) fn ranked(functions: HashMap<String, (i64, i64)>, most: usize) -> Vec<(String, (i64, i64))> {
    let mut rows: Vec<_> = functions.into_iter().filter(|(_, (_, all))| *all != 0).collect();
    rows.sort_by(|(a, x), (b, y)| (y.0, y.1, a).cmp(&(x.0, x.1, b)));
    rows.truncate(most);
    rows
}

/// A share in per cent.
pub(super) fn percent(part: i64, of: i64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}
