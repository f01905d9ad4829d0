//! From dumps to rows of a window: without the frames of the allocator, each bucket standing for what it was sampled from.
//!
//! In: dumps, one after the other. Out: sites and rows, of no tag and no span. Knows the allocator's frames from a dump that is made
//! while blocks of its own live. On the `profiler-io` thread.

use std::collections::{HashMap, HashSet};

use profiler_proto::heap_v2::{Counts, Dump, Stack};

use super::control;
use super::dump::{self, DumpRead};
use super::frames::{AllocatorFrames, Found, Held};
use super::weight::Weight;
use super::window::{Row, Since, Site};
use crate::cpu::record::Head;
use crate::error::Error;
use crate::unwind::frames::StackEnd;
use crate::unwind::walk::Snapshot;

/// jemalloc takes no more frames of a stack. Source: jemalloc 5.3.0, include/jemalloc/internal/prof_externs.h and prof_types.h, `PROF_BT_MAX`.
const MOST_FRAMES: usize = 128;

/// What is known from one dump to the next.
#[derive(Debug)]
pub(super) struct Reading {
    frames: AllocatorFrames,
    found: Found,
    /// The interval before the start, as a power of two: with it this thread's distance to its first sample was drawn.
    lg_before: u32,
    /// Stacks on which blocks were allocated to learn from: no part of any profile.
    lessons: HashSet<Box<[u64]>>,
    counted: Counted,
}

/// What had been allocated by some time at each stack; nothing where jemalloc keeps no count.
type Allocated = HashMap<Box<[u64]>, Weight>;

/// From where on counts of what was allocated are shown.
#[derive(Debug, Default)]
struct Counted {
    /// The interval that jemalloc counted with; 0: none yet.
    interval: u64,
    /// At the start, by stack and in all.
    start: Allocated,
    start_in_all: Weight,
    /// When the last profile was made that says what was allocated since the one before.
    last: Allocated,
}

/// What a dump comes to.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) sites: Vec<Site>,
    pub(super) rows: Vec<Row>,
}

impl Reading {
    pub(super) fn new(lg_before: u32) -> Self {
        let (frames, found) = (AllocatorFrames::new(), Found::new());
        Self { frames, found, lg_before, lessons: HashSet::new(), counted: Counted::default() }
    }

    /// Begins with this dump: what had been allocated by then is no part of any profile.
    pub(super) fn begin(&mut self, dump: &Dump) {
        let start = allocated(dump);
        let start_in_all = Row::of(&dump.in_all, dump.interval).allocated;
        self.counted = Counted { interval: dump.interval, last: start.clone(), start, start_in_all };
    }

    /// jemalloc has begun anew to count.
    pub(super) fn forget(&mut self) {
        self.counted = Counted::default();
    }

    /// Has jemalloc dump its profile; learns from the first ones, until something is known.
    pub(super) fn take(&mut self, snapshot: &Snapshot) -> Result<DumpRead, Error> {
        let teaches = self.frames.count() == 0 && control::is_active();
        let held = if teaches { Some(Held::new(control::lg_interval()?.max(self.lg_before))) } else { None };
        let taken = dump::take();
        drop(held);
        let mut taken = taken?;
        if teaches {
            let (lessons, stacks) = (&mut self.lessons, &taken.dump.stacks);
            self.frames.learn_from(snapshot, |is_lesson| {
                let taught = stacks.iter().filter(|stack| is_lesson(&calls(&stack.addresses)));
                lessons.extend(taught.map(|stack| stack.addresses.clone()));
            });
        }
        self.leave_out_lessons(&mut taken.dump);
        Ok(taken)
    }

    fn leave_out_lessons(&self, dump: &mut Dump) {
        let Dump { in_all, stacks, .. } = dump;
        let lessons = stacks.extract_if(.., |stack| self.lessons.contains(&stack.addresses));
        for Stack { counts, .. } in lessons {
            in_all.live = in_all.live.saturating_sub(counts.live);
            in_all.live_bytes = in_all.live_bytes.saturating_sub(counts.live_bytes);
            in_all.allocated = in_all.allocated.saturating_sub(counts.allocated);
            in_all.allocated_bytes = in_all.allocated_bytes.saturating_sub(counts.allocated_bytes);
        }
    }

