//! Goroutines that stand still: their list, their stacks, their bounds.

use super::{Forged, VARIABLES, goroutine, layout, program};
use crate::capture::End;
use crate::capture::goroutines::goroutines;
use crate::go::layouts::status;

#[test]
fn goroutines_are_walked_to_their_root() {
    let memory = Forged::default()
        .with(0x300, &[0x5000, 4, 8])
        .with(0x5000, &[0x10000, 0x20000, 0x30000, 0xdead_0000])
        .with(0x10000, &goroutine(7, status::WAITING, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x20000, &goroutine(8, status::RUNNING | status::SCAN, (0x80000, 0x80100), (0x1010, 0x80040)))
        .with(0x30000, &goroutine(9, status::DEAD, (0, 0), (0, 0)))
        .with(0x80000, &[&[0; 10][..], &[0x1120, 0, 0, 0x1f20], &[0; 18]].concat());
    let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((all.list.len(), all.broken, all.changed, all.beyond), (2, 1, 0, 0));
    let by_id = |id| all.list.iter().find(|goroutine| goroutine.id == id).unwrap();
    let addresses: Vec<u64> = by_id(7).stack.iter().map(|pc| pc.address).collect();
    assert_eq!(
        (addresses.as_slice(), by_id(7).end, by_id(7).state().words),
        (&[0x1010, 0x1120, 0x1f20][..], End::Root, "chan receive")
    );
    assert_eq!((by_id(8).stack.len(), by_id(8).state().words), (0, "running"));
    let few = goroutines(&memory, &program(), &VARIABLES, &layout(), 1).unwrap().unwrap();
    // One lives beyond it, one is dead, and one is none.
    assert_eq!((few.list.len(), few.beyond, few.broken), (1, 1, 1));
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
        let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
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
    let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    let ids: Vec<_> = all.list.iter().map(|goroutine| goroutine.id).collect();
    assert_eq!((ids, all.changed, all.nascent, all.broken), (vec![8], 1, 1, 0));
}

#[test]
fn a_list_of_goroutines_longer_than_its_room_is_none() {
    for list in [[0x5000, 1 << 60, 8], [0x5001, 1, 8], [0x5000, 1 << 59, 1 << 60]] {
        let memory = Forged::default().with(0x300, &list);
        assert_eq!(goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap(), None);
    }
    // A length that fits, of memory that is not there.
    let memory = Forged::default().with(0x300, &[0xdead_0000, 1 << 42, 1 << 43]);
    let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100).unwrap().unwrap();
    assert_eq!((all.list.len(), all.broken, all.beyond), (0, 128, (1 << 42) - 128));
}
