//! The hottest functions of a capture, as a table.
//!
//! In: a set. Out: lines, hottest first: time on CPU in the function itself, and in it with all that it called. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use profiler_proto::model::{Dictionary, Location, Profile};
use profiler_proto::{ProfileSet, Sample};

/// Time in a function, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Time {
    own: u64,
    with_callees: u64,
}

/// The `most` functions with most time of their own.
#[must_use]
pub fn table(set: &ProfileSet, most: usize) -> String {
    let mut functions: BTreeMap<String, Time> = BTreeMap::new();
    let mut total = 0_u64;
    for profile in set.profiles.iter().filter(|profile| profile.kind.is_cpu(&set.dictionary)) {
        for sample in &profile.samples {
            let nanos = nanos(profile, sample);
            total = total.saturating_add(nanos);
            add(sample, nanos, &set.dictionary, &mut functions);
        }
    }
    let mut rows: Vec<(String, Time)> = functions.into_iter().collect();
    rows.sort_by(|(a, x), (b, y)| (y.own, y.with_callees, a).cmp(&(x.own, x.with_callees, b)));
    let mut text = String::from("     self   self%    total  total%  function\n");
    for (name, time) in rows.iter().take(most) {
        let percent = |nanos: u64| 100.0 * nanos as f64 / total.max(1) as f64;
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        // Writing to a `String` cannot fail.
        _ = writeln!(
            text,
            "{:8.2}s {:6.1}% {:7.2}s {:6.1}%  {name}",
            seconds(time.own),
            percent(time.own),
            seconds(time.with_callees),
            percent(time.with_callees),
        );
    }
    text
}

/// CPU time that a sample stands for.
fn nanos(profile: &Profile, sample: &Sample) -> u64 {
    let product = sample.value.max(0).saturating_mul(profile.kind.period.max(0));
    u64::try_from(product).unwrap_or(0)
}

fn add(sample: &Sample, nanos: u64, dictionary: &Dictionary, functions: &mut BTreeMap<String, Time>) {
    let stack = dictionary.stacks.get(sample.stack);
    let locations = stack.map_or(&[][..], |stack| &stack.locations).iter();
    let mut seen = BTreeSet::new();
    for (depth, location) in locations.filter_map(|id| dictionary.locations.get(*id)).enumerate() {
        for (inner, name) in names(location, dictionary).into_iter().enumerate() {
            let time = functions.entry(name.clone()).or_default();
            if depth == 0 && inner == 0 {
                time.own = time.own.saturating_add(nanos);
            }
            // A function that calls itself is in the stack more than once.
            if seen.insert(name) {
                time.with_callees = time.with_callees.saturating_add(nanos);
            }
        }
    }
}

/// The functions at a location, innermost first; its address where it has no name.
fn names(location: &Location, dictionary: &Dictionary) -> Vec<String> {
    let text = |id| dictionary.strings.text(id);
    let named = location.lines.iter().filter_map(|line| dictionary.functions.get(line.function));
    let names: Vec<String> =
        named.map(|function| text(function.name).to_owned()).filter(|name| !name.is_empty()).collect();
    if names.is_empty() { vec![format!("{:#x}", location.address)] } else { names }
}
