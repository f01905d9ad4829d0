//! Which stored sets are old enough to be joined into minutes.
//!
//! In: the sets of the store in the order of their arrival. Out: a run of neighbours to be merged. Sets of ten seconds
//! name the same functions and stacks again and again; merged, they take a fraction of the memory and of the time to sum
//! up; of what is in use, the last state of the minute stays. What is newest stays as fine as it came, while there is room.

use std::ops::Range as Run;

use profiler_proto::ProfileSet;

use super::range::Range;

/// Sets of one minute since 1970 are joined.
const MINUTE: u64 = 60_000_000_000;
/// For so long after a minute its sets stay apart.
const FINE: u64 = 2 * MINUTE;
/// Sets further apart have a pause between them; joined, the pause would count as their time.
const MOST_GAP: u64 = 1_000_000_000;

/// When sets are joined.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// Some minutes after the end of theirs; the newest profile of all ends at this time.
    Old(u64),
    /// As soon as there is one behind them, for there is little room left.
    Soon,
}

/// The first run of two or more sets that are to be joined.
pub(super) fn due<'a>(sets: impl Iterator<Item = (&'a ProfileSet, Range)>, when: When) -> Option<Run<usize>> {
    let mut run: Option<(Run<usize>, &ProfileSet, Range)> = None;
    for (index, (set, range)) in sets.enumerate() {
        run = match run {
            Some((run, first, last)) if belong(first, last, set, range) => Some((run.start..index + 1, first, range)),
            Some((run, ..)) if run.len() > 1 => return Some(run),
            _ if when.is_for(range) => Some((index..index + 1, set, range)),
            _ => return None,
        };
    }
    run.map(|(run, ..)| run).filter(|run| run.len() > 1)
}

/// Whether a set follows the last one of a run within the same minute, and is of the same process.
fn belong(first: &ProfileSet, last: Range, next: &ProfileSet, range: Range) -> bool {
    minute_of(last) == minute_of(range)
        && range.from.abs_diff(last.to) <= MOST_GAP
        && first.resource == next.resource
        && first.scope == next.scope
}

impl When {
    fn is_for(self, range: Range) -> bool {
        match self {
            Self::Old(newest) => ((minute_of(range) + 1).saturating_mul(MINUTE)).saturating_add(FINE) <= newest,
            Self::Soon => true,
        }
    }
}

fn minute_of(range: Range) -> u64 {
    range.from / MINUTE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::Stacks;

    /// The run that is due of sets of ten seconds that start at these seconds, the newest ending at `newest`.
    fn run(starts: &[u64], newest: u64) -> Option<Run<usize>> {
        let set = Stacks::new().set();
        let range = |start: &u64| Range { from: start * 1_000_000_000, to: (start + 10) * 1_000_000_000 };
        due(starts.iter().map(|start| (&set, range(start))), When::Old(newest * 1_000_000_000))
    }

    /// Check that the sets of a minute are due two minutes after its end.
    #[test]
    fn a_minute_is_due_two_minutes_after_its_end() {
        assert_eq!(run(&[60, 70, 80, 90, 100, 110, 120, 130], 239), None);
        assert_eq!(run(&[60, 70, 80, 90, 100, 110, 120, 130], 240), Some(0..6));
        assert_eq!(run(&[50, 60, 70], 240), Some(1..3));
        assert_eq!(run(&[50, 60], 240), None);
    }

    /// Check that a pause divides a minute, and that sets of other processes stay apart.
    #[test]
    fn a_pause_divides_a_minute() {
        assert_eq!(run(&[60, 70, 90, 100], 240), Some(0..2));
        assert_eq!(run(&[60, 80, 100], 240), None);
        let (ours, mut other) = (Stacks::new().set(), Stacks::new().set());
        other.resource.set("service.name", "other");
        let range = |start: u64| Range { from: start, to: start };
        let sets = [(&ours, range(0)), (&other, range(1)), (&other, range(2))];
        assert_eq!(due(sets.into_iter(), When::Soon), Some(1..3));
    }
}
