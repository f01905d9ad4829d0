//! Goroutines that run on, and a list that grows, while they are read.

use std::cell::Cell;

use super::{Forged, VARIABLES, goroutine, layout, program};
use crate::capture::Memory;
use crate::capture::goroutines::goroutines;
use crate::go::layouts::status;
use crate::target::{Fault, Piece};

/// A goroutine that stands elsewhere each time that it is looked at.
struct Restless(Forged, Cell<u64>);

impl Memory for Restless {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.0.read_many(pieces)?;
        for piece in pieces.iter_mut().filter(|piece| piece.address == 0x10000) {
            self.1.set(self.1.get() + 8);
            if let Some(sp) = piece.buffer.get_mut(layout().g.sched..).and_then(|rest| rest.first_chunk_mut()) {
                *sp = (0x80040 + self.1.get()).to_le_bytes();
            }
        }
        Ok(())
    }
}

#[test]
fn a_goroutine_that_moved_meanwhile_has_no_stack() {
    let memory = Forged::default()
        .with(0x300, &[0x5000, 1, 1])
        .with(0x5000, &[0x10000])
        .with(0x10000, &goroutine(7, status::WAITING, (0x80000, 0x80200), (0x1f10, 0x80040)))
        .with(0x80000, &[0x1f20; 64]);
    let all = goroutines(&Restless(memory, Cell::new(0)), &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((all.changed, all.list.len(), all.list[0].id, all.list[0].stack.len()), (1, 1, 7, 0));
}

/// Memory of which something is otherwise at the first read of the stack, or of the goroutine once its stack was read.
struct Flicker {
    memory: Forged,
    stack_reads: Cell<u32>,
    /// What the stack had at its first read, a word each from 0x80000 on.
    torn: Option<Vec<u64>>,
    /// The offset of a byte of the goroutine that is one higher as soon as its stack was read.
    higher: Option<usize>,
}

impl Memory for Flicker {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.memory.read_many(pieces)?;
        for piece in pieces {
            if (0x80000..0x90000).contains(&piece.address) {
                let inside = (piece.address - 0x80000) as usize;
                let torn = self.torn.as_ref().filter(|_| self.stack_reads.get() == 0);
                let bytes: Vec<u8> =
                    torn.iter().flat_map(|words| words.iter().flat_map(|word| word.to_le_bytes())).collect();
                piece.buffer.iter_mut().zip(bytes.iter().skip(inside)).for_each(|(byte, torn)| *byte = *torn);
                self.stack_reads.set(self.stack_reads.get() + 1);
            } else if let Some(byte) = self.higher.and_then(|at| piece.buffer.get_mut(at)) {
                *byte += u8::from(piece.address == 0x10000 && self.stack_reads.get() > 0);
            }
        }
        Ok(())
    }
}

/// A goroutine that waits, called by 0x1110 and 0x1f20.
fn waiting() -> Forged {
    Forged::default()
        .with(0x300, &[0x5000, 1, 1])
        .with(0x5000, &[0x10000])
        .with(0x10000, &goroutine(7, status::WAITING, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x80000, &[&[0; 10][..], &[0x1110, 0, 0, 0x1f20], &[0; 18]].concat())
}

/// Check that what a goroutine had on its stack while it ran is not shown, though it stands where it stood, both before and after.
#[test]
fn a_goroutine_that_parks_again_at_the_same_place_is_not_shown_as_it_ran() {
    let torn = [&[0; 10][..], &[0x1510, 0, 0, 0x1f90], &[0; 18]].concat();
    let memory = Flicker { memory: waiting(), stack_reads: Cell::new(0), torn: Some(torn), higher: None };
    let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    let addresses: Vec<u64> = all.list[0].stack.iter().map(|pc| pc.address).collect();
    assert_eq!((addresses, all.changed), (vec![0x1010, 0x1110, 0x1f20], 0));
    // Four copies: two that differ, two that do not.
    assert_eq!(memory.stack_reads.get(), 4);
}

/// Check that one that ran meanwhile, as the runtime counts it, or of which the collector saw that it waits anew, is tried again.
#[test]
fn a_goroutine_that_ran_meanwhile_is_tried_again() {
    for higher in [layout().g.stops, layout().g.wait_since] {
        let memory = Flicker { memory: waiting(), stack_reads: Cell::new(0), torn: None, higher: Some(higher) };
        let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
        assert_eq!((all.list[0].stack.len(), all.changed, memory.stack_reads.get()), (3, 0, 4), "{higher}");
    }
}

/// A list of goroutines that is at 0x5000 when it is looked up, and at 0x6000 when it is read; what it left behind has become something else.
struct Outgrown(Forged, Cell<u32>);

impl Memory for Outgrown {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.0.read_many(pieces)?;
        for piece in pieces.iter_mut().filter(|piece| piece.address == 0x300) {
            self.1.set(self.1.get() + 1);
            let at: u64 = if self.1.get() > 2 { 0x6000 } else { 0x5000 };
            piece.buffer[..8].copy_from_slice(&at.to_le_bytes());
        }
        Ok(())
    }
}

#[test]
fn a_list_that_grew_out_of_its_place_is_read_where_it_is_now() {
    let memory = Forged::default()
        .with(0x300, &[0, 2, 2])
        .with(0x5000, &[0x7777, 0x20000])
        .with(0x6000, &[0x10000, 0x20000])
        .with(0x10000, &goroutine(7, status::RUNNING, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x20000, &goroutine(8, status::RUNNING, (0x80000, 0x80100), (0x1010, 0x80040)));
    let all = goroutines(&Outgrown(memory, Cell::new(0)), &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    let ids: Vec<_> = all.list.iter().map(|goroutine| goroutine.id).collect();
    assert_eq!((ids, all.broken), (vec![7, 8], 0));
}

/// Check that bounds of a stack that are read while they are written are no reason to give a goroutine up.
#[test]
fn bounds_that_are_being_written_are_read_again() {
    let torn = layout().g.length();
    let memory = Forged::default().with(0x300, &[0x5000, 1, 1]).with(0x5000, &[0x10000]);
    let memory = memory.with(0x10000, &goroutine(7, status::RUNNING, (0x80000, 0x80100), (0x1010, 0x80040)));
    let all = goroutines(&Torn(memory, Cell::new(0), torn), &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((all.list.len(), all.broken, all.changed), (1, 0, 0));
}

/// A goroutine whose stack has a bound of the next one when it is read first.
struct Torn(Forged, Cell<u32>, usize);

impl Memory for Torn {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.0.read_many(pieces)?;
        for piece in pieces.iter_mut().filter(|piece| piece.buffer.len() == self.2) {
            if self.1.replace(1) == 0 {
                piece.buffer[..8].copy_from_slice(&0x90000_u64.to_le_bytes());
            }
        }
        Ok(())
    }
}