    /// What a dump says, of which what was allocated counts `since` then.
    pub(super) fn rows(&mut self, taken: &DumpRead, since: &Since, snapshot: &Snapshot) -> Rows {
        let (dump, is_next) = (&taken.dump, matches!(since, Since::LastProfile));
        // Another one can only be set by a reset of all counts.
        if self.counted.interval != dump.interval {
            self.counted = Counted { interval: dump.interval, ..Counted::default() };
        }
        let (mut found, mut shown) = (Rows::default(), Row::default());
        for Stack { addresses, counts } in &dump.stacks {
            let in_all = Row::of(counts, dump.interval);
            let before = if is_next { &self.counted.last } else { &self.counted.start };
            let before = before.get(addresses).copied().unwrap_or_default();
            let row = Row { allocated: in_all.allocated.since(before), ..in_all };
            shown.allocated += row.allocated;
            shown.in_use += row.in_use;
            if (row.allocated, row.in_use) != Default::default() {
                found.push(row, self.site(addresses, snapshot));
            }
        }
        if taken.is_cut {
            let Row { allocated, in_use, .. } = Row::of(&dump.in_all, dump.interval);
            let in_all = allocated.since(self.counted.start_in_all);
            // What of this was allocated since the last profile is told of each stack when it is read again.
            let allocated = if is_next { Weight::default() } else { in_all.since(shown.allocated) };
            let rest = Row { allocated, in_use: in_use.since(shown.in_use), ..Row::default() };
            found.push(rest, Site { is_beyond: true, ..Site::default() });
        }
        if is_next {
            // Stacks that were not read count from where they did.
            if !taken.is_cut {
                self.counted.last.clear();
            }
            self.counted.last.extend(allocated(dump));
        }
        found
    }

    fn site(&mut self, addresses: &[u64], snapshot: &Snapshot) -> Site {
        let end = if addresses.len() < MOST_FRAMES { StackEnd::Root } else { StackEnd::TooDeep };
        let calls = calls(addresses);
        let hidden = self.frames.leading(snapshot, &calls, &mut self.found);
        Site { head: Head { end, ..Head::default() }, addresses: calls[hidden..].to_vec(), ..Site::default() }
    }
}

impl Rows {
    fn push(&mut self, row: Row, site: Site) {
        self.rows.push(Row { site: self.sites.len(), ..row });
        self.sites.push(site);
    }
}

impl Row {
    /// What samples in a dump stand for, of no site yet.
    fn of(counts: &Counts, interval: u64) -> Self {
        let Counts { live, live_bytes, allocated, allocated_bytes } = *counts;
        let weight = |blocks, bytes| Weight::of_dumped(blocks, bytes, interval);
        Self { allocated: weight(allocated, allocated_bytes), in_use: weight(live, live_bytes), ..Self::default() }
    }
}

fn allocated(dump: &Dump) -> Allocated {
    let stacks = dump.stacks.iter().map(|Stack { addresses, counts }| (addresses, Row::of(counts, dump.interval)));
    let counted = stacks.filter(|(_, row)| row.allocated != Weight::default());
    counted.map(|(addresses, row)| (addresses.clone(), row.allocated)).collect()
}

