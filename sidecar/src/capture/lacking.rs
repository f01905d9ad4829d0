//! What a capture lacks, for people: a line for each cause, nothing where all is there.
//!
//! In: what a capture counted as left out. Out: text, for commands and the log. Pure.

use std::fmt::Write as _;

use super::buckets::Walk;
use super::goroutines::Goroutines;

impl Walk {
    /// What is missing of a list of `what`.
    pub(crate) fn lacking(&self, what: &str) -> String {
        let causes = [
            (self.beyond, "left out, as there are more than asked for"),
            (self.over_bytes, "left out, as those before have all the bytes that a capture may have"),
            (self.foreign, "left out, with addresses that are no code of the program"),
            (self.implausible, "left out, with figures that cannot be"),
            (self.over_work, "more at least left out, as a capture may do no more work"),
            (self.broken, "could not be read; what stood behind is missing"),
        ];
        lines(&causes, what)
    }
}

impl Goroutines {
    /// What is missing of them.
    pub(crate) fn lacking(&self) -> String {
        let causes = [
            (self.beyond, "left out, as there are more than asked for, or than a capture may look at"),
            (self.over_bytes, "without their stacks, as those before have all the bytes that a capture may have"),
            (self.broken, "could not be read"),
            (self.over_work, "without their stacks, as a capture may do no more work"),
            (
                self.changed,
                "ran on while their stacks were copied, and are shown without, or not at all before they had a number",
            ),
            (
                self.labels_cut,
                "without their labels, as those before have all the bytes, or took all the work, that there is for them",
            ),
            (self.labels_short, "with more labels than 64, or some of more than 1,024 bytes, which are cut"),
            (self.labels_changed, "without their labels, which were others each time that they were read, or are none"),
        ];
        lines(&causes, "goroutines")
    }
}

fn lines(causes: &[(u64, &str)], what: &str) -> String {
    causes.iter().filter(|(count, _)| *count > 0).fold(String::new(), |mut text, (count, why)| {
        // Writing to a `String` cannot fail.
        _ = writeln!(text, "{} {why}", counted(*count, what));
        text
    })
}

/// So many of `what`, which is a plural.
pub(crate) fn counted(count: u64, what: &str) -> String {
    let what = if count == 1 { what.strip_suffix('s').unwrap_or(what) } else { what };
    format!("{count} {what}")
}
