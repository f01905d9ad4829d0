//! `docs/conformance.md`: each rule has its row, each row its tests, and those are there.
//!
//! In: the page, and the files that it names. Out: a failure that names the rule, or the test that is none.

use std::collections::BTreeSet;
use std::path::Path;

use profiler_proto::loss::Cause;

/// The rules, by the section of what they are taken from.
const RULES: [(&str, &[&str]); 4] = [
    ("0", &["R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12"]),
    (
        "1.3",
        &[
            "zero",
            "duplicates",
            "keys",
            "shape",
            "timestamps",
            "identity",
            "leaf",
            "address",
            "lines",
            "ids",
            "link",
            "payload",
            "profile id",
            "build id",
            "values",
        ],
    ),
    ("1.4", &["gRPC", "HTTP", "answer", "size", "over", "envelope"]),
    (
        "11",
        &["HTTP", "codes", "backoff", "timeout", "partial", "caps", "queue", "gzip", "agent", "variables", "headers"],
    ),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The rules of the page, and the tests that each names as `file::test`.
fn rows() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        let tests = cells.last().unwrap().split('`').skip(1).step_by(2).map(str::to_owned);
        (cells[0].to_owned(), tests.collect())
    });
    cells.filter(|(rule, _): &(String, Vec<String>)| rule != "rule").collect()
}

/// Whether `file` holds a test of this name: a function behind an attribute that makes it one.
fn is_test(file: &str, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root().join(file)) else { return false };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_it = |line: &&str| line.split_once("fn ").is_some_and(|(_, rest)| rest.starts_with(&format!("{name}(")));
    let Some(place) = lines.iter().position(is_it) else { return false };
    let mut attributes = lines[..place].iter().rev().take_while(|line| line.starts_with("#["));
    attributes.any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
}

/// Check that each rule has a row, and no row is of another rule.
#[test]
fn every_rule_has_a_row() {
    let known = RULES.iter().flat_map(|(section, rules)| rules.iter().map(move |rule| format!("{section} {rule}")));
    let there: Vec<String> = rows().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(there, known.collect::<Vec<_>>());
}

/// Check that each row names tests, and that they are there.
#[test]
fn every_row_names_tests_that_are_there() {
    let mut wrong = BTreeSet::new();
    for (rule, tests) in rows() {
        if tests.is_empty() {
            wrong.insert(format!("{rule}: no test"));
        }
        for test in tests {
            let found = test.split_once("::").is_some_and(|(file, name)| is_test(file, name));
            if !found {
                wrong.insert(format!("{rule}: {test}"));
            }
        }
    }
    assert!(wrong.is_empty(), "tests that are not there: {wrong:#?}");
}

/// Check that `docs/export.md` says of each cause of a loss what it is, and of none that there is not.
#[test]
fn every_cause_of_a_loss_has_a_row() {
    let page = std::fs::read_to_string(root().join("docs/export.md")).unwrap();
    let (_, table) = page.split_once("| cause | what happened | what to do |\n").unwrap();
    let rows = table.lines().skip(1).map_while(|line| line.strip_prefix("| `")?.split('`').next());
    let causes: Vec<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
    assert_eq!(rows.collect::<Vec<_>>(), causes);
}
