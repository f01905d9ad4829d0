//! Goroutines as text: equal ones together, or each by itself as a panic shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::capture::frames::Place;
use crate::capture::profile::{is_system, places_of};
use crate::capture::{End, Goroutine, Goroutines, Source, Walk};
use crate::go::Call;
use crate::go::layouts::status;

use super::text::{head, missing, plain};

/// Goroutines with equal state, labels and stack together, the most first, as Go's `debug=1` with states.
pub(super) fn grouped(source: &Source, all: &Goroutines) -> String {
    let mut groups: BTreeMap<(String, String), u64> = BTreeMap::new();
    let (mut system, mut shown) = (0, 0);
    for goroutine in &all.list {
        let places = places_of(source, goroutine);
        if is_system(source, goroutine, &places) {
            system += 1;
            continue;
        }
        shown += 1;
        let key = (format!("[{}]{}", goroutine.state(), labels(goroutine)), stack(goroutine, &places));
        *groups.entry(key).or_default() += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(a, x), (b, y)| (y, a).cmp(&(x, b)));
    let mut text = format!("{}: {shown} goroutines, besides {system} of the runtime's own\n", head(source));
    for ((state, stack), count) in groups {
        // Writing to a `String` cannot fail, here and below.
        _ = write!(text, "\n{count} {state}:\n{stack}");
    }
    text + &lost(all)
}

/// Stacks at which there are more goroutines than there were `over` before, the most new ones first.
///
/// Whatever a goroutine waits for is left aside, and so are its labels: one that leaks stands at the same place as those before it.
pub(super) fn growth(source: &Source, before: &Goroutines, after: &Goroutines, over: Duration) -> String {
    let (was, is) = (by_stack(source, before), by_stack(source, after));
    let (had, has) = (was.values().sum::<i64>(), is.values().sum::<i64>());
    let mut text = format!("{}: {has} goroutines, {:+} within {over:?}\n", head(source), has - had);
    let grown = is.iter().map(|(stack, now)| (*now, was.get(stack).copied().unwrap_or(0), stack));
    let mut grown: Vec<_> = grown.filter(|(now, before, _)| now > before).collect();
    grown.sort_by_key(|(now, before, stack)| (before - now, *stack));
    for (now, before, stack) in &grown {
        // Writing to a `String` cannot fail, here and below.
        _ = write!(text, "\n{:+} to {now}:\n{stack}", now - before);
    }
    if grown.is_empty() {
        text += "no stack has more goroutines than before\n";
    }
    text + &lost(after)
}

/// How many there are of each stack, with who started them; without the runtime's own.
fn by_stack(source: &Source, all: &Goroutines) -> BTreeMap<String, i64> {
    let mut stacks = BTreeMap::new();
    for goroutine in &all.list {
        let places = places_of(source, goroutine);
        if !is_system(source, goroutine, &places) {
            let by = Goroutine { parent: 0, ..goroutine.clone() };
            *stacks.entry(stack(goroutine, &places) + &creator(source, &by)).or_default() += 1;
        }
    }
    stacks
}

/// Each goroutine by itself, as Go's `debug=2`.
pub(super) fn each(source: &Source, all: &Goroutines) -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let now = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64);
    let mut text = format!("{}: {} goroutines\n", head(source), all.list.len());
    for goroutine in &all.list {
        let places = places_of(source, goroutine);
        _ = write!(text, "\ngoroutine {} [{}", goroutine.id, goroutine.state());
        text += &waited(goroutine.waiting_since, now);
        _ = write!(text, "]{}:\n{}{}", labels(goroutine), stack(goroutine, &places), creator(source, goroutine));
    }
    text + &lost(all)
}

/// How long, if it is a minute or more: as Go says it, and as far as the collector noticed.
pub(super) fn waited(since: Option<u64>, now: u64) -> String {
    match since.map_or(0, |since| now.saturating_sub(since) / 60_000_000_000) {
        0 => String::new(),
        minutes => format!(", {minutes} minutes"),
    }
}

fn labels(goroutine: &Goroutine) -> String {
    if goroutine.labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> =
        goroutine.labels.iter().map(|(key, value)| format!("{}: {}", plain(key), plain(value))).collect();
    format!(" {{{}}}", labels.join(", "))
}

/// A function a line, then where it stands.
fn stack(goroutine: &Goroutine, places: &[Place]) -> String {
    let mut text = String::new();
    for frame in places.iter().flat_map(|place| place.lines.iter()) {
        _ = write!(text, "{}\n\t{}:{}\n", plain(&frame.function), plain(&frame.file), frame.line);
    }
    match goroutine.end {
        _ if goroutine.stack.is_empty() && goroutine.status == status::RUNNING => {
            text += "(it runs: its function alone is known)\n";
        }
        _ if goroutine.stack.is_empty() => text += "(its stack could not be had: its function alone is known)\n",
        End::Root => {}
        End::Cut => text += "(there is more)\n",
        End::Lost => text += "(the rest of the stack could not be read)\n",
    }
    text
}

/// The first goroutine, which nobody started.
const MAIN: u64 = 1;

fn creator(source: &Source, goroutine: &Goroutine) -> String {
    let frames = source.loaded().frames(goroutine.go_pc, Call::Return);
    let Some(frame) = frames.first().filter(|_| goroutine.go_pc != 0 && goroutine.id != MAIN) else {
        return String::new();
    };
    let by = if goroutine.parent == 0 { String::new() } else { format!(" in goroutine {}", goroutine.parent) };
    format!("created by {}{by}\n\t{}:{}\n", plain(&frame.function), plain(&frame.file), frame.line)
}

fn lost(all: &Goroutines) -> String {
    let text = remarks(all);
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// What is missing, a line each; nothing where all is there.
pub(super) fn remarks(all: &Goroutines) -> String {
    let walk = Walk { beyond: all.beyond, over_bytes: all.over_bytes, broken: all.broken, ..Walk::default() };
    let mut text = missing(&walk, "goroutines");
    if all.over_work > 0 {
        _ = writeln!(text, "{} goroutines without their stacks, as a capture may do no more work", all.over_work);
    }
    if all.changed > 0 {
        _ = writeln!(text, "{} goroutines ran on while their stacks were copied, and are shown without", all.changed);
    }
    if all.labels_cut > 0 {
        _ = writeln!(
            text,
            "{} goroutines without their labels, as those before have all the bytes, or took all the work, that there is for them",
            all.labels_cut
        );
    }
    text
}