/// Where calls are that return to these addresses.
fn calls(returns: &[u64]) -> Vec<u64> {
    returns.iter().map(|address| address.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use crate::unwind::modules::Modules;

    use super::*;

    /// A dump of stacks that allocated and freed so many blocks of 100 bytes, one sampled for each; of which there are some more in all.
    fn dumped(stacks: &[(u64, u64, u64)], is_cut: bool) -> DumpRead {
        let counts = |live, allocated| Counts { live, live_bytes: 100 * live, allocated, allocated_bytes: 100 * allocated };
        let stack = |(address, live, allocated): &(u64, u64, u64)| Stack {
            addresses: [*address, 0x2001].into(),
            counts: counts(*live, *allocated),
        };
        let stacks: Vec<Stack> = stacks.iter().map(stack).collect();
        let sum = |of: fn(&Counts) -> u64| stacks.iter().map(|stack| of(&stack.counts)).sum::<u64>() + 10;
        let in_all = counts(sum(|counts| counts.live), sum(|counts| counts.allocated));
        DumpRead { dump: Dump { interval: 1, in_all, stacks }, bytes: 0, is_cut }
    }

    /// By the address of the call at the leaf, 0 beyond: objects allocated, and in use.
    fn told(rows: &Rows) -> Vec<(u64, i64, i64)> {
        let leaf = |row: &Row| rows.sites[row.site].addresses.first().copied().unwrap_or(0);
        rows.rows.iter().map(|row| (leaf(row), row.allocated.objects(), row.in_use.objects())).collect()
    }

    fn snapshot() -> Snapshot {
        Snapshot::take(&Modules::default())
    }

    /// Check that what was allocated counts since the last profile of its kind, or since the start, that asking for the one does not change the other,
    /// and that a stack is gone of which there is nothing to tell.
    #[test]
    fn what_was_allocated_counts_since_the_last_profile() {
        let (mut reading, snapshot) = (Reading::new(0), snapshot());
        let mut rows = |stacks: &[_], since| told(&reading.rows(&dumped(stacks, false), &since, &snapshot));
        assert_eq!(rows(&[(0x1001, 3, 5), (0x1002, 0, 0)], Since::LastProfile), [(0x1000, 5, 3)]);
        assert_eq!(rows(&[(0x1001, 2, 9)], Since::Start), [(0x1000, 9, 2)]);
        assert_eq!(rows(&[(0x1001, 2, 9), (0x1003, 1, 1)], Since::LastProfile), [(0x1000, 4, 2), (0x1002, 1, 1)]);
        assert_eq!(rows(&[(0x1001, 0, 9), (0x1003, 1, 1)], Since::LastProfile), [(0x1002, 0, 1)]);
    }

    /// Check that what was allocated at a stack which a dump was cut before counts since it was read last.
    #[test]
    fn a_stack_that_was_cut_off_counts_on() {
        let (mut reading, snapshot) = (Reading::new(0), snapshot());
        let mut rows = |stacks: &[_], is_cut| told(&reading.rows(&dumped(stacks, is_cut), &Since::LastProfile, &snapshot));
        assert_eq!(rows(&[(0x1001, 0, 5), (0x1003, 0, 7)], false), [(0x1000, 5, 0), (0x1002, 7, 0)]);
        assert_eq!(rows(&[(0x1001, 0, 6)], true), [(0x1000, 1, 0), (0, 0, 10)]);
        assert_eq!(rows(&[(0x1001, 0, 6), (0x1003, 0, 9)], false), [(0x1002, 2, 0)]);
    }

    /// Check that what had been allocated before the start is no part of what was allocated since the start, nor of the first profile that is sent, of the stacks
    /// that are shown and of those beyond.
    #[test]
    fn what_was_allocated_before_the_start_does_not_count() {
        let snapshot = snapshot();
        let (before, now) = ([(0x1001, 3, 5), (0x1002, 0, 2)], [(0x1001, 3, 9), (0x1002, 0, 2)]);
        for (is_cut, shown) in [(false, vec![(0x1000, 4, 3)]), (true, vec![(0x1000, 4, 3), (0, 0, 10)])] {
            let mut reading = Reading::new(0);
            reading.begin(&dumped(&before, false).dump);
            let mut rows = |since| told(&reading.rows(&dumped(&now, is_cut), &since, &snapshot));
            assert_eq!(rows(Since::Start), shown);
            assert_eq!(rows(Since::LastProfile), shown);
            // What is sent changes nothing in what was allocated since the start.
            assert_eq!(rows(Since::Start), shown);
        }
    }

    /// Check that what a dump says of all stacks beyond those that were read is shown as one, and where all were read nothing.
    #[test]
    fn what_was_cut_off_is_shown_as_one() {
        let (mut reading, snapshot) = (Reading::new(0), snapshot());
        let stacks = [(0x1001, 3, 5)];
        let mut rows = |is_cut| reading.rows(&dumped(&stacks, is_cut), &Since::Start, &snapshot);
        assert_eq!(told(&rows(false)), [(0x1000, 5, 3)]);
        let cut = rows(true);
        assert_eq!(told(&cut), [(0x1000, 5, 3), (0, 10, 10)]);
        assert_eq!(cut.sites.iter().map(|site| site.is_beyond).collect::<Vec<_>>(), [false, true]);
    }

    /// Check that where jemalloc began anew to count, for it was told to or for others took another interval, all that it counted since is shown.
    #[test]
    fn counts_begin_anew_with_an_interval() {
        let (mut reading, snapshot) = (Reading::new(0), snapshot());
        let dump = |allocated, interval| {
            let mut taken = dumped(&[(0x1001, 0, allocated)], false);
            taken.dump.interval = interval;
            taken
        };
        let both = |reading: &mut Reading, taken: &DumpRead| {
            [Since::Start, Since::LastProfile].map(|since| told(&reading.rows(taken, &since, &snapshot)))
        };
        reading.begin(&dump(7, 1).dump);
        assert_eq!(both(&mut reading, &dump(9, 1)), [[(0x1000, 2, 0)]; 2]);
        assert_eq!(both(&mut reading, &dump(3, 2)), [[(0x1000, 3, 0)]; 2]);
        assert_eq!(both(&mut reading, &dump(5, 2)), [[(0x1000, 5, 0)], [(0x1000, 2, 0)]]);
        reading.forget();
        assert_eq!(both(&mut reading, &dump(6, 2)), [[(0x1000, 6, 0)]; 2]);
    }

    /// Check that of what was allocated to learn from nothing is left: no stack, and in all neither what lives of it nor what was allocated.
    #[test]
    fn lessons_are_left_out() {
        let mut reading = Reading::new(0);
        reading.lessons.insert([0x1002, 0x2001].into());
        let mut dump = dumped(&[(0x1001, 3, 5), (0x1002, 20, 40), (0x1003, 1, 1)], false).dump;
        reading.leave_out_lessons(&mut dump);
        assert_eq!(dump, dumped(&[(0x1001, 3, 5), (0x1003, 1, 1)], false).dump);
    }

    /// Check that a stack is said to be whole unless it has as many frames as jemalloc takes.
    #[test]
    fn a_stack_as_deep_as_can_be_is_cut() {
        let (mut reading, snapshot) = (Reading::new(0), snapshot());
        let mut end = |frames: usize| reading.site(&vec![0x1001; frames], &snapshot).head.end;
        assert_eq!([end(MOST_FRAMES - 1), end(MOST_FRAMES)], [StackEnd::Root, StackEnd::TooDeep]);
    }
}
