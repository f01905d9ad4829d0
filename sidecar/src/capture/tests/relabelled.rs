//! Labels that are replaced, and memory of sets that becomes something else, while they are read.

use std::cell::Cell;

use super::{Forged, VARIABLES, goroutine, layout, program};
use crate::capture::goroutines::goroutines;
use crate::capture::{Goroutines, Memory};
use crate::go::layouts::status;
use crate::target::{Fault, Piece};

/// Memory of which some pieces are otherwise than they stand there.
struct Altered<F>(Forged, F);

impl<F: Fn(&mut Piece<'_>)> Memory for Altered<F> {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        self.0.read_many(pieces)?;
        pieces.iter_mut().for_each(&self.1);
        Ok(())
    }
}

/// So many goroutines in a state, all with the set at 0x40000: `who` is `ada`.
fn labelled(count: u64, state: u32) -> Forged {
    let addresses: Vec<u64> = (0..count).map(|number| 0x10_0000 + 0x1000 * number).collect();
    let memory = Forged::default()
        .with(0x300, &[0x5000, count, count])
        .with(0x5000, &addresses)
        .with(0x40000, &[0x41000, 1])
        .with(0x41000, &[0x42000, 3, 0x42100, 3])
        .with(0x42000, &[u64::from_le_bytes(*b"who\0\0\0\0\0")])
        .with(0x42100, &[u64::from_le_bytes(*b"ada\0\0\0\0\0")])
        .with(0x80000, &[0x1f20; 32]);
    addresses.into_iter().zip(1..).fold(memory, |memory, (address, id)| {
        let mut words = goroutine(id, state, (0x80000, 0x80100), (0x1f10, 0x80040));
        words[layout().g.labels / 8] = 0x40000;
        memory.with(address, &words)
    })
}

fn captured(memory: Forged, alter: impl Fn(&mut Piece<'_>)) -> Goroutines {
    goroutines(&Altered(memory, alter), &program(), &VARIABLES, &layout(), 1000).unwrap().unwrap()
}

/// The labels of each goroutine as text.
fn labels(all: &Goroutines) -> Vec<String> {
    let told = |(key, value): (&str, &str)| format!("{key}={value}");
    all.list.iter().map(|goroutine| goroutine.labels.iter().map(told).collect()).collect()
}

/// Whether it is read of a goroutine.
fn is_goroutine(piece: &Piece<'_>) -> bool {
    piece.buffer.len() == layout().g.length()
}

/// Puts a text where a value is read.
fn put(piece: &mut Piece<'_>, text: [u8; 3]) {
    if let Some(inside) = 0x42100_u64.checked_sub(piece.address) {
        let there = piece.buffer.get_mut(inside as usize..).and_then(|rest| rest.first_chunk_mut());
        there.into_iter().for_each(|bytes| *bytes = text);
    }
}

/// Check that a set whose memory was something else at the first reading is read again, in each state of a goroutine.
#[test]
fn labels_that_were_torn_are_read_again() {
    for state in [status::RUNNING, status::WAITING] {
        let reads = Cell::new(0);
        let all = captured(labelled(1, state), |piece| {
            if reads.get() == 0 {
                put(piece, *b"xxx");
            }
            let range = piece.address..piece.address + piece.buffer.len() as u64;
            reads.set(reads.get() + u32::from(range.contains(&0x42100)));
        });
        assert_eq!((labels(&all), all.labels_changed, all.changed), (vec!["who=ada".into()], 0, 0), "{state}");
    }
}

/// Check that labels of a goroutine that points elsewhere each time are not shown, and counted, and nothing else of it is missing.
#[test]
fn labels_of_a_goroutine_that_sets_others_all_the_time_are_left_out() {
    let looked = Cell::new(0_u64);
    let all = captured(labelled(1, status::RUNNING), |piece| {
        if is_goroutine(piece) {
            looked.set(looked.get() + 1);
            let at = layout().g.labels;
            piece.buffer[at..at + 8].copy_from_slice(&(0x40000 + (looked.get() % 2) * 0x10_0000).to_le_bytes());
        }
    });
    assert_eq!((labels(&all), all.labels_changed, all.labels_cut), (vec![String::new()], 1, 0));
    assert_eq!((all.list[0].id, all.list[0].state().words, all.changed, all.broken), (1, "running", 0, 0));
}

/// Check that a goroutine that is looked at later than others has what is there then, not what those had at the same place.
#[test]
fn memory_of_labels_that_is_used_again_is_read_again() {
    let looked = Cell::new(0);
    let all = captured(labelled(100, status::RUNNING), |piece| {
        looked.set(looked.get() + u32::from(is_goroutine(piece)));
        // Two looks at each of the first batch of 64.
        if looked.get() > 128 {
            put(piece, *b"eve");
        }
    });
    let expected: Vec<&str> = (0..100).map(|number| if number < 64 { "who=ada" } else { "who=eve" }).collect();
    assert_eq!((labels(&all), all.labels_changed), (expected.iter().map(|text| (*text).to_owned()).collect(), 0));
}

/// Check that what is no set is no labels, which is counted.
#[test]
fn what_is_no_set_is_counted() {
    for words in [[0xdead_0000, 1], [0x41000, 64]] {
        let all =
            captured(labelled(1, status::WAITING).with(0x40000, &words).with(0x41000, &[0xdead_0000, 3, 0, 0]), |_| ());
        assert_eq!((labels(&all), all.labels_changed, all.labels_cut), (vec![String::new()], 1, 0));
        assert_eq!((all.list[0].stack.len(), all.changed), (1, 0));
    }
}
