//! Goroutines as text: equal ones together, or each by itself as a panic shows them.
//!
//! In: what was captured. Out: text, written as it is made, for a hundred thousand goroutines have a hundred megabytes of it. What is kept meanwhile is a row for
//! each group, which points to its first goroutine.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::capture::lacking::counted;
use crate::capture::profile::{is_system, places_of};
use crate::capture::work::Work;
use crate::capture::{Doing, End, Goroutine, Goroutines, Labels, Pc, Source};
use crate::go::layouts::status;
use crate::go::{Call, Frame};

use crate::plain::plain;
use crate::text::head;

/// Goroutines with equal state, labels and stack together, the most first, as Go's `debug=1` with states.
pub(crate) fn grouped(source: &Source, all: &Goroutines, out: &mut impl Write) -> io::Result<()> {
    let naming = Naming::of(source);
    fn alike(goroutine: &Goroutine) -> (Doing, &Labels, Seen<'_>, u64) {
        (goroutine.state(), &goroutine.labels, Seen::of(goroutine), goroutine.go_pc)
    }
    let groups = Groups::of(&naming, all, alike);
    writeln!(out, "{}: {}", head(source), groups.counted())?;
    for (count, goroutine) in groups.sorted() {
        let (stack, by) = (stack(&naming, goroutine, Form::Alike), creator(&naming, goroutine, Form::Alike));
        write!(out, "\n{count} [{}]{}:\n{stack}{by}", goroutine.state(), labels(goroutine))?;
    }
    out.write_all((naming.remark() + &lost(all)).as_bytes())
}

/// Stacks at which there are more goroutines than there were `over` before, the most new ones first.
///
/// Whatever a goroutine waits for is left aside, and so are its labels: one that leaks stands at the same place as those before it.
pub(super) fn growth<'a>(
    source: &Source,
    (before, after): (&'a Goroutines, &'a Goroutines),
    over: Duration,
    out: &mut impl Write,
) -> io::Result<()> {
    let (naming, by_stack) = (Naming::of(source), |goroutine: &'a Goroutine| (Seen::of(goroutine), goroutine.go_pc));
    let (was, is) = (Groups::of(&naming, before, by_stack), Groups::of(&naming, after, by_stack));
    let (had, has) = (was.count(), is.count());
    writeln!(out, "{}: {}, {:+} within {over:?}", head(source), counted(has, "goroutines"), has as i64 - had as i64)?;
    let grown = is.rows.iter().map(|(now, goroutine)| (*now, was.like(goroutine), *goroutine));
    let mut grown: Vec<_> = grown.filter(|(now, before, _)| now > before).collect();
    grown.sort_by_key(|(now, before, _)| Reverse(now - before));
    for (now, before, goroutine) in &grown {
        let (stack, by) = (stack(&naming, goroutine, Form::Alike), creator(&naming, goroutine, Form::Alike));
        write!(out, "\n+{} to {now}:\n{stack}{by}", now - before)?;
    }
    if grown.is_empty() {
        writeln!(out, "no stack has more goroutines than before")?;
    }
    out.write_all(naming.remark().as_bytes())?;
    for (when, all) in [("at first: ", before), ("", after)] {
        all.lacking().lines().try_for_each(|line| write!(out, "\n{when}{line}"))?;
    }
    writeln!(out)
}

/// Each goroutine by itself, as Go's `debug=2`, which leaves out the runtime's own, too, and what of the runtime they are in.
pub(crate) fn each(source: &Source, all: &Goroutines, out: &mut impl Write) -> io::Result<()> {
    let now = clock_gettime(ClockId::Monotonic);
    let now = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64);
    let naming = Naming::of(source);
    let groups = Groups::of(&naming, all, Seen::of);
    writeln!(out, "{}: {}", head(source), groups.counted())?;
    for goroutine in all.list.iter().filter(|goroutine| groups.like(goroutine) > 0) {
        write!(out, "\ngoroutine {} [{}", goroutine.id, goroutine.state())?;
        let locked = if goroutine.is_locked { ", locked to thread" } else { "" };
        writeln!(out, "{}{locked}]{}:", waited(goroutine.waiting_since, now), labels(goroutine))?;
        write!(out, "{}{}", stack(&naming, goroutine, Form::Panic), creator(&naming, goroutine, Form::Panic))?;
    }
    out.write_all((naming.remark() + &lost(all)).as_bytes())
}

