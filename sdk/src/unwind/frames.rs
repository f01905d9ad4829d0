//! The fixed buffer that a walk fills: the leaf part and the root part of a stack of any depth.
//!
//! In: addresses, leaf first, as the walk finds them. Out: all of them where they fit, else the first [`LEAF`] and the
//! last [`ROOT`] with the number of those between. Used in the signal handler: fixed size, no allocation.

/// Frames kept from the leaf.
pub(crate) const LEAF: usize = 384;
/// Frames kept from the root.
pub(crate) const ROOT: usize = 128;
/// The walk itself ends here, for a stack that deep is most likely a walk in circles.
pub(crate) const WALK: usize = 4096;

/// Where the walk of a stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum StackEnd {
    /// At the root: `main`'s caller or the start of the thread.
    #[default]
    Root = 0,
    /// At a frame of which neither tables nor a frame pointer tell the caller.
    Unknown = 1,
    /// At the bound of the walk.
    TooDeep = 2,
    /// At a frame whose caller is told, and is where nothing can be read.
    Unreadable = 3,
    /// At an address that may be in one library or in another: one took the other's place meanwhile.
    InDoubt = 4,
}

impl StackEnd {
    /// The end that `end as u8` made this byte of.
    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Root,
            1 => Self::Unknown,
            3 => Self::Unreadable,
            4 => Self::InDoubt,
            _ => Self::TooDeep,
        }
    }
}

/// Addresses of one stack.
///
/// Invariant: of the `pushed` addresses, the first `LEAF` stand in `leaf`; of the others, number `n` stands in
/// `root[(n - LEAF) % ROOT]` until it is overwritten.
#[derive(Debug)]
pub(crate) struct Frames {
    leaf: [u64; LEAF],
    root: [u64; ROOT],
    pushed: usize,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { leaf: [0; LEAF], root: [0; ROOT], pushed: 0 }
    }

    /// Forgets the last stack.
    pub(crate) fn clear(&mut self) {
        self.pushed = 0;
    }

    /// Adds the next caller; `false` once the walk must end.
    pub(crate) fn push(&mut self, address: u64) -> bool {
        match self.leaf.get_mut(self.pushed) {
            Some(place) => *place = address,
            None => self.root[(self.pushed - LEAF) % ROOT] = address,
        }
        self.pushed += 1;
        self.pushed < WALK
    }

    /// The leaf part; then the root part as two runs, in order.
    pub(crate) fn parts(&self) -> [&[u64]; 3] {
        let beyond = self.pushed.saturating_sub(LEAF);
        let leaf = &self.leaf[..self.pushed.min(LEAF)];
        if beyond <= ROOT {
            [leaf, &self.root[..beyond], &[]]
        } else {
            let (newest, oldest) = self.root.split_at(beyond % ROOT);
            [leaf, oldest, newest]
        }
    }

    /// How many frames were left out between the two parts.
    pub(crate) fn elided(&self) -> u16 {
        self.pushed.saturating_sub(LEAF + ROOT) as u16
    }

    /// How many frames the leaf part has.
    pub(crate) fn leaf_frames(&self) -> u16 {
        self.pushed.min(LEAF) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(depth: usize) -> (Vec<u64>, u16) {
        let mut frames = Frames::new();
        (0..depth as u64).for_each(|n| assert_eq!(frames.push(n), (n as usize) < WALK - 1));
        (frames.parts().concat(), frames.elided())
    }

    /// Check that every depth keeps the leaf part and the root part in order.
    #[test]
    fn leaf_and_root_are_kept_in_order() {
        for depth in [0, 1, LEAF, LEAF + 1, LEAF + ROOT - 1, LEAF + ROOT] {
            assert_eq!(kept(depth), ((0..depth as u64).collect(), 0));
        }
        for depth in [LEAF + ROOT + 1, LEAF + 2 * ROOT, LEAF + 2 * ROOT + 5, WALK] {
            let leaf = 0..LEAF as u64;
            let root = (depth - ROOT) as u64..depth as u64;
            assert_eq!(kept(depth), (leaf.chain(root).collect(), (depth - LEAF - ROOT) as u16));
        }
    }
}
