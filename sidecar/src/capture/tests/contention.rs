//! Block and mutex records, and the speed of the clock that they are counted by.

use std::cell::Cell;

use super::{Forged, VARIABLES, layout, program};
use crate::capture::Memory;
use crate::capture::contention::{Kind, contention};
use crate::capture::ticks::Speed;
use crate::capture::variables::Variables;
use crate::go::layouts::bucket;
use crate::target::{Fault, Piece};

#[test]
fn contention_counts_events_and_time() {
    // The second list is of mutexes, whose stacks of the runtime's own locks begin with a mark.
    let bucket = |kind, stack: &[u64], count: f64, cycles: u64| {
        [&[0, 0, kind, 0, 0, stack.len() as u64][..], stack, &[count.to_bits(), cycles]].concat()
    };
    let memory = Forged::default()
        .with(0x100, &[0, 0x10000, 0x20000])
        .with(0x200, &[0, 0, 1, 100])
        .with(0x400, &[0, 0, 0, 2_000_000_000])
        .with(0x10000, &bucket(bucket::BLOCK, &[0x1010], 0.25, 4_000_000_000))
        .with(0x20000, &bucket(bucket::MUTEX, &[u64::MAX, 0x1010], 7.5, 1_000));
    let variables = Variables { ticks: Some(0x400), ..VARIABLES };
    let read =
        |kind| contention(&memory, &program(), &variables, &layout(), (kind, 10, &Speed::default())).unwrap().unwrap();
    let block = read(Kind::Block);
    assert_eq!((block.rate, block.records[0].count, block.delay_nanos(&block.records[0])), (1, 1, 2_000_000_000));
    let mutex = read(Kind::Mutex);
    assert_eq!((mutex.rate, mutex.records[0].count, mutex.delay_nanos(&mutex.records[0])), (100, 7, 500));
    assert_eq!(*mutex.records[0].stack, [0x1010]);
}

/// Check that records that cannot be are left out and counted: counts that are no number, or below nothing, and time that runs backwards.
#[test]
fn counts_that_cannot_be_are_left_out() {
    let wrong = [(f64::NAN, 5), (f64::INFINITY, 5), (-1.0, 5), (1e300, 5), (1.0, u64::MAX)];
    let mut memory = Forged::default().with(0x100, &[0, 0x10000, 0]).with(0x200, &[0, 0, 1, 0]);
    for (number, (count, ticks)) in wrong.into_iter().chain([(2.0, 7)]).enumerate() {
        let at = 0x10000 + 0x1000 * number as u64;
        let next = if number == wrong.len() { 0 } else { at + 0x1000 };
        memory = memory.with(at, &[0, next, bucket::BLOCK, 0, 0, 1, 0x1010, count.to_bits(), ticks]);
    }
    let asked = (Kind::Block, 10, &Speed::default());
    let read = contention(&memory.with(0x400, &[0, 0, 0, 2_000_000_000]), &program(), &VARIABLES, &layout(), asked);
    let read = read.unwrap().unwrap();
    assert_eq!((read.walk.taken, read.walk.implausible, read.records.len()), (1, 5, 1));
    assert_eq!((read.records[0].count, read.records[0].ticks), (2, 7));
}

/// Memory whose word at 0x418 is another one each time: the speed that the runtime measured.
struct Faster(Forged, Cell<u64>);

impl Memory for Faster {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.0.read_many(pieces)?;
        for piece in pieces.iter_mut().filter(|piece| piece.address == 0x418 && piece.buffer.len() == 8) {
            self.1.set(self.1.get() + 1_000_000_000);
            piece.buffer.copy_from_slice(&self.1.get().to_le_bytes());
        }
        Ok(())
    }
}

/// Check that a total never falls because the clock was measured anew.
#[test]
fn ticks_become_time_by_one_speed_as_long_as_a_process_runs() {
    let bucket = [0, 0, bucket::BLOCK, 0, 0, 1, 0x1010, 1.0_f64.to_bits(), 3_000_000_000];
    let memory = Forged::default().with(0x100, &[0, 0x10000, 0]).with(0x200, &[0, 0, 1, 0]).with(0x10000, &bucket);
    let memory = Faster(memory.with(0x400, &[0; 4]), Cell::new(0));
    let (variables, speed) = (Variables { ticks: Some(0x400), ..VARIABLES }, Speed::default());
    for _ in 0..3 {
        let asked = (Kind::Block, 10, &speed);
        let read = contention(&memory, &program(), &variables, &layout(), asked).unwrap().unwrap();
        assert_eq!((read.records[0].ticks, read.delay_nanos(&read.records[0])), (3_000_000_000, 3_000_000_000));
    }
}
