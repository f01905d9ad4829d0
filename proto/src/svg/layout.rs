//! Where each function stands: a row for each level, within its caller, those called by one in the order of their names.
//!
//! In: a graph. Out: boxes, each behind that of its caller.

use std::cmp::Reverse;

use super::graph::Graph;

/// Pixels of the root.
pub(super) const WIDTH: f64 = 1200.0;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.3;
/// Of more boxes the widest are drawn: a browser has to hold them.
const MOST_BOXES: usize = 50_000;

/// A function in the drawing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Placed<'a> {
    pub(super) name: &'a str,
    pub(super) weight: u64,
    pub(super) row: usize,
    pub(super) x: f64,
    pub(super) width: f64,
    node: usize,
}

/// The boxes of `graph`, the first one for all of it.
pub(super) fn place(graph: &Graph) -> Vec<Placed<'_>> {
    place_most(graph, MOST_BOXES)
}

fn place_most(graph: &Graph, most: usize) -> Vec<Placed<'_>> {
    let pixel = WIDTH / graph.weight().max(1) as f64;
    let root = Placed { name: "all", weight: graph.weight(), row: 0, x: 0.0, width: WIDTH, node: 0 };
    let (mut open, mut boxes) = (vec![root], Vec::new());
    while let Some(caller) = open.pop() {
        boxes.push(caller);
        let mut x = caller.x;
        for (name, &node) in &graph.nodes[caller.node].callees {
            let weight = graph.nodes[node].weight;
            let width = pixel * weight as f64;
            if width >= NARROWEST {
                open.push(Placed { name, weight, row: caller.row + 1, x, width, node });
            }
            x += width;
        }
    }
    if boxes.len() > most {
        // No box is wider than its caller, and the order of those of one width stays: each caller stays before its callees.
        boxes.sort_by_key(|placed| Reverse(placed.weight));
        boxes.truncate(most);
    }
    boxes
}

#[cfg(test)]
mod tests {
    use super::super::graph::MOST_ROWS;
    use super::*;

    fn graph(lines: &[(&str, u64)]) -> Graph {
        let mut graph = Graph::new();
        lines.iter().for_each(|(path, weight)| graph.add(path.split(';'), *weight));
        graph
    }

    /// Check where boxes stand: within their caller, as wide as they weigh, and not at all where they are too narrow to be seen.
    #[test]
    fn boxes_stand_within_their_callers() {
        let graph = graph(&[("main;b", 300), ("main;a;c", 600), ("main", 300), ("d", 4800), ("main;tiny", 1)]);
        let mut placed: Vec<_> = place(&graph)
            .iter()
            .map(|b| (b.name.to_owned(), b.row, (b.x * 5.0).round(), (b.width * 5.0).round()))
            .collect();
        placed.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        let expected = [
            ("all", 0, 0.0, 6000.0),
            ("d", 1, 0.0, 4799.0),
            ("main", 1, 4799.0, 1201.0),
            ("a", 2, 4799.0, 600.0),
            ("b", 2, 5399.0, 300.0),
            ("c", 3, 4799.0, 600.0),
        ];
        assert_eq!(placed, expected.map(|(name, row, x, width)| (name.to_owned(), row, x, width)));
    }

    /// Check that of too many boxes the widest stay, each with its callers; and that a path of any length is drawn up to the last row.
    #[test]
    fn what_is_drawn_is_bounded() {
        let graph = graph(&[("a;b;c", 10), ("a;b;d", 30), ("e;f", 20)]);
        let names: Vec<_> = place_most(&graph, 5).iter().map(|placed| placed.name).collect();
        assert_eq!(names, ["all", "a", "b", "d", "e"]);
        let mut deep = Graph::new();
        deep.add((0..100_000).map(|level| level.to_string()), 7);
        let boxes = place(&deep);
        assert_eq!(
            (boxes.len(), boxes.last().map(|last| (last.row, last.weight))),
            (MOST_ROWS + 1, Some((MOST_ROWS, 7)))
        );
    }
}
