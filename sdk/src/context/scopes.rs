//! The scopes of a thread, innermost on top: what was entered and not left yet, each with the record that is in force while it is the
//! innermost.
//!
//! In: tags, when a scope is entered; its number, when it is left, in any order; the span that is current, whose tags stand outside
//! all scopes. Out: a pointer to the record in force, which a single store moves: a signal handler on the thread, and a reader in
//! another process while the thread stands still, see the record before a change or the one after it, never a mix. So a scope that
//! is left in order costs a store: the record below is still there. A thread's own; bounded in number, for a scope may be forgotten.

use std::ptr;

use super::attributes::{MAX_TAG_BYTES, merge, pairs};
use super::counts::leave_out;
use super::in_force::InForce;
use super::keys;
use super::level::{Level, NOBODY};
use super::records::{Linked, Record};
#[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
use super::shown::Source;
use super::shown::{News, Shown};

/// Most scopes of a thread at once whose tags are kept. Within further ones [`OVERFLOW`] is in force: the values of outer scopes would
/// be wrong there.
const MAX_SCOPES: usize = 256;

/// Number of all scopes beyond it.
const BEYOND: u32 = u32::MAX;

/// `profiler.tags=overflow`, as `attributes` writes it.
const OVERFLOW: &[u8] = b"\0\x08overflow";

const _: () = assert!(OVERFLOW[0] == keys::OF_TAGS && OVERFLOW[1] as usize == OVERFLOW.len() - 2);

/// The scopes. Invariants: behind the top there is a level, whose record is the spare; of all records only the top's may be in
/// force, so that all others may be written; the tags of a record are its level's own, and behind them those of the level below, or of the lowest
/// one where they replace the others, whose keys are others. (Its span is the current one only at the top.) The level of the scopes beyond the bound, if there are any, is the top. Whoever owns them takes what is in force back before dropping them.
#[derive(Debug)]
pub(super) struct Scopes {
    /// The lowest is of no scope: its own tags are those of spans.
    levels: Vec<Level>,
    top: usize,
    /// The number that the next scope gets.
    next: u32,
    /// Scopes beyond the bound, which share a level; 0: there is no such level.
    beyond: usize,
    /// The span that is current.
    shown: Shown,
}

impl Scopes {
    /// None.
    pub(super) fn new() -> Self {
        Self { levels: vec![Level::new(), Level::new()], top: 0, next: 1, beyond: 0, shown: Shown::nothing() }
    }

    /// Enters a scope with these tags, on top of the outer ones or in their place; its number.
    pub(super) fn enter(&mut self, in_force: &InForce, tags: &[u8], replaces: bool) -> u32 {
        self.forget_what_is_gone(in_force);
        let number = self.enter_level(in_force, tags, replaces);
        number.unwrap_or_else(|| self.enter_deeper(in_force, tags, replaces))
    }

    /// The same, without the allocator, where there is a level and no more to do; else `None`, and nothing is done.
    #[inline]
    pub(super) fn enter_at_once(&mut self, in_force: &InForce, tags: &[u8], replaces: bool) -> Option<u32> {
        if self.shown.is_left_behind() { None } else { self.enter_level(in_force, tags, replaces) }
    }

    /// Enters it on the level that is there; else `None`.
    #[inline]
    fn enter_level(&mut self, in_force: &InForce, tags: &[u8], replaces: bool) -> Option<u32> {
        // The third one: when the second is the top's, it has the spare.
        let [below, level, _, ..] = self.levels.get_mut(self.top..)? else { return None };
        // As a rule no tags are in force and few are entered: that needs no call.
        // SAFETY: the level above the top is not in force.
        if !below.record().tags().is_empty() || !unsafe { level.record_mut() }.write_short(tags) {
            return self.enter_merged(in_force, tags, replaces);
        }
        let number = numbered(&mut self.next);
        level.begin(number, tags.len(), replaces);
        // SAFETY: as above.
        unsafe { level.link(self.shown.linked, self.shown.turns) };
        self.top += 1;
        // SAFETY: as in `publish`; it has tags.
        unsafe { in_force.put(level.record()) };
        Some(number)
    }

