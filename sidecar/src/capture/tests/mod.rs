//! Memory that was forged: pointers into nowhere, cycles, lengths that cannot be. Whatever stands there, an answer within bounds.

mod anything;
mod contention;
mod figures;
mod goroutines;
mod heap;
mod many;
mod relabelled;
mod restless;
mod sets;
mod stack;
mod work;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::Memory;
use super::variables::{Code, Function, Variables};
use crate::elf::Machine;
use crate::go::layouts::{self, G, Layout, bucket};
use crate::target::{Fault, Piece};

/// A process's memory as ranges of bytes.
#[derive(Debug, Default)]
struct Forged(BTreeMap<u64, Vec<u8>>);

impl Forged {
    fn with(mut self, address: u64, words: &[u64]) -> Self {
        self.0.insert(address, words.iter().flat_map(|word| word.to_le_bytes()).collect());
        self
    }

    /// A bucket of the heap with four cycles of `active` and nothing to come.
    fn heap_bucket(self, at: u64, next: u64, stack: &[u64], active: [u64; 4]) -> Self {
        let header = [0, next, bucket::MEMORY, 0, 512, stack.len() as u64];
        self.with(at, &[&header[..], stack, &active, &[0; 12]].concat())
    }

    fn byte(&self, address: u64) -> Option<u8> {
        let (start, bytes) = self.0.range(..=address).next_back()?;
        bytes.get(usize::try_from(address - start).ok()?).copied()
    }
}

impl Memory for Forged {
    /// Pages are whole or not there, as a kernel has them: what is between ranges of a page is zero.
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces {
            piece.read = 0;
            for (at, byte) in (piece.address..).zip(piece.buffer.iter_mut()) {
                let page = at & !0xfff;
                if self
                    .0
                    .range(..page.saturating_add(0x1000))
                    .next_back()
                    .is_none_or(|(start, bytes)| start + bytes.len() as u64 <= page)
                {
                    break;
                }
                *byte = self.byte(at).unwrap_or(0);
                piece.read += 1;
            }
        }
        Ok(())
    }
}

/// A program whose functions are 0x100 bytes long from 0x1000 to 0x2000; the last is the outermost one.
#[derive(Debug, Clone)]
struct Program {
    machine: Machine,
    /// Bytes of the frame of a function, by where it begins.
    frame: fn(u64) -> u64,
    /// The function that a signal's handler enters; 0 is none.
    injected: u64,
    /// What it costs to look up a function; what it did so far.
    cost: u64,
    looked_up: Cell<u64>,
}

/// One of x86_64 with frames of 16 bytes, which costs nothing.
fn program() -> Program {
    Program { machine: Machine::X86_64, frame: |_| 16, injected: 0, cost: 0, looked_up: Cell::new(0) }
}

impl Code for Program {
    fn machine(&self) -> Machine {
        self.machine
    }

    fn extent(&self, _: &str) -> Option<Range<u64>> {
        None
    }

    fn symbol(&self, _: &str) -> Option<u64> {
        None
    }

    fn data(&self) -> Range<u64> {
        0..0
    }

    fn function(&self, pc: u64) -> Option<Function> {
        self.looked_up.set(self.looked_up.get() + self.cost);
        let entry = pc & !0xff;
        let function =
            Function { entry, is_top: entry == 0x1f00, writes_sp: false, is_injected: entry == self.injected };
        (0x1000..0x2000).contains(&pc).then_some(function)
    }

    fn depth(&self, pc: u64) -> Option<u64> {
        (0x1000..0x2000).contains(&pc).then(|| (self.frame)(pc & !0xff))
    }

    fn looked_up(&self) -> u64 {
        self.looked_up.get()
    }
}

const VARIABLES: Variables = Variables {
    buckets: Some(0x100),
    memory_rate: Some(0x200),
    block_rate: Some(0x210),
    ticks: None,
    goroutines: Some(0x300),
    pacer: Some(0x500),
    collections: Some(0x1_0000),
    processors: Some(0x300),
    publishing: None,
};

fn layout() -> Layout {
    layouts::of(26).unwrap()
}

/// A goroutine as it stands in memory.
fn goroutine(id: u64, state: u32, (lo, hi): (u64, u64), (pc, sp): (u64, u64)) -> Vec<u64> {
    let g = layout().g;
    let mut words = vec![0; g.length() / 8];
    let mut set = |offset: usize, word: u64| words[offset / 8] = word;
    set(G::STACK_LO, lo);
    set(G::STACK_HI, hi);
    set(g.sched, sp);
    set(g.sched + 8, pc);
    set(g.status, state.into());
    set(g.id, id);
    // "chan receive" of 1.26.
    set(g.wait_reason, 19);
    set(g.start_pc, 0x1f00);
    words
}
