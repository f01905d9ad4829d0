//! What was measured: as a table for a person and as JSON for a program.
//!
//! In: one line per figure, with a value per profiler. Out: both forms, with the machine and the versions they hold for.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use profiler_tests::Result;
use serde_json::{Map, Value, json};

use crate::lab::Lab;
use crate::rows::{heap, packages, sidecar};
use crate::who::Who;

/// What was measured so far.
#[derive(Debug)]
pub(crate) struct Report {
    lines: Vec<Line>,
    /// Rows that could not be measured here, and why.
    not_run: Vec<(&'static str, &'static str)>,
    machine: Value,
    quick: bool,
}

/// One figure of every profiler.
#[derive(Debug)]
pub(crate) struct Line {
    /// The row it belongs to.
    pub(crate) row: &'static str,
    /// What it is.
    pub(crate) what: String,
    /// Its unit; empty for a plain ratio.
    pub(crate) unit: &'static str,
    /// Digits behind the point.
    pub(crate) digits: usize,
    /// The values, as far as there are any.
    pub(crate) values: Vec<(Who, f64)>,
}

impl Report {
    /// An empty one.
    pub(crate) fn new(lab: &Lab) -> Result<Self> {
        Ok(Self { lines: Vec::new(), not_run: Vec::new(), machine: machine(lab)?, quick: lab.quick })
    }

    /// Adds a figure, and shows it: the table comes at the end, which may be an hour away, or never.
    pub(crate) fn add(&mut self, line: Line) {
        // Nobody is left to be told when standard error is gone.
        let _written = writeln!(io::stderr(), "{line}");
        self.lines.push(line);
    }

    /// Says that a row could not be measured here, now and beneath the table.
    pub(crate) fn not_run(&mut self, row: &'static str, why: &'static str) {
        let _written = writeln!(io::stderr(), "{row}: NOT RUN: {why}");
        self.not_run.push((row, why));
    }

    /// Writes the JSON below `target`, and says where.
    pub(crate) fn write(&self, target: &Path) -> Result<PathBuf> {
        let directory = target.join("measure");
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(if self.quick { "quick.json" } else { "measure.json" });
        std::fs::write(&path, format!("{:#}\n", self.to_json()))?;
        Ok(path)
    }

    fn to_json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            let values: Map<_, _> = line.values.iter().map(|(who, value)| (who.name().into(), json!(value))).collect();
            json!({ "row": line.row, "what": line.what, "unit": line.unit, "values": values })
        });
        let not_run: Map<_, _> = self.not_run.iter().map(|(row, why)| ((*row).into(), json!(why))).collect();
        json!({ "machine": self.machine, "quick": self.quick, "lines": lines.collect::<Vec<_>>(), "not_run": not_run })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in self.machine.as_object().into_iter().flatten() {
            writeln!(f, "{key}: {}", value.as_str().unwrap_or_default())?;
        }
        if self.quick {
            writeln!(f, "quick: too short for exact figures")?;
        }
        let mut columns: &[Who] = &[];
        for line in &self.lines {
            if line.columns() != columns {
                columns = line.columns();
                head(f, columns)?;
            }
            writeln!(f, "{line}")?;
        }
        self.not_run.iter().try_for_each(|(row, why)| writeln!(f, "{row}: NOT RUN: {why}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<60}{:>6}", format!("{}: {}", self.row, self.what), self.unit)?;
        for who in self.columns() {
            let width = width(who.name());
            match self.value(*who) {
                Some(value) => write!(f, "{value:>width$.*}", self.digits)?,
                None => write!(f, "{:>width$}", "–")?,
            }
        }
        for peer in peers(self.columns()) {
            let width = width(&ratio(peer));
            match (self.value(peer), self.value(Who::Ours)) {
                (Some(theirs), Some(ours)) if ours > 0.0 => write!(f, "{:>width$.2}", theirs / ours)?,
                _ => write!(f, "{:>width$}", "–")?,
            }
        }
        Ok(())
    }
}

/// The head of a table of these columns.
fn head(f: &mut fmt::Formatter<'_>, columns: &[Who]) -> fmt::Result {
    write!(f, "\n{:<60}{:>6}", "", "unit")?;
    let titles = columns.iter().map(|who| who.name().to_owned()).chain(peers(columns).map(ratio));
    for title in titles {
        write!(f, "{title:>0$}", width(&title))?;
    }
    writeln!(f)
}

