//! Call stacks.

use super::table::LocationId;

/// Locations from the leaf (the running function) to the root. Zero value: the empty stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Stack {
    /// Leaf first.
    pub locations: Box<[LocationId]>,
}
