//! The page's call tree: columns in preorder, children by falling total.
//!
//! In: a grown tree of any depth and size. Out: depth, frame and own weight of each node, node 0 being the root; at most
//! [`MOST_NODES`], the lightest being merged into one "(trimmed)" node below their parent. Loops only, no recursion.

use std::cmp::Reverse;

use super::frames::{Frames, TRIMMED};
use super::nodes::Nodes;

/// The most nodes that a tree is sent with.
pub(super) const MOST_NODES: usize = 200_000;

/// A call tree in preorder.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) frames: Frames,
    pub(super) depth: Vec<u32>,
    pub(super) frame: Vec<u32>,
    /// Weight of the samples that end at the node, in periods.
    pub(super) own: Vec<u64>,
    /// Weight of all samples.
    pub(super) samples: u64,
    /// Nodes that were merged away.
    pub(super) trimmed: u64,
}

impl Tree {
    /// Lays out the nodes of a grown tree.
    pub(super) fn new(nodes: Nodes, frames: Frames) -> Self {
        Self::with_most(nodes, frames, MOST_NODES)
    }

    fn with_most(mut nodes: Nodes, frames: Frames, most: usize) -> Self {
        let totals = totals(&nodes);
        let refused = nodes.refused;
        let (totals, merged) = if totals.len() > most { trim(&mut nodes, &totals, most) } else { (totals, 0) };
        let order = preorder(&nodes, &totals, &frames);
        let samples = totals.first().copied().unwrap_or(0);
        let column = |values: &[u32]| order.iter().map(|(node, _)| values[*node as usize]).collect();
        Self {
            depth: order.iter().map(|(_, depth)| *depth).collect(),
            frame: column(&nodes.frame),
            own: order.iter().map(|(node, _)| nodes.own[*node as usize]).collect(),
            frames,
            samples,
            trimmed: merged + refused,
        }
    }

    /// The leaf-to-root paths that have own weight, as (frames from the root, weight), to the visitor.
    pub(super) fn paths(&self, mut visit: impl FnMut(&[u32], u64)) {
        let mut path = Vec::new();
        for (node, frame) in self.frame.iter().enumerate().skip(1) {
            path.truncate(self.depth[node] as usize - 1);
            path.push(*frame);
            if self.own[node] > 0 {
                visit(&path, self.own[node]);
            }
        }
    }
}

/// The weight at and below each node; a parent stands before its children.
fn totals(nodes: &Nodes) -> Vec<u64> {
    let mut totals = nodes.own.clone();
    for node in (1..totals.len()).rev() {
        let parent = nodes.parent[node] as usize;
        totals[parent] = totals[parent].saturating_add(totals[node]);
    }
    totals
}

/// Keeps the heaviest nodes and puts, below each that lost children, one node with their weight; gives the new totals and
/// how many nodes went.
///
/// A child is never heavier than its parent, so what is heavier than a bound is a tree again. Each kept node loses its
/// children to one new node at most: half of `most` may be kept.
fn trim(nodes: &mut Nodes, totals: &[u64], most: usize) -> (Vec<u64>, u64) {
    let mut falling = totals.to_vec();
    falling.sort_unstable_by_key(|total| Reverse(*total));
    let bound = falling.get(most / 2).copied().unwrap_or(0);
    let mut kept = Kept::default();
    let mut number = vec![None; totals.len()];
    for node in 0..totals.len() {
        let parent = number[nodes.parent[node] as usize];
        if node == 0 || (totals[node] > bound && nodes.frame[node] != TRIMMED) {
            number[node] = Some(kept.push(parent.unwrap_or(0), nodes.frame[node], nodes.own[node], totals[node]));
        } else if let Some(parent) = parent {
            kept.merge(parent, totals[node]);
        }
    }
    let merged = totals.len() - number.iter().flatten().count();
    let totals = kept.close();
    (nodes.parent, nodes.frame, nodes.own) = (kept.parent, kept.frame, kept.own);
    (totals, merged as u64)
}

/// The nodes that stay.
#[derive(Default)]
struct Kept {
    parent: Vec<u32>,
    frame: Vec<u32>,
    own: Vec<u64>,
    totals: Vec<u64>,
    /// By node: weight of the children that went.
    merged: Vec<u64>,
}

impl Kept {
    fn push(&mut self, parent: u32, frame: u32, own: u64, total: u64) -> u32 {
        let node = u32::try_from(self.parent.len()).unwrap_or(u32::MAX);
        self.parent.push(parent);
        self.frame.push(frame);
        self.own.push(own);
        self.totals.push(total);
        self.merged.push(0);
        node
    }

    /// A child of `parent` goes; what is below it goes with it, for its total holds that.
    fn merge(&mut self, parent: u32, total: u64) {
        let merged = &mut self.merged[parent as usize];
        *merged = merged.saturating_add(total);
    }

