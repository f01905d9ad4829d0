//! Parts of what is printed: amounts, tables by function.

use std::collections::{HashMap, HashSet};

use profiler_proto::model::{Dictionary, Location, Profile};
use profiler_proto::{ProfileSet, Sample};

use crate::capture::Source;
use crate::plain::plain;

/// "process 7 (/usr/bin/shop, go1.26.8): ".
pub(crate) fn head(source: &Source) -> String {
    let (pid, path) = (source.process().pid(), source.code().path.to_string_lossy());
    format!("process {pid} ({}, {})", plain(&path), plain(&source.loaded().program().version().text))
}

/// Bytes as a person reads them.
pub(crate) fn bytes(value: i64) -> String {
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
pub(crate) fn nanos(value: i64) -> String {
    let value = value as f64;
    match value.abs() {
        nanos if nanos < 1e3 => format!("{value} ns"),
        nanos if nanos < 1e6 => format!("{:.1} µs", value / 1e3),
        nanos if nanos < 1e9 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// The profiles of this type: one, or of samples on processors one for each rate.
pub(crate) fn profiles<'s>(set: &'s ProfileSet, kind: &str) -> impl Iterator<Item = &'s Profile> {
    let text = |id| set.dictionary.strings.text(id);
    set.profiles.iter().filter(move |profile| text(profile.kind.sample_type.kind) == kind)
}

/// What the samples of a type are worth, with the samples: nanoseconds of those on processors.
fn worth<'s>(set: &'s ProfileSet, kind: &str) -> impl Iterator<Item = (i64, &'s Sample)> {
    profiles(set, kind).flat_map(|profile| {
        let each = if profile.kind.is_cpu(&set.dictionary) { profile.kind.period } else { 1 };
        profile.samples.iter().map(move |sample| (sample.value.saturating_mul(each), sample))
    })
}

/// The sum of a type's values, of samples on processors of their time.
pub(crate) fn total(set: &ProfileSet, kind: &str) -> i64 {
    worth(set, kind).fold(0, |sum, (value, _)| sum.saturating_add(value))
}

/// Value, or time, by function: of its own, and with all that it called.
pub(crate) fn by_function(set: &ProfileSet, kind: &str) -> HashMap<String, (i64, i64)> {
    let mut functions: HashMap<String, (i64, i64)> = HashMap::new();
    for (value, sample) in worth(set, kind) {
        let mut seen = HashSet::new();
        for (depth, name) in names(set, sample).into_iter().enumerate() {
            let (own, all) = functions.entry(name.clone()).or_default();
            if depth == 0 {
                *own = own.saturating_add(value);
            }
            // A function that calls itself stands in the stack more than once.
            if seen.insert(name) {
                *all = all.saturating_add(value);
            }
        }
    }
    functions
}

/// Functions of a sample's stack, leaf first.
fn names(set: &ProfileSet, sample: &Sample) -> Vec<String> {
    let dictionary = &set.dictionary;
    let stack = dictionary.stacks.get(sample.stack);
    let locations = stack.map_or(&[][..], |stack| &stack.locations).iter();
    locations
        .filter_map(|id| dictionary.locations.get(*id))
        .flat_map(|location| names_at(location, dictionary))
        .collect()
}

/// The functions at a location, innermost first; its address where it has no name.
fn names_at(location: &Location, dictionary: &Dictionary) -> Vec<String> {
    let functions = location.lines.iter().filter_map(|line| dictionary.functions.get(line.function));
    let names = functions.map(|function| plain(dictionary.strings.text(function.name)));
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    if names.is_empty() { vec![format!("{:#x}", location.address)] } else { names }
}

/// The functions with most of their own, then with most in all; at most `most`.
pub(crate) fn ranked(functions: HashMap<String, (i64, i64)>, most: usize) -> Vec<(String, (i64, i64))> {
    let mut rows: Vec<_> = functions.into_iter().filter(|(_, (_, all))| *all != 0).collect();
    rows.sort_by(|(a, x), (b, y)| (y.0, y.1, a).cmp(&(x.0, x.1, b)));
    rows.truncate(most);
    rows
}

/// A share in per cent.
pub(crate) fn percent(part: i64, of: i64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}
