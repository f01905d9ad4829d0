//! Lists of buckets and what is made of the heap's.

use std::cell::Cell;

use super::{Forged, VARIABLES, layout, program};
use crate::capture::Memory;
use crate::capture::heap::{Amount, State, heap};
use crate::capture::variables::Variables;
use crate::go::layouts::bucket;
use crate::go::layouts::figures::collections;
use crate::target::{Fault, Piece};

fn roots(mbuckets: u64, rate: u64) -> Forged {
    Forged::default().with(0x100, &[mbuckets, 0, 0]).with(0x200, &[rate, 0, 0, 0])
}

#[test]
fn a_heap_is_unsampled_as_go_does() {
    let memory = roots(0x10000, 524_288).heap_bucket(0x10000, 0, &[0x1010, 0x1f10], [4, 1, 2048, 512]);
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!((heap.state, heap.rate, heap.walk.taken, heap.torn), (State::Collected, 524_288, 1, 0));
    let record = &heap.records[0];
    assert_eq!((&*record.stack, record.size), (&[0x1010, 0x1f10][..], 512));
    assert_eq!(record.in_use, Amount { objects: 3, bytes: 1536 });
    // `scaleHeapSample(4, 2048, 524288)` and `(3, 1536, 524288)`: 1 / (1 - exp(-512 / 524288)) is 1024.5.
    assert_eq!(record.allocated.unsampled(524_288), Amount { objects: 4098, bytes: 2_098_176 });
    assert_eq!(record.in_use.unsampled(524_288), Amount { objects: 3073, bytes: 1_573_632 });
    assert_eq!(record.in_use.unsampled(1), record.in_use);
}

/// Check that of a list of which only a part was read, where that has nothing yet, it is not said that no garbage was collected once some was.
#[test]
fn a_part_without_figures_is_no_heap_without_a_collection() {
    let header = [0, 0x30000, bucket::MEMORY, 0, 512, 1, 0x1010];
    let future = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1024, 0, 0, 0, 0, 0];
    for (collections, state) in [(3, State::Collected), (0, State::NoCollection)] {
        let memory = roots(0x20000, 524_288)
            .with(0x20000, &[&header[..], &future].concat())
            .heap_bucket(0x30000, 0, &[0x1010], [4, 1, 2048, 512])
            .with(0x1_0000 + collections::COUNT as u64, &[collections]);
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), 1).unwrap().unwrap();
        assert_eq!((heap.state, heap.walk.taken, heap.walk.beyond), (state, 1, 1), "{collections}");
    }
}

/// Check that where it is not known when the runtime publishes, or it is at it all the time, records may be of several collections, and else are of one.
#[test]
fn who_publishes_is_looked_at() {
    let memory = roots(0x10000, 524_288).heap_bucket(0x10000, 0, &[0x1010], [4, 1, 2048, 512]).with(0x400, &[0, 1]);
    for (publishing, is_mixed) in [(None, true), (Some(0x400), false), (Some(0x408), true)] {
        let heap = heap(&memory, &program(), &Variables { publishing, ..VARIABLES }, &layout(), 10).unwrap().unwrap();
        assert_eq!((heap.mixed, heap.walk.taken), (is_mixed, 1), "{publishing:x?}");
    }
}

#[test]
fn without_a_collection_all_allocations_count() {
    let future = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1024, 0, 1, 1, 512, 512];
    let header = [0, 0, bucket::MEMORY, 0, 512, 1, 0x1010];
    let memory = roots(0x10000, 524_288).with(0x10000, &[&header[..], &future].concat());
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!(heap.state, State::NoCollection);
    assert_eq!((heap.records[0].allocated.objects, heap.records[0].in_use.objects), (3, 2));
}

/// Memory that is another one from a read on, a few times.
struct Passing {
    stages: Vec<(u32, Forged)>,
    reads: Cell<u32>,
}

impl Memory for Passing {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        let reads = self.reads.replace(self.reads.get() + 1);
        let (_, memory) = self.stages.iter().rfind(|(from, _)| *from <= reads).unwrap();
        memory.read_many(pieces)
    }
}

/// Check that the first collection may be published at any time while a heap is read of which nothing was: nothing counts twice, and the state is that of what was read.
#[test]
fn a_first_collection_meanwhile_counts_once() {
    let header = [0, 0, bucket::MEMORY, 0, 512, 1, 0x1010];
    let stage = |active: [u64; 4], next: [u64; 4]| {
        let record = [&active[..], &[0; 4], &next, &[0; 4]].concat();
        roots(0x10000, 524_288).with(0x10000, &[&header[..], &record].concat())
    };
    // `mProf_FlushLocked`: added to what is published, then cleared where it was.
    let (nothing, all) = ([0; 4], [3, 1, 1536, 512]);
    let mut states = Vec::new();
    for from in 1..16 {
        let stages = vec![(0, stage(nothing, all)), (from, stage(all, all)), (from + 1, stage(all, nothing))];
        let memory = Passing { stages, reads: Cell::new(0) };
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
        let record = &heap.records[0];
        assert_eq!((record.allocated.objects, record.in_use.objects), (3, 2), "{from}: {:?}", heap.state);
        states.push(heap.state);
    }
    assert_eq!((states.first(), states.last()), (Some(&State::Collected), Some(&State::NoCollection)), "{states:?}");
}