/// How many do what, the most first, without the runtime's own.
pub(super) fn by_state(source: &Source, all: &Goroutines) -> Vec<(Doing, u64)> {
    let groups = Groups::of(&Naming::of(source), all, |goroutine| (goroutine.state(), Seen::of(goroutine)));
    let mut states: BTreeMap<Doing, u64> = BTreeMap::new();
    for (count, goroutine) in groups.rows {
        *states.entry(goroutine.state()).or_default() += count;
    }
    let mut states: Vec<_> = states.into_iter().collect();
    states.sort_by_key(|(state, count)| (Reverse(*count), *state));
    states
}

/// Names of what is shown, as far as they cost no more than those of one process may: whoever forges stacks could have them take hours.
struct Naming<'s> {
    source: &'s Source,
    work: Work,
}

impl<'s> Naming<'s> {
    fn of(source: &'s Source) -> Self {
        Self { source, work: Work::for_names().awaited(source.awaited()) }
    }

    /// What `asked` gives; none once all is spent.
    fn ask<T>(&self, asked: impl FnOnce(&'s Source) -> T) -> Option<T> {
        self.work.done(self.source.loaded(), |_| asked(self.source))
    }

    /// That there are no names for the rest, where it is so.
    fn remark(&self) -> String {
        let is_spent = self.work.is_spent();
        if is_spent {
            "\nthe rest have no names: to look them up takes longer than is allowed\n".to_owned()
        } else {
            String::new()
        }
    }
}

/// Where a goroutine stands: what is shown of its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen<'a> {
    stack: &'a [Pc],
    end: End,
    start_pc: u64,
    runs: bool,
}

impl<'a> Seen<'a> {
    fn of(goroutine: &'a Goroutine) -> Self {
        let Goroutine { stack, end, start_pc, status, .. } = goroutine;
        Self { stack, end: *end, start_pc: *start_pc, runs: stack.is_empty() && *status == status::RUNNING }
    }
}

/// Goroutines that are alike in what `key` gives, without the runtime's own. Sorted rather than hashed: there may be a hundred thousand that differ.
struct Groups<'a, F> {
    key: F,
    /// How many, and the first of them, in the order of their keys.
    rows: Vec<(u64, &'a Goroutine)>,
    /// The runtime's own.
    system: u64,
    /// Beyond what was asked for.
    beyond: u64,
}

impl<'a, K: Ord, F: Fn(&'a Goroutine) -> K> Groups<'a, F> {
    fn of(naming: &Naming<'_>, all: &'a Goroutines, key: F) -> Self {
        let mut sorted: Vec<&Goroutine> = all.list.iter().collect();
        sorted.sort_by_key(|goroutine| key(goroutine));
        let (mut rows, mut system) = (Vec::new(), 0);
        for alike in sorted.chunk_by(|one, other| key(one) == key(other)) {
            let (count, Some(first)) = (alike.len() as u64, alike.first()) else { continue };
            match naming.ask(|source| is_system(source, first, &places_of(source, first))) {
                Some(true) => system += count,
                _ => rows.push((count, *first)),
            }
        }
        Self { key, rows, system, beyond: all.beyond }
    }

    /// How many there are, in words.
    fn counted(&self) -> String {
        let beyond =
            if self.beyond == 0 { String::new() } else { format!(", and {} more that are left out", self.beyond) };
        format!("{}, besides {} of the runtime's own{beyond}", counted(self.count(), "goroutines"), self.system)
    }

    fn count(&self) -> u64 {
        self.rows.iter().map(|(count, _)| count).sum()
    }

    /// How many are like this one, of this capture or another one; none like the runtime's own.
    fn like(&self, goroutine: &'a Goroutine) -> u64 {
        let key = (self.key)(goroutine);
        let row = self.rows.binary_search_by(|(_, first)| (self.key)(first).cmp(&key)).ok();
        row.and_then(|row| self.rows.get(row)).map_or(0, |(count, _)| *count)
    }

    /// The most first; of as many, in the order of their keys.
    fn sorted(self) -> Vec<(u64, &'a Goroutine)> {
        let mut rows = self.rows;
        rows.sort_by_key(|(count, _)| Reverse(*count));
        rows
    }
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
    let all = goroutine.labels.iter().map(|(key, value)| format!("{}: {}", plain(key), plain(value)));
    let more = goroutine.labels.is_cut().then(|| "…".to_owned());
    let labels: Vec<String> = all.chain(more).collect();
    format!(" {{{}}}", labels.join(", "))
}