    /// The same for any tags, whatever is in force.
    #[inline(never)]
    fn enter_merged(&mut self, in_force: &InForce, tags: &[u8], replaces: bool) -> Option<u32> {
        let (levels, above) = self.levels.split_at_mut(self.top + 1);
        let (level, outer) = (above.first_mut()?, if replaces { levels.first() } else { levels.last() }?);
        let number = numbered(&mut self.next);
        level.begin(number, tags.len(), replaces);
        // SAFETY: the level above the top is not in force.
        unsafe { level.link(self.shown.linked, self.shown.turns) };
        // SAFETY: as above.
        let record = unsafe { level.record_mut() };
        leave_out(record.write(tags, outer.record().tags()));
        self.top += 1;
        publish(in_force, record);
        Some(number)
    }

    /// Enters a scope for which there is no level.
    #[cold]
    fn enter_deeper(&mut self, in_force: &InForce, tags: &[u8], replaces: bool) -> u32 {
        if self.top < MAX_SCOPES && self.beyond == 0 {
            self.levels.push(Level::new());
            return self.enter(in_force, tags, replaces);
        }
        leave_out(pairs(tags).count() as u64);
        self.beyond += 1;
        if self.beyond == 1 {
            self.levels.push(Level::new());
            self.top += 1;
            let level = &mut self.levels[self.top];
            level.begin(NOBODY, OVERFLOW.len(), true);
            // SAFETY: the level above what was the top is not in force.
            unsafe { level.link(self.shown.linked, self.shown.turns) };
            // SAFETY: as above.
            unsafe { level.record_mut() }.write(OVERFLOW, &[]);
            publish(in_force, level.record());
        }
        BEYOND
    }

    /// Leaves a scope. Others keep what they brought, also those that are inside it and outlive it.
    pub(super) fn leave(&mut self, in_force: &InForce, number: u32) {
        self.forget_what_is_gone(in_force);
        if number == BEYOND {
            self.leave_beyond(in_force);
        } else if self.leave_innermost(in_force, number).is_none() {
            self.leave_inside(in_force, number);
        }
    }

    /// The same, without a call, where it is the innermost and there is no more to do; else `None`, and nothing is done.
    #[inline]
    pub(super) fn leave_at_once(&mut self, in_force: &InForce, number: u32) -> Option<()> {
        if self.shown.is_left_behind() { None } else { self.leave_innermost(in_force, number) }
    }

    #[inline]
    fn leave_innermost(&mut self, in_force: &InForce, number: u32) -> Option<()> {
        self.levels.get(self.top).filter(|top| top.number == number)?;
        self.leave_top(in_force);
        Some(())
    }

    #[inline]
    fn leave_top(&mut self, in_force: &InForce) {
        self.top -= 1;
        let level = &mut self.levels[self.top];
        // SAFETY: what is in force is the record of the top as it was.
        unsafe { level.link(self.shown.linked, self.shown.turns) };
        publish(in_force, level.record());
    }

    /// Leaves one of those that share a level, which goes with the last of them.
    #[cold]
    fn leave_beyond(&mut self, in_force: &InForce) {
        if self.beyond == 1 {
            self.leave_top(in_force);
            self.levels.truncate(self.top + 2);
        }
        self.beyond = self.beyond.saturating_sub(1);
    }

    /// Leaves one that is not the innermost: its level goes from between the others, and is there for the next scope.
    #[cold]
    fn leave_inside(&mut self, in_force: &InForce, number: u32) {
        let Some(level) = (1..self.top).rev().find(|level| self.levels[*level].number == number) else { return };
        let left = self.levels.remove(level);
        self.top -= 1;
        // A scope above the one of those beyond the bound finds no level, and is one of them.
        if self.beyond == 0 {
            self.levels.push(left);
        }
        self.rewrite(level);
        publish(in_force, self.levels[self.top].record());
    }

    /// Shows which span is current: its tags, and its ids and flags where its source has any to say. Where nothing changes, nothing
    /// is written.
    #[cfg(any(feature = "opentelemetry", feature = "tracing-layer"))]
    pub(super) fn show(&mut self, in_force: &InForce, source: Source<'_>, tags: &[u8], span: Option<Linked>) {
        let news = self.shown.show(source, tags, span);
        self.write_news(in_force, news);
    }

