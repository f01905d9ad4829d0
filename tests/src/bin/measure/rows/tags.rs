//! The cost of tags and spans: CPU time to enter and leave a scope of two tags, on one thread and on 64 at once; what tags add to a
//! poll, what following spans adds to making one current, and what both add to a request. 64 threads take no longer than one where nothing is shared.
//!
//! *Prebuilt* is a set that was made before, *built* one that is made for this, with a value that varies. Each figure is less what
//! the same loop takes without it.

use profiler_tests::Result;
use profiler_tests::statistics::median;

use super::Row;
use super::cost::numbers;
use crate::lab::{Lab, Outcome};
use crate::report::{Line, Report};
use crate::who::Who;

/// The row.
pub(crate) const ROW: Row = Row { name: "tags", what: "CPU time of a scope of tags, of a poll, of a span", measure };

/// What is done, what is done without, and how the line is called.
const LINES: [(&str, &str, &str); 5] = [
    ("prebuilt", "nothing", "a scope, prebuilt"),
    ("built", "nothing", "a scope, built"),
    ("poll", "bare poll", "added to a poll"),
    ("span", "nothing", "a span made current, with OpenTelemetry's own"),
    ("request", "nothing", "a request through axum, with a span and, where there is a profiler, with tags"),
];

fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    let rounds = if lab.quick { 20_000 } else { 200_000 };
    for threads in [1, 64] {
        let task = ["task=tags".to_owned(), format!("threads={threads}"), format!("rounds={}", rounds / threads)];
        let outcomes = Who::ALL.map(|who| (who, lab.run(who, &task)));
        let outcomes = outcomes.into_iter().map(|(who, outcome)| Ok((who, outcome?))).collect::<Result<Vec<_>>>()?;
        for (name, without, described) in LINES {
            let values = outcomes.iter().filter_map(|(who, outcome)| {
                Some((*who, nanos(outcome, name)? - nanos(outcome, without).unwrap_or(0.0)))
            });
            let what = format!("{described}, {threads} threads");
            report.add(Line { row: ROW.name, what, unit: "ns", digits: 1, values: values.collect() });
        }
    }
    Ok(())
}

/// The median of the batches.
pub(super) fn nanos(outcome: &Outcome, name: &str) -> Option<f64> {
    let batches = numbers(&outcome.said[name]);
    (!batches.is_empty()).then(|| median(&batches))
}