/// How stacks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Of all that are alike: without what the runtime does to have them wait, as Go's `debug=1` (runtime/pprof, `printStackRecord`).
    Alike,
    /// As a panic shows them: without what the runtime does, with short names.
    Panic,
}

/// Whether a panic shows a function in a stack: it has a package, and if that is the runtime others may call it, or it says what the program is at (runtime/traceback.go,
/// `showfuncinfo`, `isExportedRuntime`).
pub(super) fn is_shown(function: &str, is_leaf: bool) -> bool {
    let Some(name) = function.strip_prefix("runtime.") else { return function.contains('.') };
    let is_exported = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    match name.rsplit_once('.') {
        Some((receiver, method)) => is_exported(receiver.trim_start_matches("(*")) && is_exported(method),
        None => is_exported(name) || name == "gopanic" && !is_leaf || ["runFinalizers", "runCleanups"].contains(&name),
    }
}

/// The name by which a panic shows a function: without the types of a generic one (runtime/traceback.go, `printFuncName`, `funcNamePiecesForPrint`).
pub(super) fn short(function: &str) -> String {
    match (function.find('['), function.rfind(']')) {
        _ if function == "runtime.gopanic" => "panic".to_owned(),
        (Some(from), Some(to)) if from < to => format!("{}[...]{}", &function[..from], &function[to + 1..]),
        _ => function.to_owned(),
    }
}

/// A function a line, then where it stands.
fn stack(naming: &Naming<'_>, goroutine: &Goroutine, form: Form) -> String {
    let Some(places) = naming.ask(|source| places_of(source, goroutine)) else {
        return "(its functions have no names)\n".to_owned();
    };
    let mut text = String::new();
    let frames: Vec<_> = places.iter().flat_map(|place| place.lines.iter()).enumerate().collect();
    let is_runtimes = |(_, frame): &&(usize, &Frame)| {
        ["runtime.", "internal/runtime/"].iter().any(|own| frame.function.starts_with(own))
    };
    let waits = frames.iter().take_while(is_runtimes).count();
    let is_hidden = |(at, frame): &(usize, &Frame)| match form {
        Form::Alike => *at < waits,
        Form::Panic => !is_shown(&frame.function, *at == 0),
    };
    // Rather than nothing, all of it.
    let is_any = frames.iter().any(|frame| !is_hidden(frame));
    for (_, frame) in frames.iter().filter(|frame| !is_any || !is_hidden(frame)) {
        _ = write!(text, "{}\n\t{}:{}\n", plain(&named(frame, form)), plain(&frame.file), frame.line);
    }
    match goroutine.end {
        _ if goroutine.stack.is_empty() && goroutine.status == status::RUNNING => {
            text += "(it runs: this is what it was started as)\n";
        }
        _ if goroutine.stack.is_empty() => text += "(its stack could not be had: this is what it was started as)\n",
        End::Root => {}
        End::Cut => text += "(there is more)\n",
        End::Lost => text += "(the rest of the stack could not be read)\n",
    }
    text
}

/// The first goroutine, which nobody started.
const MAIN: u64 = 1;

fn creator(naming: &Naming<'_>, goroutine: &Goroutine, form: Form) -> String {
    let frames = naming.ask(|source| source.loaded().frames(goroutine.go_pc, Call::Return)).unwrap_or_default();
    let is_told = |frame: &&Frame| form == Form::Alike || is_shown(&frame.function, false);
    let Some(frame) = frames.first().filter(|_| goroutine.go_pc != 0 && goroutine.id != MAIN).filter(is_told) else {
        return String::new();
    };
    let by = if goroutine.parent == 0 || form == Form::Alike {
        String::new()
    } else {
        format!(" in goroutine {}", goroutine.parent)
    };
    format!("created by {}{by}\n\t{}:{}\n", plain(&named(frame, form)), plain(&frame.file), frame.line)
}

fn named(frame: &Frame, form: Form) -> Cow<'_, str> {
    match form {
        Form::Alike => (&*frame.function).into(),
        Form::Panic => short(&frame.function).into(),
    }
}

fn lost(all: &Goroutines) -> String {
    let text = all.lacking();
    if text.is_empty() { text } else { format!("\n{text}") }
}
