//! Who calls whom, and how much weight each has.
//!
//! In: paths from the root with weights. Out: nodes, each behind its caller. Loops only: a path may be of any length.

use std::collections::BTreeMap;

use crate::folded::frames_of;
use crate::model::{Dictionary, Profile};

/// Functions of one path that are told apart: rows above the root.
pub(super) const MOST_ROWS: usize = 1000;

/// Bytes of a name that are shown, and tell one from others: more than any compiler's names for people have. Each function under its callers has its own copy.
const MOST_NAME: usize = 4096;

/// A flame graph that is to be drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// The first one is the root. A caller stands before those that it calls.
    pub(super) nodes: Vec<Node>,
}

/// A function under its callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) weight: u64,
    /// By name, the place of each.
    pub(super) callees: BTreeMap<Box<str>, usize>,
}

impl Graph {
    /// A graph without anything in it.
    #[must_use]
    pub fn new() -> Self {
        Self { nodes: vec![Node::default()] }
    }

    /// Adds `weight` to all of `path`, which begins at the root. What is deeper than can be drawn counts where the drawing ends.
    pub fn add<S: AsRef<str>>(&mut self, path: impl IntoIterator<Item = S>, weight: u64) {
        let mut node = self.weigh(0, weight);
        for name in path.into_iter().take(MOST_ROWS) {
            let name = name.as_ref();
            let callee = self.callee(node, &name[..name.floor_char_boundary(MOST_NAME)]);
            node = self.weigh(callee, weight);
        }
    }

    /// Adds the samples of `profile`, which refers to `dictionary`, whatever their tags. What shrank has no width and is left out.
    pub fn add_profile(&mut self, profile: &Profile, dictionary: &Dictionary) {
        for sample in &profile.samples {
            if let Ok(weight @ 1..) = u64::try_from(sample.value) {
                self.add(frames_of(sample.stack, dictionary), weight);
            }
        }
    }

    /// The weight of everything.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.nodes.first().map_or(0, |root| root.weight)
    }

    fn weigh(&mut self, node: usize, weight: u64) -> usize {
        let all = &mut self.nodes[node].weight;
        *all = all.saturating_add(weight);
        node
    }

    fn callee(&mut self, caller: usize, name: &str) -> usize {
        if let Some(known) = self.nodes[caller].callees.get(name) {
            return *known;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        self.nodes[caller].callees.insert(name.into(), new);
        new
    }
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that of a long name as much is kept as is shown, cut between letters.
    #[test]
    fn long_names_are_cut() {
        let mut graph = Graph::new();
        graph.add(["é".repeat(MOST_NAME), format!("a{}", "é".repeat(MOST_NAME))], 1);
        let lengths: Vec<usize> =
            graph.nodes.iter().flat_map(|node| node.callees.keys()).map(|name| name.len()).collect();
        assert_eq!(lengths, [MOST_NAME, MOST_NAME - 1]);
    }
}
