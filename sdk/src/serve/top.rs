//! The hottest functions of a tree: what the page's table shows, for those who read text or JSON.
//!
//! In: a tree for each group (a value of a tag, or all). Out: rows by falling own weight. A function that calls itself
//! counts once in its total.

use std::cmp::Reverse;
use std::fmt::Write;

use profiler_proto::model::Id;
use serde_json::{Value, json};

use super::package::{Sort, base_name};
use super::tree::Tree;

/// The functions of the samples that share a value of a tag.
#[derive(Debug)]
pub(super) struct Group {
    /// The value; `None` where the tag is not set, or no tag was asked for.
    pub(super) value: Option<String>,
    /// What weights count.
    pub(super) unit: &'static str,
    pub(super) tree: Tree,
    /// How many stacks stand behind its samples, for standard errors.
    pub(super) stacks: f64,
}

/// One function: a frame of its name, its own weight and that of all it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) frame: u32,
    pub(super) own: u64,
    pub(super) total: u64,
}

/// All functions of a tree, by falling own weight, then total, then name. As on the page, a name is one function.
pub(super) fn rows(tree: &Tree) -> Vec<Row> {
    let name_of = |frame: u32| tree.frames.table.get(frame as usize).map_or(0, |frame| frame.name.index() as usize);
    let mut rows: Vec<Option<Row>> = vec![None; tree.frames.names.len()];
    // The names on the path from the root to the node before; each of them is counted up in `on_path`.
    let (mut path, mut on_path) = (Vec::new(), vec![0u32; rows.len()]);
    for (node, total) in totals(tree).into_iter().enumerate().skip(1) {
        for left in path.drain(tree.depth[node] as usize - 1..) {
            on_path[left] -= 1;
        }
        let name = name_of(tree.frame[node]);
        let row = rows[name].get_or_insert(Row { frame: tree.frame[node], own: 0, total: 0 });
        row.own = row.own.saturating_add(tree.own[node]);
        row.total = row.total.saturating_add(if on_path[name] == 0 { total } else { 0 });
        on_path[name] += 1;
        path.push(name);
    }
    let is_function =
        |row: &Row| tree.frames.table.get(row.frame as usize).is_some_and(|frame| frame.sort != Sort::Process);
    let mut rows: Vec<Row> = rows.into_iter().flatten().filter(is_function).collect();
    rows.sort_unstable_by_key(|row| (Reverse(row.own), Reverse(row.total), tree.frames.name(row.frame)));
    rows
}

/// The weight at and below each node, in preorder.
fn totals(tree: &Tree) -> Vec<u64> {
    let mut totals = tree.own.clone();
    // Weights of finished subtrees that wait for their parent, by the depth that they hang from.
    let mut below: Vec<u64> = Vec::new();
    for node in (0..totals.len()).rev() {
        let depth = tree.depth[node] as usize;
        below.resize(below.len().max(depth + 2), 0);
        totals[node] = totals[node].saturating_add(std::mem::take(&mut below[depth + 1]));
        below[depth] = below[depth].saturating_add(totals[node]);
    }
    totals
}

