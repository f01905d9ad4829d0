//! A call tree while it grows: one node for each distinct path from the root.
//!
//! In: profile sets, sample by sample. Out: parents, frames and own weights by node; a parent stands before its
//! children. No recursion anywhere, so that a stack of any depth costs memory only, and that is bounded.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use profiler_proto::model::{Id, LocationId, StackId};
use profiler_proto::{ProfileSet, Sample};

use super::frames::{ALL, Frames, LocationFrames, TRIMMED};

/// Nodes beyond this many are not made; what belongs there is counted at one node below the root.
const MOST_NODES: usize = 1 << 20;

/// The growing tree. Node 0 is the root.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) parent: Vec<u32>,
    pub(super) frame: Vec<u32>,
    /// Weight of the samples that end there.
    pub(super) own: Vec<u64>,
    /// Paths for which there was no room.
    pub(super) refused: u64,
    children: HashMap<u64, u32, BuildHasherDefault<Spread>>,
    most: usize,
}

impl Nodes {
    /// A tree of just the root.
    pub(super) fn new() -> Self {
        Self::with_room(MOST_NODES)
    }

    fn with_room(most: usize) -> Self {
        Self { parent: vec![0], frame: vec![ALL], own: vec![0], refused: 0, children: HashMap::default(), most }
    }

    /// Adds the `samples` of `set`, each with its weight.
    pub(super) fn add<'s>(
        &mut self,
        set: &ProfileSet,
        samples: impl Iterator<Item = (&'s Sample, u64)>,
        places: &mut Places,
        frames: &mut Frames,
    ) {
        for (sample, weight) in samples.filter(|(_, weight)| *weight > 0) {
            let node = self.place(sample.stack, set, places, frames) as usize;
            self.own[node] = self.own[node].saturating_add(weight);
        }
    }

    /// The node of a process, below which its stacks stand; the root where there is no room.
    pub(super) fn process(&mut self, name: &str, frames: &mut Frames) -> u32 {
        let frame = frames.process(name);
        self.child(0, frame).unwrap_or(0)
    }

    /// The node at which the stack ends.
    fn place(&mut self, stack: StackId, set: &ProfileSet, places: &mut Places, frames: &mut Frames) -> u32 {
        let index = stack.index() as usize;
        if let Some(Some(node)) = places.of_stack.get(index) {
            return *node;
        }
        let locations = set.dictionary.stacks.get(stack).map_or(&[][..], |stack| &stack.locations);
        let node = self.walk(locations, set, places, frames).unwrap_or_else(|| self.refuse());
        if let Some(place) = places.of_stack.get_mut(index) {
            *place = Some(node);
        }
        node
    }

    /// Walks from the root to the leaf, as far as possible on the way of the stack before; `None` if there is no room.
    fn walk(
        &mut self,
        locations: &[LocationId],
        set: &ProfileSet,
        places: &mut Places,
        frames: &mut Frames,
    ) -> Option<u32> {
        let mut node = places.root;
        for (depth, location) in locations.iter().rev().enumerate() {
            match places.path.get(depth) {
                Some((known, end)) if known == location => node = *end,
                _ => {
                    places.path.truncate(depth);
                    for &frame in places.locations.of(*location, &set.dictionary, frames) {
                        node = self.child(node, frame)?;
                    }
                    places.path.push((*location, node));
                }
            }
        }
        Some(node)
    }

    /// The child of `parent` for `frame`, made if need be; `None` if there is no room.
    fn child(&mut self, parent: u32, frame: u32) -> Option<u32> {
        let key = u64::from(parent) << 32 | u64::from(frame);
        if let Some(child) = self.children.get(&key) {
            return Some(*child);
        }
        if self.parent.len() >= self.most {
            return None;
        }
        let child = u32::try_from(self.parent.len()).ok()?;
        self.push(parent, frame);
        self.children.insert(key, child);
        Some(child)
    }

    /// The node below the root that stands for paths without room; it is made beyond the bound, once.
    fn refuse(&mut self) -> u32 {
        self.refused += 1;
        let key = u64::from(TRIMMED);
        let next = u32::try_from(self.parent.len()).unwrap_or(0);
        let node = *self.children.entry(key).or_insert(next);
        if node == next {
            self.push(0, TRIMMED);
        }
        node
    }

    fn push(&mut self, parent: u32, frame: u32) {
        self.parent.push(parent);
        self.frame.push(frame);
        self.own.push(0);
    }
}

/// Where the stacks and locations of one set stand in the tree; found once for each.
pub(super) struct Places {
    /// Below this node.
    root: u32,
    locations: LocationFrames,
    of_stack: Vec<Option<u32>>,
    /// The locations of the stack before, from the root, each with the node where it ends: most of a stack is as before.
    path: Vec<(LocationId, u32)>,
}

impl Places {
    /// Nothing found yet below the node `root`.
    pub(super) fn new(set: &ProfileSet, root: u32) -> Self {
        let dictionary = &set.dictionary;
        Self {
            root,
            locations: LocationFrames::new(dictionary),
            of_stack: vec![None; dictionary.stacks.len()],
            path: Vec::new(),
        }
    }
}

/// Hashes one integer by multiplying it; the standard hasher costs more than all else here.
///
/// Nobody outside chooses the keys: they are dense numbers that this module gives out.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        // 2^64 ÷ golden ratio; folded, for the map takes its bits from both ends.
        let product = u128::from(self.0 ^ key) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that paths are shared, and that what finds no room is counted below the root.
    #[test]
    fn paths_without_room_are_counted_together() {
        let mut nodes = Nodes::with_room(3);
        let a = nodes.child(0, 7).unwrap();
        let b = nodes.child(a, 8).unwrap();
        assert_eq!((nodes.child(0, 7), nodes.child(a, 8), nodes.child(b, 8)), (Some(a), Some(b), None));
        let other = nodes.refuse();
        assert_eq!((nodes.refuse(), nodes.parent[other as usize], nodes.frame[other as usize]), (other, 0, TRIMMED));
        assert_eq!((nodes.refused, nodes.parent.len()), (2, 4));
    }
}