/// Check that a heap of which nothing was sampled is not said to have had no collection, once it had one; and that what was sampled since the last one counts, as in Go.
#[test]
fn what_was_collected_is_known_where_nothing_is_published() {
    let future = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1024, 0, 1, 1, 512, 512];
    let header = [0, 0, bucket::MEMORY, 0, 512, 1, 0x1010];
    for (collected, list, expected) in [
        (0, 0, State::NoCollection),
        (3, 0, State::Unsampled),
        (0, 0x20000, State::NoCollection),
        (3, 0x20000, State::NoCollection),
    ] {
        let memory = roots(list, 524_288).with(0x20000, &[&header[..], &future].concat());
        let memory = memory.with(0x10000 + collections::COUNT as u64, &[collected]);
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
        assert_eq!((heap.state, heap.records.len()), (expected, usize::from(list > 0)));
        assert!(heap.records.iter().all(|record| record.allocated.objects == 3));
    }
}

/// Check that of a list that leads into nowhere it is not said that nothing was sampled, though not one record of it could be read.
#[test]
fn a_list_that_cannot_be_read_is_not_an_empty_one() {
    let memory = roots(0xdead_0000_0000, 524_288).with(0x10000 + collections::COUNT as u64, &[3]);
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!((heap.state, heap.records.len(), heap.walk.broken), (State::Collected, 0, 1));
}

#[test]
fn a_heap_that_is_off_is_not_an_empty_one() {
    let heap = heap(&roots(0, 0), &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!((heap.state, heap.records.len()), (State::Unlinked, 0));
}

/// Check that a heap that the linker left out is off though the runtime sampled something on its way to `main`, which is nobody's heap.
#[test]
fn a_heap_that_was_left_out_is_none() {
    for record in [[4, 1, 2048, 512], [0; 4]] {
        let memory = roots(0x10000, 0).heap_bucket(0x10000, 0, &[0x1010, 0x1f10], record);
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
        assert_eq!((heap.state, heap.rate, heap.records.len()), (State::Unlinked, 0, 0));
    }
}

#[test]
fn a_list_that_runs_in_a_circle_ends() {
    let memory = roots(0x10000, 1).heap_bucket(0x10000, 0x20000, &[0x1010], [1, 0, 512, 0]);
    let memory = memory.heap_bucket(0x20000, 0x10000, &[0x1020], [1, 0, 512, 0]);
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 1_000_000).unwrap().unwrap();
    assert_eq!((heap.walk.taken, heap.walk.broken, heap.records.len()), (2, 1, 2));
}

/// Check that all that is left out is counted, however little is asked for, and that nothing is said of it.
#[test]
fn what_is_left_out_is_counted() {
    let mut memory = roots(0x10000, 1);
    for number in 0..50 {
        let next = if number == 49 { 0 } else { 0x10000 + (number + 1) * 0x1000 };
        memory = memory.heap_bucket(0x10000 + number * 0x1000, next, &[0x1010], [1, 0, 512, 0]);
    }
    for most in [2, 0] {
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), most).unwrap().unwrap();
        assert_eq!((heap.walk.taken, heap.walk.beyond, heap.walk.broken), (most as u64, 50 - most as u64, 0));
        assert_eq!(heap.state, State::Collected, "{most}");
    }
}

/// Check that a circle behind what is taken is one, and not as many buckets as are counted.
#[test]
fn a_circle_beyond_the_bound_ends() {
    let mut memory = roots(0x10000, 1);
    for number in 0..20 {
        let at = 0x10000 + number * 0x1000;
        memory = memory.heap_bucket(at, if number == 19 { 0x18000 } else { at + 0x1000 }, &[0x1010], [1, 0, 512, 0]);
    }
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 5).unwrap().unwrap();
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
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
        assert_eq!((heap.walk.taken, heap.walk.broken), (taken, 1));
    }
}

#[test]
fn stacks_that_are_no_code_are_left_out_and_torn_records_too() {
    let memory = roots(0x10000, 1).heap_bucket(0x10000, 0x20000, &[0x1010, 0x9999], [1, 0, 512, 0]);
    let memory = memory.heap_bucket(0x20000, 0, &[0x1010], [1, 2, 512, 1024]);
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
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
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 5).unwrap().unwrap();
    assert_eq!((heap.walk.taken, heap.walk.beyond, heap.records.len()), (5, 15, 5));
}

/// Check that figures that nobody can have are left out and counted: more in use than there are addresses, more objects than any program allocates, a product
/// that does not fit; and that bytes that are not those of the objects are taken for torn.
#[test]
fn figures_that_cannot_be_are_left_out() {
    let cases =
        [[1 << 40, 0, 512 << 40, 0], [1 << 61, 1 << 61, 0, 0], [u64::MAX, 0, 1, 0], [1 << 56, 1 << 56, 512 << 56, 0]];
    for active in cases {
        let memory = roots(0x10000, 1).heap_bucket(0x10000, 0x20000, &[0x1010], active);
        let memory = memory.heap_bucket(0x20000, 0, &[0x1010], [3, 1, 1536, 512]);
        let heap = heap(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
        assert_eq!((heap.walk.taken, heap.walk.implausible, heap.torn, heap.walk.is_whole()), (1, 1, 0, false));
        assert_eq!((heap.records.len(), heap.records[0].in_use), (1, Amount { objects: 2, bytes: 1024 }));
    }
    let memory = roots(0x10000, 1).heap_bucket(0x10000, 0, &[0x1010], [3, 1, 1 << 50, 512]);
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((heap.torn, heap.records[0].allocated), (1, Amount { objects: 3, bytes: 1536 }));
}

/// Check that a rate below nothing is none, as it is to the runtime.
#[test]
fn a_rate_below_zero_is_off() {
    let memory = roots(0x10000, u64::MAX).heap_bucket(0x10000, 0, &[0x1010], [1, 0, 512, 0]);
    let heap = heap(&memory, &program(), &VARIABLES, &layout(), 10).unwrap().unwrap();
    assert_eq!((heap.rate, heap.state), (0, State::Unlinked));
}