/// A line without what a terminal would obey, and with no line of its own.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl Group {
    /// The first `most` rows as JSON.
    pub(super) fn json(&self, most: usize) -> Value {
        let functions = rows(&self.tree).into_iter().take(most).map(|row| self.function(row));
        json!({ "value": self.value, "samples": self.tree.samples, "functions": functions.collect::<Vec<_>>() })
    }

    /// The first `most` rows as aligned text, under a line that says what the group is.
    pub(super) fn text(&self, by: Option<&str>, most: usize) -> String {
        let mut text = match (by, &self.value) {
            (Some(by), Some(value)) => format!("{by}={value}"),
            (Some(by), None) => format!("without {by}"),
            (None, _) => "all".to_owned(),
        };
        text = plain(&text);
        let mut line = |line: String| {
            // Text takes every write.
            let written = writeln!(text, "{}", plain(&line));
            debug_assert!(written.is_ok());
        };
        let width = if self.unit == "bytes" { 15 } else { 9 };
        line(format!("  {} {}", self.tree.samples, self.unit));
        line(format!("{:>8} {:>6} {:>8} {:>width$}  function", "self", "±", "total", self.unit));
        for row in rows(&self.tree).into_iter().take(most) {
            let (own, total) = (100.0 * self.share(row.own), 100.0 * self.share(row.total));
            let error = 100.0 * self.error(row.own);
            line(format!("{own:>7.2}% {error:>6.2} {total:>7.2}% {:>width$}  {}", row.own, self.described(row)));
        }
        text
    }

    fn function(&self, row: Row) -> Value {
        let frames = &self.tree.frames;
        let Some(frame) = frames.table.get(row.frame as usize) else { return Value::Null };
        json!({
            "name": frames.name(row.frame),
            "package": frames.packages.text(frame.package),
            "file": frames.files.text(frame.file),
            "line": frame.line,
            "self": row.own,
            "total": row.total,
            "self_share": self.share(row.own),
            "self_error": self.error(row.own),
            "total_share": self.share(row.total),
        })
    }

    /// The name, and where it stands in the sources if that is known.
    fn described(&self, row: Row) -> String {
        let frames = &self.tree.frames;
        let name = frames.name(row.frame);
        match frames.table.get(row.frame as usize) {
            Some(frame) if frame.line > 0 => {
                format!("{name} ({}:{})", base_name(frames.files.text(frame.file)), frame.line)
            }
            _ => name.to_owned(),
        }
    }

    fn share(&self, weight: u64) -> f64 {
        weight as f64 / self.tree.samples.max(1) as f64
    }

    /// Standard error of a share: √(p(1−p)/n), n being the stacks behind it. Stacks taken close together resemble each
    /// other, so it is a lower bound.
    fn error(&self, weight: u64) -> f64 {
        let share = self.share(weight);
        (share * (1.0 - share) / self.stacks.max(1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{Stacks, nodes_of};

    fn group(stacks: Stacks) -> Group {
        let (nodes, frames) = nodes_of(&[stacks.set()]);
        let tree = Tree::new(nodes, frames);
        Group { value: Some("/orders".into()), unit: "samples", stacks: tree.samples as f64, tree }
    }

    fn named(group: &Group) -> Vec<(&str, u64, u64)> {
        rows(&group.tree).iter().map(|row| (group.tree.frames.name(row.frame), row.own, row.total)).collect()
    }

    /// Check that own weights and totals are those of the samples, and that recursion counts once.
    #[test]
    fn recursion_counts_once() {
        let group = group(Stacks::new().sample("m;f;g;f", 3).sample("m;f", 2).sample("m;g;f;g;g", 4).sample("m", 1));
        assert_eq!(named(&group), [("f", 5, 9), ("g", 4, 7), ("m", 1, 10)]);
    }

    /// Check that text and JSON give the same shares, with the error of a share of that many stacks.
    #[test]
    fn text_and_json_agree() {
        let group = group(Stacks::new().sample("m;a", 60).sample("m;b", 40));
        let json = group.json(1);
        assert_eq!((&json["samples"], json["functions"].as_array().unwrap().len()), (&json!(100), 1));
        let first = &json["functions"][0];
        assert_eq!((&first["name"], &first["self"], &first["self_share"]), (&json!("a"), &json!(60), &json!(0.6)));
        assert!((first["self_error"].as_f64().unwrap() - (0.6f64 * 0.4 / 100.0).sqrt()).abs() < 1e-12);
        let expected = "endpoint=/orders  100 samples\n    self      ±    total   samples  function\n  \
                        60.00%   4.90   60.00%        60  a (:7)\n";
        assert_eq!(group.text(Some("endpoint"), 1), expected);
        let expected = "endpoint=/orders  100 bytes\n    self      ±    total           bytes  function\n  \
                        60.00%   4.90   60.00%              60  a (:7)\n";
        assert_eq!(Group { unit: "bytes", ..group }.text(Some("endpoint"), 1), expected);
    }

    /// Check that a terminal that shows the text obeys no name in it, and that none makes lines.
    #[test]
    fn names_do_not_command_a_terminal() {
        let group = group(Stacks::new().sample("m;a\u{1b}[2J\nendpoint=/b\r", 1));
        let text = Group { value: Some("/\u{1b}]0;x\u{7}\n".into()), ..group }.text(Some("endpoint"), 5);
        assert!(text.starts_with("endpoint=/\u{fffd}]0;x\u{fffd}\u{fffd}  1 samples\n"), "{text:?}");
        assert_eq!((text.lines().count(), text.contains(['\u{1b}', '\r'])), (4, false), "{text:?}");
    }

    /// Check that a tree without samples has no rows and divides by nothing.
    #[test]
    fn an_empty_tree_has_no_rows() {
        let group = group(Stacks::new());
        assert_eq!((named(&group), group.json(5)["functions"].clone()), (vec![], json!([])));
        assert!(group.text(None, 5).starts_with("all  0 samples\n"));
    }
}