    /// Adds the nodes that stand for what went; gives the totals.
    fn close(&mut self) -> Vec<u64> {
        for parent in 0..self.parent.len() {
            let weight = std::mem::take(&mut self.merged[parent]);
            if weight > 0 {
                self.push(u32::try_from(parent).unwrap_or(u32::MAX), TRIMMED, weight, weight);
            }
        }
        std::mem::take(&mut self.totals)
    }
}

/// The nodes with their depths, each parent before its children, those by falling total, then by name.
fn preorder(nodes: &Nodes, totals: &[u64], frames: &Frames) -> Vec<(u32, u32)> {
    // Sorted the other way round: the last child goes onto the stack first and comes off it last.
    let mut siblings: Vec<u32> = (1..u32::try_from(totals.len()).unwrap_or(u32::MAX)).collect();
    siblings.sort_unstable_by(|&a, &b| {
        let key = |node: u32| (nodes.parent[node as usize], totals[node as usize]);
        let name = |node: u32| (Reverse(frames.name(nodes.frame[node as usize])), Reverse(node));
        key(a).cmp(&key(b)).then_with(|| name(a).cmp(&name(b)))
    });
    let mut first = vec![0; totals.len() + 1];
    for node in &siblings {
        first[nodes.parent[*node as usize] as usize + 1] += 1;
    }
    for parent in 1..first.len() {
        first[parent] += first[parent - 1];
    }
    let mut order = Vec::with_capacity(totals.len());
    let mut waiting = vec![(0, 0)];
    while let Some((node, depth)) = waiting.pop() {
        order.push((node, depth));
        let children = first[node as usize]..first[node as usize + 1];
        waiting.extend(siblings[children].iter().map(|child| (*child, depth + 1)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::testing::{Stacks, nodes_of};

    fn names(tree: &Tree) -> Vec<(u32, &str, u64)> {
        let rows = tree.depth.iter().zip(&tree.frame).zip(&tree.own);
        rows.map(|((depth, frame), own)| (*depth, tree.frames.name(*frame), *own)).collect()
    }

    /// Check that children stand behind their parent by falling total, equal ones by name.
    #[test]
    fn children_fall_by_total_then_name() {
        let set = Stacks::new().sample("m;b;x", 2).sample("m;c", 5).sample("m;a", 2).sample("m", 1).set();
        let (nodes, frames) = nodes_of(&[set]);
        let tree = Tree::new(nodes, frames);
        let expected = [(0, "all", 0), (1, "m", 1), (2, "c", 5), (2, "a", 2), (2, "b", 0), (3, "x", 2)];
        assert_eq!(names(&tree), expected);
        assert_eq!((tree.samples, tree.trimmed), (10, 0));
    }

    /// Check that trimming keeps the heaviest, every weight, and says how many nodes went.
    #[test]
    fn trimming_keeps_the_heaviest_and_every_weight() {
        let set = Stacks::new().sample("m;a;x", 9).sample("m;b;y", 3).sample("m;c;z", 2).sample("m;a", 5).set();
        let (nodes, frames) = nodes_of(&[set]);
        let tree = Tree::with_most(nodes, frames, 6);
        let expected = [(0, "all", 0), (1, "m", 0), (2, "a", 5), (3, "x", 9), (2, "(trimmed)", 5)];
        assert_eq!(names(&tree)[..3], expected[..3]);
        assert_eq!(tree.own.iter().sum::<u64>(), 19);
        assert!(tree.depth.len() <= 6 && tree.trimmed > 0, "{:?}", names(&tree));
    }

    /// Check that a stack of 5,000 frames is a tree of 5,000 levels.
    #[test]
    fn a_deep_stack_is_a_deep_tree() {
        let path: Vec<String> = (0..5000).map(|n| format!("f{n}")).collect();
        let (nodes, frames) = nodes_of(&[Stacks::new().sample(&path.join(";"), 1).set()]);
        let tree = Tree::new(nodes, frames);
        assert_eq!((tree.depth.len(), tree.depth.last(), tree.own.last()), (5001, Some(&5000), Some(&1)));
    }

    /// Check that a million nodes are laid out, trimmed, with their whole weight.
    #[test]
    fn a_million_nodes_are_trimmed() {
        let mut stacks = Stacks::new();
        for n in 0..1000 {
            for m in 0..100 {
                stacks = stacks.sample(&format!("main;a{n};b{m};c;d;e;f;g;h;i;j"), 1 + n * m % 7);
            }
        }
        let set = stacks.set();
        let (nodes, frames) = nodes_of(&[set]);
        let grown = nodes.parent.len() as u64;
        let weight: u64 = nodes.own.iter().sum();
        let tree = Tree::new(nodes, frames);
        assert_eq!(grown, 2 + 1000 + 100_000 * 9);
        assert_eq!((tree.samples, tree.own.iter().sum::<u64>()), (weight, weight));
        assert!(tree.depth.len() <= MOST_NODES);
        assert!(tree.trimmed + tree.depth.len() as u64 >= grown);
    }
}
