//! Memory that was forged: pointers into nowhere, cycles, lengths that cannot be. Whatever stands there, an answer within bounds.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;

use super::contention::{self, contention};
use super::figures::figures;
use super::goroutines::goroutines;
use super::heap::{self, Amount, heap};
use super::ticks::Speed;
use super::variables::{Code, Function, Variables};
use super::{End, Memory};
use crate::elf::Machine;
use crate::go::layouts::{self, G, Layout, bucket, status};
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

/// A program whose functions are 0x100 bytes long from 0x1000 to 0x2000, with frames of 16 bytes; the last is the outermost one.
struct Text;

impl Code for Text {
    fn machine(&self) -> Machine {
        Machine::X86_64
    }

    fn extent(&self, _: &str) -> Option<Range<u64>> {
        None
    }

    fn data(&self) -> Range<u64> {
        0..0
    }

    fn function(&self, pc: u64) -> Option<Function> {
        let function = Function { entry: pc & !0xff, is_top: pc >= 0x1f00, writes_sp: false, is_injected: false };
        (0x1000..0x2000).contains(&pc).then_some(function)
    }

    fn depth(&self, pc: u64) -> Option<u64> {
        self.function(pc).map(|_| 16)
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
};

fn layout() -> Layout {
    layouts::of(26).unwrap()
}

fn roots(mbuckets: u64, rate: u64) -> Forged {
    Forged::default().with(0x100, &[mbuckets, 0, 0]).with(0x200, &[rate, 0, 0, 0])
}

#[test]
fn a_heap_is_unsampled_as_go_does() {
    let memory = roots(0x10000, 524_288).heap_bucket(0x10000, 0, &[0x1010, 0x1f10], [4, 1, 2048, 512]);
    let heap = heap(&memory, &Text, &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!((heap.state, heap.rate, heap.walk.taken, heap.torn), (heap::State::Collected, 524_288, 1, 0));
    let record = &heap.records[0];
    assert_eq!((&*record.stack, record.size), (&[0x1010, 0x1f10][..], 512));
    assert_eq!(record.in_use, Amount { objects: 3, bytes: 1536 });
    // `scaleHeapSample(4, 2048, 524288)` and `(3, 1536, 524288)`: 1 / (1 - exp(-512 / 524288)) is 1024.5.
    assert_eq!(record.allocated.unsampled(524_288), Amount { objects: 4098, bytes: 2_098_176 });
    assert_eq!(record.in_use.unsampled(524_288), Amount { objects: 3073, bytes: 1_573_632 });
    assert_eq!(record.in_use.unsampled(1), record.in_use);
}

#[test]
fn without_a_collection_all_allocations_count() {
    let future = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1024, 0, 1, 1, 512, 512];
    let header = [0, 0, bucket::MEMORY, 0, 512, 1, 0x1010];
    let memory = roots(0x10000, 524_288).with(0x10000, &[&header[..], &future].concat());
    let heap = heap(&memory, &Text, &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!(heap.state, heap::State::NoCollection);
    assert_eq!((heap.records[0].allocated.objects, heap.records[0].in_use.objects), (3, 2));
}

#[test]
fn a_heap_that_is_off_is_not_an_empty_one() {
    let heap = heap(&roots(0, 0), &Text, &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!((heap.state, heap.records.len()), (heap::State::Unlinked, 0));
}

#[test]
fn a_list_that_runs_in_a_circle_ends() {
    let memory = roots(0x10000, 1).heap_bucket(0x10000, 0x20000, &[0x1010], [1, 0, 512, 0]);
    let memory = memory.heap_bucket(0x20000, 0x10000, &[0x1020], [1, 0, 512, 0]);
    let heap = heap(&memory, &Text, &VARIABLES, &layout(), 1_000_000).unwrap().unwrap();
    assert_eq!((heap.walk.taken, heap.walk.broken, heap.records.len()), (2, 1, 2));
}

/// Check that a circle behind what is taken is one, and not as many buckets as are counted.
#[test]
fn a_circle_beyond_the_bound_ends() {
    let mut memory = roots(0x10000, 1);
    for number in 0..20 {
        let at = 0x10000 + number * 0x1000;
        memory = memory.heap_bucket(at, if number == 19 { 0x18000 } else { at + 0x1000 }, &[0x1010], [1, 0, 512, 0]);
    }
    let heap = heap(&memory, &Text, &VARIABLES, &layout(), 5).unwrap().unwrap();
    assert_eq!((heap.walk.taken, heap.walk.broken), (5, 1));
    assert!((15..50).contains(&heap.walk.beyond), "{:?}", heap.walk);
}

#[test]
fn lists_into_nowhere_and_lengths_that_cannot_be_are_counted() {
    let nowhere = roots(0x10000, 1).heap_bucket(0x10000, 0xdead_0000_0000, &[0x1010], [1, 0, 512, 0]);
    let deep = roots(0x10000, 1).with(0x10000, &[0, 0, bucket::MEMORY, 0, 512, 1 << 60]);
    let last = roots(u64::MAX - 7, 1);
    let odd = roots(0x10001, 1);
    let other = roots(0x10000, 1).with(0x10000, &[0, 0, bucket::BLOCK, 0, 512, 1]);
    for (memory, taken) in [(nowhere, 1), (deep, 0), (last, 0), (odd, 0), (other, 0)] {
        let heap = heap(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
        assert_eq!((heap.walk.taken, heap.walk.broken), (taken, 1));
    }
}

#[test]
fn stacks_that_are_no_code_are_left_out_and_torn_records_too() {
    let memory = roots(0x10000, 1).heap_bucket(0x10000, 0x20000, &[0x1010, 0x9999], [1, 0, 512, 0]);
    let memory = memory.heap_bucket(0x20000, 0, &[0x1010], [1, 2, 512, 1024]);
    let heap = heap(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((heap.walk.taken, heap.walk.foreign, heap.torn), (1, 1, 1));
    assert_eq!(heap.records[0].in_use, Amount::default());
}

#[test]
fn what_is_beyond_the_bound_is_counted() {
    let mut memory = roots(0x10000, 1);
    for number in 0..20 {
        let at = 0x10000 + number * 0x1000;
        memory = memory.heap_bucket(at, if number == 19 { 0 } else { at + 0x1000 }, &[0x1010], [1, 0, 512, 0]);
    }
    let heap = heap(&memory, &Text, &VARIABLES, &layout(), 5).unwrap().unwrap();
    assert_eq!((heap.walk.taken, heap.walk.beyond, heap.records.len()), (5, 15, 5));
}

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
        |kind| contention(&memory, &Text, &variables, &layout(), (kind, 10, &Speed::default())).unwrap().unwrap();
    let block = read(contention::Kind::Block);
    assert_eq!((block.rate, block.records[0].count, block.delay_nanos(&block.records[0])), (1, 1, 2_000_000_000));
    let mutex = read(contention::Kind::Mutex);
    assert_eq!((mutex.rate, mutex.records[0].count, mutex.delay_nanos(&mutex.records[0])), (100, 7, 500));
    assert_eq!(*mutex.records[0].stack, [0x1010]);
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

#[test]
fn goroutines_are_walked_to_their_root() {
    let memory = Forged::default()
        .with(0x300, &[0x5000, 4, 8])
        .with(0x5000, &[0x10000, 0x20000, 0x30000, 0xdead_0000])
        .with(0x10000, &goroutine(7, status::WAITING, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x20000, &goroutine(8, status::RUNNING | status::SCAN, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x30000, &goroutine(9, status::DEAD, (0, 0), (0, 0)))
        .with(0x80000, &[&[0; 10][..], &[0x1120, 0, 0, 0x1f20], &[0; 18]].concat());
    let all = goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((all.list.len(), all.broken, all.changed, all.beyond), (2, 1, 0, 0));
    let by_id = |id| all.list.iter().find(|goroutine| goroutine.id == id).unwrap();
    let addresses: Vec<u64> = by_id(7).stack.iter().map(|pc| pc.address).collect();
    assert_eq!(
        (addresses.as_slice(), by_id(7).end, by_id(7).state()),
        (&[0x1010, 0x1120, 0x1f20][..], End::Root, "chan receive")
    );
    assert_eq!((by_id(8).stack.len(), by_id(8).state()), (0, "running"));
    let few = goroutines(&memory, &Text, &VARIABLES, &layout(), 1).unwrap().unwrap();
    assert_eq!((few.list.len(), few.beyond), (1, 3));
}

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
    let all = goroutines(&Restless(memory, Cell::new(0)), &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
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
    let all = goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
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
        let all = goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
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
    let all = goroutines(&Outgrown(memory, Cell::new(0)), &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
    let ids: Vec<_> = all.list.iter().map(|goroutine| goroutine.id).collect();
    assert_eq!((ids, all.broken), (vec![7, 8], 0));
}

/// Check that bounds of a stack that are read while they are written are no reason to give a goroutine up.
#[test]
fn bounds_that_are_being_written_are_read_again() {
    let torn = layout().g.length();
    let memory = Forged::default().with(0x300, &[0x5000, 1, 1]).with(0x5000, &[0x10000]);
    let memory = memory.with(0x10000, &goroutine(7, status::RUNNING, (0x80000, 0x80100), (0x1010, 0x80040)));
    let all = goroutines(&Torn(memory, Cell::new(0), torn), &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
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

/// So many goroutines, each with 1,000 frames on a stack of its own: the same for all, or different ones.
struct Many {
    count: u64,
    is_same: bool,
}

impl Many {
    const FRAMES: u64 = 1000;

    /// The word at `address`.
    fn word(&self, address: u64) -> u64 {
        let at = |first: u64| (address - first) / 8;
        match address {
            0x300..0x318 => [0x1_0000, self.count, self.count][at(0x300) as usize],
            0x1_0000..0x100_0000 => 0x100_0000 + 0x1000 * at(0x1_0000),
            0x100_0000..0x8000_0000 => {
                let (number, inside) = ((address - 0x100_0000) / 0x1000, (address & 0xfff) as usize);
                let lo = 0x1_0000_0000 + number * 0x1_0000;
                let words = goroutine(1 + number, status::WAITING, (lo, lo + 0x1_0000), (0x1010, lo + 0x1000));
                words.get(inside / 8).copied().unwrap_or(0)
            }
            _ => {
                // Frames have 16 bytes, with their return addresses at the top of the callee's.
                let (number, frame) =
                    ((address - 0x1_0000_0000) / 0x1_0000, (address & 0xffff).wrapping_sub(0x1000) / 24);
                let number = if self.is_same { 0 } else { number };
                let bit = frame.checked_sub(1).is_some_and(|frame| frame < 20 && number >> frame & 1 == 1);
                if frame + 1 >= Self::FRAMES { 0x1f20 } else { 0x1110 + u64::from(bit) }
            }
        }
    }
}

impl Memory for Many {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces {
            piece.read = piece.buffer.len();
            let words = (piece.address..).step_by(8).zip(piece.buffer.chunks_mut(8));
            words.for_each(|(address, into)| into.copy_from_slice(&self.word(address).to_le_bytes()[..into.len()]));
        }
        Ok(())
    }
}

/// Check that deep stacks of many goroutines do not make a capture of any size: equal ones are one, and what is beyond the bound is counted.
#[test]
fn a_capture_is_bounded_in_bytes() {
    let different = Many { count: 2200, is_same: false };
    let all = goroutines(&different, &Text, &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    let with_stack = all.list.iter().filter(|goroutine| !goroutine.stack.is_empty());
    let bytes: usize = with_stack.clone().map(|goroutine| size_of_val(&*goroutine.stack)).sum();
    assert_eq!((all.list.len(), all.broken, all.changed), (2200, 0, 0));
    assert_eq!(with_stack.count() as u64 + all.over_bytes, 2200);
    assert!(all.over_bytes > 0 && bytes > 30 << 20 && bytes <= 32 << 20, "{bytes} {}", all.over_bytes);

    let same = Many { count: 200, is_same: true };
    let all = goroutines(&same, &Text, &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    let stack = &all.list[0].stack;
    assert_eq!((all.over_bytes, stack.len()), (0, Many::FRAMES as usize + 1));
    assert!(all.list.iter().all(|goroutine| std::sync::Arc::ptr_eq(&goroutine.stack, stack)));
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
        let asked = (contention::Kind::Block, 10, &speed);
        let read = contention(&memory, &Text, &variables, &layout(), asked).unwrap().unwrap();
        assert_eq!((read.records[0].ticks, read.delay_nanos(&read.records[0])), (3_000_000_000, 3_000_000_000));
    }
}

#[test]
fn stacks_that_lead_nowhere_end_as_lost() {
    // Beyond the stack; a return address that is none; memory that is not there.
    let cases =
        [((0x80000, 0x80100), 0x800f8), ((0x80000, 0x80100), 0x80040), ((0x7_0000_0000, 0x7_0000_1000), 0x7_0000_0100)];
    for (bounds, sp) in cases {
        let memory = Forged::default()
            .with(0x300, &[0x5000, 1, 1])
            .with(0x5000, &[0x10000])
            .with(0x10000, &goroutine(7, status::WAITING, bounds, (0x1010, sp)))
            .with(0x80000, &[0x77; 32]);
        let all = goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
        assert_eq!((all.list[0].stack.len(), all.list[0].end), (1, End::Lost));
    }
}

#[test]
fn a_goroutine_without_a_number_is_tried_again_and_left_out() {
    let memory = Forged::default()
        .with(0x300, &[0x5000, 2, 2])
        .with(0x5000, &[0x10000, 0x20000])
        .with(0x10000, &goroutine(0, status::RUNNABLE, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x20000, &goroutine(8, status::RUNNING, (0x80000, 0x80100), (0x1010, 0x80040)));
    let all = goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
    let ids: Vec<_> = all.list.iter().map(|goroutine| goroutine.id).collect();
    assert_eq!((ids, all.changed, all.broken), (vec![8], 1, 0));
}

#[test]
fn a_list_of_goroutines_longer_than_its_room_is_none() {
    for list in [[0x5000, 1 << 60, 8], [0x5001, 1, 8]] {
        let memory = Forged::default().with(0x300, &list);
        assert_eq!(goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap(), None);
    }
    // A length that fits, of memory that is not there.
    let memory = Forged::default().with(0x300, &[0xdead_0000, 1 << 59, 1 << 60]);
    let all = goroutines(&memory, &Text, &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((all.broken, all.beyond), (100, (1 << 59) - 100));
}

/// Check that figures of which one part is not there are none.
#[test]
fn figures_that_cannot_be_read_are_none() {
    let memory = Forged::default().with(0x300, &[4]).with(0x500, &[100; 40]).with(0x1_0000, &[7; 515]);
    assert_eq!(figures(&memory, &VARIABLES).unwrap().map(|figures| figures.collections), Some(7));
    let nowhere = Some(0x9_0000);
    for variables in [
        Variables { pacer: nowhere, ..VARIABLES },
        Variables { collections: nowhere, ..VARIABLES },
        Variables { processors: nowhere, ..VARIABLES },
        Variables { processors: None, ..VARIABLES },
    ] {
        assert_eq!(figures(&memory, &variables).unwrap(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Check that no memory is too strange: words that are small, that point into each other, or anything.
    #[test]
    fn whatever_stands_in_memory_is_read_within_bounds(
        words in proptest::collection::vec(prop_oneof![0..64_u64, (0..600_u64).prop_map(|n| n * 8), 0x1000..0x2000_u64, any::<u64>()], 600),
        minor in layouts::OLDEST..=layouts::NEWEST,
    ) {
        let memory = Forged::default().with(0, &words);
        let layout = layouts::of(minor).unwrap();
        let heap = heap(&memory, &Text, &VARIABLES, &layout, 50).unwrap();
        prop_assert!(heap.is_none_or(|heap| heap.records.len() <= 50));
        let all = goroutines(&memory, &Text, &VARIABLES, &layout, 50).unwrap();
        prop_assert!(all.is_none_or(|all| all.list.len() <= 50));
        let variables = Variables { ticks: Some(0x400), ..VARIABLES };
        for kind in [contention::Kind::Block, contention::Kind::Mutex] {
            let contention = contention(&memory, &Text, &variables, &layout, (kind, 50, &Speed::default())).unwrap();
            prop_assert!(contention.is_none_or(|contention| contention.records.len() <= 50));
        }
        let figures = figures(&memory, &Variables { collections: Some(0), ..VARIABLES }).unwrap().unwrap();
        prop_assert!(figures.collections <= u32::MAX.into() && figures.goal.is_some() == (figures.limit.or(figures.percent).is_some()));
    }
}