/// Those that ours is compared with.
fn peers(columns: &[Who]) -> impl Iterator<Item = Who> + '_ {
    columns.iter().copied().filter(|who| !matches!(who, Who::Nobody | Who::BareHooks | Who::Ours))
}

/// The title of a column of ratios.
fn ratio(peer: Who) -> String {
    format!("{} ÷", peer.name())
}

/// The width of the column of this title.
fn width(title: &str) -> usize {
    title.chars().count().max(11) + 1
}

impl Line {
    /// The columns of the table that it stands in.
    fn columns(&self) -> &'static [Who] {
        match self.row {
            row if row == heap::ROW.name => &Who::OF_THE_HEAP,
            row if row.starts_with(sidecar::PREFIX) => &Who::FROM_OUTSIDE,
            _ => &Who::ALL,
        }
    }

    fn value(&self, who: Who) -> Option<f64> {
        self.values.iter().find(|(of, _)| *of == who).map(|(_, value)| *value)
    }
}

/// What the figures hold for.
fn machine(lab: &Lab) -> Result<Value> {
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let processors = std::thread::available_parallelism()?;
    let versions = if lab.has_subjects() { versions(lab)? } else { Vec::new() };
    Ok(json!({
        "processor": format!("{processors} × {}", model.unwrap_or("unknown")),
        "kernel": format!("Linux {} {}", kernel.trim(), std::env::consts::ARCH),
        "versions": versions.join(", "),
    }))
}

/// Those of all profilers.
fn versions(lab: &Lab) -> Result<Vec<String>> {
    let versions = Who::PROFILERS.map(|who| packages::version(who, lab.target()));
    let of_the_heap = [Who::Jemalloc, Who::JemallocPprof].map(packages::locked_version);
    versions.into_iter().chain(of_the_heap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a line has a column for each profiler, a dash where there is no value, and the peers' ratios to ours.
    #[test]
    fn a_line_shows_values_and_ratios() {
        let values = vec![(Who::Ours, 2.0), (Who::Pyroscope, 9.0)];
        let line = Line { row: "cost", what: "one sample".into(), unit: "µs", digits: 1, values };
        let text = line.to_string();
        let columns: Vec<_> = text.split_whitespace().collect();
        assert_eq!(columns, ["cost:", "one", "sample", "µs", "–", "2.0", "–", "9.0", "–", "4.50"]);
    }

    /// Check that figures of the heap have columns of their own, under a head that names them.
    #[test]
    fn the_heap_has_a_table_of_its_own() {
        let line = |row, who| Line { row, what: "w".into(), unit: "", digits: 1, values: vec![(who, 2.0)] };
        let lines = vec![line("cost", Who::Pprof), line("heap", Who::Jemalloc), line("heap", Who::Ours)];
        let text = Report { lines, not_run: Vec::new(), machine: json!({}), quick: false }.to_string();
        let heads: Vec<_> = text.lines().filter(|line| line.contains("unit")).collect();
        assert_eq!(heads.len(), 2, "{text}");
        assert!(heads[0].contains("pyroscope") && !heads[0].contains("jemalloc"), "{text}");
        let columns: Vec<_> = heads[1].split_whitespace().collect();
        assert_eq!(columns[..6], ["unit", "none", "bare_hooks", "profiler", "jemalloc", "jemalloc_pprof"]);
        let places = |line: &str| line.chars().count();
        assert_eq!(text.lines().last().map(places), Some(places(heads[1])), "{text}");
    }

    /// Check that the JSON has the values by profiler, and nothing where there is none.
    #[test]
    fn the_json_has_values_by_profiler() {
        let line = Line { row: "rest", what: "w".into(), unit: "%", digits: 1, values: vec![(Who::Nobody, 0.5)] };
        let not_run = vec![("sidecar-cost", "no eBPF")];
        let report = Report { lines: vec![line], not_run, machine: json!({ "kernel": "k" }), quick: true };
        let line = &report.to_json()["lines"][0];
        assert_eq!(line, &json!({ "row": "rest", "what": "w", "unit": "%", "values": { "none": 0.5 } }));
        assert_eq!(report.to_json()["not_run"], json!({ "sidecar-cost": "no eBPF" }));
        assert!(report.to_string().ends_with("\nsidecar-cost: NOT RUN: no eBPF\n"), "{report}");
    }
}