    /// Shows the span of OpenTelemetry, if there is one, without the allocator, where nobody but OpenTelemetry has a say and no span has tags;
    /// else `None`, and nothing is done.
    #[cfg(feature = "opentelemetry")]
    #[inline]
    pub(super) fn show_at_once(&mut self, in_force: &InForce, span: Linked) -> Option<()> {
        if self.shown.show_alone(span)? {
            self.write_span(in_force, span);
        }
        Some(())
    }

    /// Forgets what a layer showed that is gone.
    #[inline]
    pub(super) fn forget_what_is_gone(&mut self, in_force: &InForce) {
        if self.shown.is_left_behind() {
            let news = self.shown.forget_layer();
            self.write_news(in_force, news);
        }
    }

    fn write_news(&mut self, in_force: &InForce, news: News) {
        if news.tags {
            self.rewrite(0);
            publish(in_force, self.levels[self.top].record());
        } else if news.span {
            self.write_span(in_force, self.shown.linked);
        }
    }

    /// Puts a record in force that differs by its span alone, which is that of `shown`: handed on, for it was written there a moment before.
    #[inline]
    fn write_span(&mut self, in_force: &InForce, span: Linked) {
        // Always there, by the invariant: behind the top there is a level.
        let Some([level, spare, ..]) = self.levels.get_mut(self.top..) else { return };
        // SAFETY: the level above the top is not in force.
        unsafe { spare.link(span, self.shown.turns) };
        // SAFETY: as above.
        unsafe { spare.record_mut() }.write(level.record().tags(), &[]);
        level.swap_records(spare);
        publish(in_force, level.record());
    }

    /// Writes the records from this level on anew, all but the one in force, in whose place there is then another one.
    fn rewrite(&mut self, from: usize) {
        for level in from..=self.top {
            let (levels, above) = self.levels.split_at_mut(self.top + 1);
            // SAFETY: the level above the top is not in force before the last round has put the top's old record there.
            unsafe { above[0].link(self.shown.linked, self.shown.turns) };
            // SAFETY: as above.
            let spare = unsafe { above[0].record_mut() };
            let left_out = match level.checked_sub(1) {
                Some(_) if self.beyond > 0 && level == self.top => spare.write(OVERFLOW, &[]),
                Some(_) if levels[level].replaces => spare.write(levels[level].own_tags(), levels[0].record().tags()),
                Some(below) => spare.write(levels[level].own_tags(), levels[below].record().tags()),
                None => spare.write(self.shown.of_tracing(), self.shown.of_opentelemetry()),
            };
            leave_out(left_out);
            self.put_spare(level);
        }
    }

    /// Makes the spare record that of a level, whose own is the spare from now on.
    #[inline]
    fn put_spare(&mut self, level: usize) {
        let (levels, above) = self.levels.split_at_mut(self.top + 1);
        levels[level].swap_records(&mut above[0]);
    }

    /// Writes the tags that are in force, but for those of spans: what a task inherits. The bytes written. One without room is there without
    /// its value, so that no span's is taken for it where the task runs.
    pub(super) fn of_scopes(&self, into: &mut [u8; MAX_TAG_BYTES]) -> usize {
        let first = (1..=self.top).rev().find(|level| self.levels[*level].replaces).unwrap_or(1);
        self.levels[first..=self.top].iter().fold(0, |length, level| {
            let outer = *into;
            // What has no room was counted on entry.
            merge(level.own_tags(), &outer[..length], into).0
        })
    }
}

/// The number of the next scope.
#[inline]
fn numbered(next: &mut u32) -> u32 {
    let number = *next;
    *next = if number < NOBODY - 1 { number + 1 } else { 1 };
    number
}

/// Puts the record of the top in force; one that says nothing is none.
#[inline]
fn publish(in_force: &InForce, record: &Record) {
    // SAFETY: the top's record is neither written nor freed before that of another top, or another record of it, is in force (`Scopes`).
    unsafe { in_force.put(if record.is_empty() { ptr::null() } else { ptr::from_ref(record) }) };
}

#[cfg(test)]
mod tests;
