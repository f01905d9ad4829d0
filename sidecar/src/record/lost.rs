//! What was lost, and what is less than perfect, as a person reads it.
//!
//! In: what the ledger says was lost, before and after; the flaws of what was recorded. Out: how much, and why. Pure.

use profiler_proto::loss::{Cause, Degraded, Flaw, Loss};

use crate::capture::lacking::counted;

/// What was lost since it was `before`.
#[must_use]
pub fn lost_since(before: &Loss, now: &Loss) -> Loss {
    let mut since = Loss::default();
    now.iter().for_each(|(cause, count)| since.add(cause, count.saturating_sub(before.count(cause))));
    since
}

/// "0 lost", or "20 lost (16 …, 4 …)".
#[must_use]
pub fn lost_text(lost: &Loss) -> String {
    let causes: Vec<String> =
        lost.iter().filter(|(_, count)| *count > 0).map(|(cause, count)| format!("{count} {}", why(cause))).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    format!("{} lost{causes}", lost.total())
}

fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::RingFull => "for which there was no room in the ring that the kernel writes to",
        Cause::Gone => "of processes that ended before they were looked at, or gave no answer",
        Cause::AggregateFull => "for which there was no room beside all other distinct stacks",
        Cause::Shutdown => "for which there was no time at the end",
        Cause::Failed => "that could not be read, which is a bug",
        other => other.name(),
    }
}

/// "Less than perfect: 3 samples of stacks …, 1 sample …" in a line of its own; nothing where nothing is less than perfect.
pub(super) fn flaws_text(degraded: &Degraded) -> String {
    let flaws: Vec<String> = degraded
        .iter()
        .filter(|(_, count)| *count > 0)
        .filter_map(|(flaw, count)| Some(format!("{} {}", counted(count, "samples"), which(flaw)?)))
        .collect();
    if flaws.is_empty() { String::new() } else { format!("Less than perfect: {}\n", flaws.join(", ")) }
}

/// `None` of those that are counted as [`Flaw::UnwindStopped`], too.
fn which(flaw: Flaw) -> Option<&'static str> {
    match flaw {
        Flaw::Truncated => Some("of stacks that are too deep, without what is in their middle"),
        Flaw::UnwindStopped => Some("of stacks that end before their root"),
        Flaw::NoContext => Some("without all of their labels or their span"),
        Flaw::UnwindUnknown | Flaw::UnwindUnreadable | Flaw::UnwindInDoubt => None,
        other => Some(other.name()),
    }
}
