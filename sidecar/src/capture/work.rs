//! How much one capture may do: bytes that it reads, frames that it looks at, tables that it goes through, as one sum.
//!
//! Numbers of goroutines and buckets bound what comes out, not what it costs: forged frames of some kilobytes each, a thousand on one stack, make a thousand
//! goroutines cost what ten million do. So memory and program are asked by way of [`Metered`], which counts, and answers nothing once all is spent; whoever
//! asks then tells it from what is not there by [`Work::is_spent`]. Counted and not timed: the same memory gives the same capture on any machine.

use std::cell::Cell;
use std::ops::Range;

use crate::elf::Machine;
use crate::target::{Fault, Piece};

use super::awaited::Awaited;
use super::memory::Memory;
use super::variables::{Code, Function};

/// What each capture may do, however little there is: the work of reading so many bytes, some tenths of a second.
const LEAST: u64 = 1 << 30;
/// What it may do besides, for the stack of each goroutine: several times what most have, who park a dozen frames deep.
const STACK: u64 = 64 << 10;
/// The same, for the labels of each goroutine: ten of them, read twice.
const LABELS: u64 = 16 << 10;
/// The same, for looking at each goroutine: twenty times, as often as those are at most that do not hold still.
const LOOKS: u64 = 16 << 10;
/// The same, for each bucket.
const BUCKET: u64 = 16 << 10;
/// What a call of the kernel costs, and each piece of memory in it, besides its bytes.
const CALL: u64 = 1 << 10;
const PIECE: u64 = 256;
/// What a frame costs whose function is known.
const FRAME: u64 = 64;

/// What a capture may still do, as the work of reading so many bytes.
#[derive(Debug)]
pub(crate) struct Work {
    left: Cell<u64>,
    awaited: Awaited,
}

impl Work {
    /// For the stacks of so many goroutines.
    pub(super) fn for_stacks(count: u64) -> Self {
        Self::new(LEAST.saturating_add(count.saturating_mul(STACK)))
    }

    /// For their labels, which so cost no stacks.
    pub(super) fn for_labels(count: u64) -> Self {
        Self::new((LEAST / 4).saturating_add(count.saturating_mul(LABELS)))
    }

    /// For finding so many that live: the list, dead ones in it included.
    pub(super) fn for_list(count: u64) -> Self {
        Self::new(LEAST.saturating_add(count.saturating_mul(LOOKS)))
    }

    /// For so many buckets.
    pub(super) fn for_buckets(count: usize) -> Self {
        Self::new(LEAST.saturating_add((count as u64).saturating_mul(BUCKET)))
    }

    /// For the names of what one process keeps: of a hundred thousand addresses, functions inlined there included.
    pub(crate) fn for_names() -> Self {
        Self::new(6 * LEAST)
    }

    /// As much as this.
    pub(super) fn new(left: u64) -> Self {
        Self { left: Cell::new(left), awaited: Awaited::default() }
    }

    /// The same, and none once nobody waits for it.
    pub(crate) fn awaited(self, awaited: &Awaited) -> Self {
        Self { awaited: awaited.clone(), ..self }
    }

    /// Whether all is spent: what was not answered may be there.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0 || self.awaited.is_over()
    }

    /// What `asked` gives, which looks up in `code`; none once all is spent.
    pub(crate) fn done<C: Code, T>(&self, code: &C, asked: impl FnOnce(&C) -> T) -> Option<T> {
        if self.is_spent() {
            return None;
        }
        let before = code.looked_up();
        let done = asked(code);
        self.take(code.looked_up() - before);
        Some(done)
    }

    /// Takes `work` off what is left; whether there was as much.
    fn take(&self, work: u64) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(work));
        left > work
    }
}

/// A memory, or a program, that is asked for one capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metered<'m, T: ?Sized> {
    of: &'m T,
    work: &'m Work,
}

impl<'m, T: ?Sized> Metered<'m, T> {
    pub(super) fn new(of: &'m T, work: &'m Work) -> Self {
        Self { of, work }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.work.is_spent()
    }

    /// Counts `work` that is done with what was answered; whether there was as much left.
    pub(super) fn spend(&self, work: u64) -> bool {
        self.work.take(work)
    }
}

impl<M: Memory + ?Sized> Memory for Metered<'_, M> {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        let cost = pieces.iter().fold(CALL, |sum, piece| sum + PIECE + piece.buffer.len() as u64);
        if self.work.take(cost) {
            return self.of.read_many(pieces);
        }
        pieces.iter_mut().for_each(|piece| piece.read = 0);
        Ok(())
    }
}

impl<C: Code + ?Sized> Code for Metered<'_, C> {
    fn machine(&self) -> Machine {
        self.of.machine()
    }

    fn extent(&self, name: &str) -> Option<Range<u64>> {
        self.of.extent(name)
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        self.of.symbol(name)
    }

    fn data(&self) -> Range<u64> {
        self.of.data()
    }

    fn function(&self, pc: u64) -> Option<Function> {
        if !self.work.take(FRAME) {
            return None;
        }
        let before = self.of.looked_up();
        let found = self.of.function(pc);
        self.work.take(self.of.looked_up() - before);
        found
    }

    fn depth(&self, pc: u64) -> Option<u64> {
        self.of.depth(pc)
    }
}
