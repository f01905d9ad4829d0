//! The report as a table for a person, or as JSON for a program.
//!
//! In: a [`Report`]. Out: text. What processes choose (paths, names) is shown without control characters: a terminal obeys them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Check, Report, Row, Verdict};
use crate::plain::plain;

/// Longest path or name in a column of the table.
const WIDEST: usize = 48;

pub(super) fn table(report: &Report) -> String {
    let mut text = String::new();
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for Check { name, verdict, found, remedy } in &report.checks {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<5}  {name:<width$}  {}", verdict.word(), plain(found));
        if !remedy.is_empty() {
            let _ = writeln!(text, "{:<5}  {:<width$}  -> {}", "", "", plain(remedy));
        }
    }
    let rows: Vec<_> = report.processes.iter().map(cells).collect();
    let head = ["PID", "KIND", "SERVICE", "PROGRAM", "CONTAINER", "PROFILED"].map(str::to_owned);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            std::iter::once(&head)
                .chain(&rows)
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    text.push('\n');
    for row in std::iter::once(&head).chain(&rows) {
        let line: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

fn cells(row: &Row) -> [String; 6] {
    let short = |text: &str| {
        let text = plain(text);
        let length = text.chars().count();
        // The end of a path says more than its beginning.
        if length <= WIDEST {
            text
        } else {
            format!("…{}", text.chars().skip(length + 1 - WIDEST).collect::<String>())
        }
    };
    let container: String = row.container.as_deref().unwrap_or("-").chars().take(12).collect();
    let profiled = match (&row.why_not, &row.but) {
        (Some(why), _) => format!("no: {}", plain(why)),
        (None, Some(but)) => plain(but),
        (None, None) => "yes".to_owned(),
    };
    [row.pid.to_string(), plain(&row.kind), short(&row.service), short(&row.exe), plain(&container), profiled]
}

pub(super) fn json(report: &Report) -> String {
    let checks: Vec<Value> = report.checks.iter().map(check).collect();
    let processes: Vec<Value> = report.processes.iter().map(process).collect();
    let is_sampling = report.checks.iter().all(|check| check.verdict != Verdict::Fails);
    format!("{:#}\n", json!({ "samples_cpu": is_sampling, "checks": checks, "processes": processes }))
}

fn check(check: &Check) -> Value {
    let verdict = match check.verdict {
        Verdict::Works => "works",
        Verdict::Lacks => "lacks",
        Verdict::Fails => "fails",
    };
    let remedy = Some(check.remedy.as_str()).filter(|remedy| !remedy.is_empty());
    json!({ "name": check.name, "verdict": verdict, "found": check.found, "remedy": remedy })
}

fn process(row: &Row) -> Value {
    json!({
        "pid": row.pid,
        "kind": row.kind,
        "service": row.service,
        "program": row.exe,
        "container": row.container,
        "profiled": row.why_not.is_none(),
        "why_not": row.why_not,
        "but": row.but,
    })
}
