//! Memory that costs much to read for what there is in it: the work of a capture is bounded, and what was left for want of it is counted.

use std::cell::Cell;
use std::ops::Range;

use super::{Program, VARIABLES, goroutine, layout, program};
use crate::capture::goroutines::goroutines;
use crate::capture::heap::heap;
use crate::capture::variables::{Code as _, Variables};
use crate::capture::work::Work;
use crate::capture::{End, Goroutines, Memory};
use crate::go::layouts::{bucket, status};
use crate::target::{Fault, Piece};

/// All of memory is there, and zero but for words that `write` gives for a range; how much of it was read.
struct Vast<W> {
    write: W,
    bytes: Cell<u64>,
}

impl<W: Fn(&Range<u64>, &mut dyn FnMut(u64, &[u64]))> Vast<W> {
    fn new(write: W) -> Self {
        Self { write, bytes: Cell::new(0) }
    }
}

impl<W: Fn(&Range<u64>, &mut dyn FnMut(u64, &[u64]))> Memory for Vast<W> {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces {
            // But for what is behind the end.
            piece.read =
                if piece.address.checked_add(piece.buffer.len() as u64).is_some() { piece.buffer.len() } else { 0 };
            self.bytes.set(self.bytes.get() + piece.read as u64);
            let range = piece.address..piece.address + piece.read as u64;
            (self.write)(&range, &mut |address, words| {
                for (at, byte) in (address..).zip(words.iter().flat_map(|word| word.to_le_bytes())) {
                    if range.contains(&at) {
                        piece.buffer[(at - range.start) as usize] = byte;
                    }
                }
            });
        }
        Ok(())
    }
}

/// A program with frames of eight kilobytes and a word, so that each is in bytes of its own; looking up costs what it is told.
fn wide(cost: u64) -> Program {
    Program { frame: |_| 8192, cost, ..program() }
}

/// Where goroutines lie, and how far apart they and what they point to are.
const G: u64 = 0x100_0000;
const STACKS: u64 = 0x1_0000_0000;
const APART: u64 = 0x100_0000;

/// So many goroutines, each with a stack of 16 MiB and labels of its own.
fn many(count: u64, range: &Range<u64>, write: &mut dyn FnMut(u64, &[u64])) {
    match range.start {
        0x300..0x318 => write(0x300, &[0x1_0000, count, count]),
        0x1_0000..G => {
            let number = (range.start - 0x1_0000) / 8;
            let addresses = (number..).take(64).map(|number| G + 0x1000 * number);
            write(range.start, &addresses.collect::<Vec<_>>());
        }
        G..STACKS => {
            let number = (range.start - G) / 0x1000;
            let lo = STACKS + APART * number;
            let mut words = goroutine(1 + number, status::WAITING, (lo, lo + APART), (0x1010, lo));
            words[layout().g.labels / 8] = lo + 0x100;
            write(range.start, &words);
        }
        _ => {}
    }
}

/// Check that a thousand goroutines whose thousand frames lie eight kilobytes apart cost what is allowed, not the sixteen gigabytes that they take; all are
/// in the list, and those that there was no work left for are counted.
#[test]
fn forged_frames_cost_what_a_capture_may_cost() {
    let memory = Vast::new(|range: &Range<u64>, write: &mut dyn FnMut(u64, &[u64])| {
        many(1000, range, write);
        if range.start >= STACKS {
            // Return addresses, one at the head of each piece of a stack that is read, and one at the end of the first.
            write(range.start, &[0x1120]);
            write(range.end - 8, &[0x1120]);
        }
    });
    let code = wide(0);
    let all = goroutines(&memory, &code, &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    assert_eq!((all.list.len(), all.broken, all.changed, all.beyond), (1000, 0, 0, 0));
    let whole = all.list.iter().filter(|goroutine| goroutine.stack.len() == 1024 && goroutine.end == End::Cut).count();
    assert!((32..200).contains(&whole), "{whole}");
    let without = all.list.iter().filter(|goroutine| goroutine.stack.is_empty() && goroutine.end == End::Lost);
    assert_eq!((without.count() as u64, whole as u64 + all.over_work), (all.over_work, 1000));
    assert!(memory.bytes.get() < 1200 << 20, "{}", memory.bytes.get());
}

/// Check that functions that cost much to look up are counted as what they cost.
#[test]
fn tables_without_end_are_looked_through_within_bounds() {
    let memory = Vast::new(|range: &Range<u64>, write: &mut dyn FnMut(u64, &[u64])| many(1000, range, write));
    let code = wide(10 << 20);
    let all = goroutines(&memory, &code, &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    assert_eq!(all.list.len(), 1000);
    assert!(all.over_work > 0 && code.looked_up() < 1200 << 20, "{} {}", all.over_work, code.looked_up());
}

/// Check that labels of which each text lies on pages of its own, and one at the end nowhere, cost no more than labels may, and nobody's stack: what is kept
/// of them is nothing.
#[test]
fn labels_that_point_about_cost_what_labels_may_cost() {
    const COUNT: u64 = 1500;
    let memory = Vast::new(|range: &Range<u64>, write: &mut dyn FnMut(u64, &[u64])| {
        many(COUNT, range, write);
        let (lo, mut pairs) = (range.start & !(APART - 1), Vec::new());
        if lo < STACKS || range.start > lo + 0x1000 {
            return;
        }
        // The set, a slice of 64 labels; each text long and a long way off, the last one's value behind the end of memory.
        for label in 0..64 {
            let key = lo + 0x2_0000 * (label + 1);
            pairs.extend([key, 1024, if label == 63 { u64::MAX } else { key + 0x1_0000 }, 1024]);
        }
        write(lo + 0x100, &[lo + 0x200, 64]);
        write(lo + 0x200, &pairs);
    });
    let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    assert_eq!((all.list.len() as u64, all.over_work), (COUNT, 0));
    assert!(all.list.iter().all(|goroutine| goroutine.labels.is_empty() && goroutine.end == End::Root));
    assert_eq!(all.labels_cut + all.labels_changed, COUNT);
    assert!(all.labels_cut > COUNT / 2 && memory.bytes.get() < 400 << 20, "{} {}", all.labels_cut, memory.bytes.get());
}

/// So many goroutines whose labels are 64, all texts of them one of a thousand bytes that are no UTF-8: in sets of their own, or in one.
fn of_one_text(count: u64, is_one_set: bool) -> Goroutines {
    const SET: u64 = 0x4000;
    const PAIRS: u64 = 0x5000;
    const LONG: u64 = 0x8000;
    let memory = Vast::new(|range: &Range<u64>, write: &mut dyn FnMut(u64, &[u64])| {
        many(count, range, write);
        match range.start {
            SET => write(SET, &[PAIRS, 64]),
            PAIRS => write(PAIRS, &[LONG, 1024].repeat(128)),
            LONG => write(LONG, &[u64::MAX; 128]),
            G..STACKS if is_one_set => write(range.start + layout().g.labels as u64, &[SET]),
            STACKS.. => write((range.start & !(APART - 1)) + 0x100, &[PAIRS, 64]),
            _ => {}
        }
    });
    goroutines(&memory, &program(), &VARIABLES, &layout(), 100_000).unwrap().unwrap()
}

/// Check that labels cost what is done with them, and not only what is read: a text that all sets point to is read once, but told of each.
#[test]
fn a_text_costs_each_set_that_has_it() {
    const COUNT: u64 = 3000;
    let all = of_one_text(COUNT, false);
    let with = all.list.iter().filter(|goroutine| goroutine.labels.iter().count() == 64).count() as u64;
    assert_eq!((all.list.len() as u64, with + all.labels_cut, all.labels_changed), (COUNT, COUNT, 0));
    assert!((COUNT / 10..COUNT / 2).contains(&with), "{with}");
}

/// Check that a set that many goroutines have is looked at once for each batch of them.
#[test]
fn a_set_costs_once_whoever_has_it() {
    let all = of_one_text(3000, true);
    assert_eq!((all.list.len(), all.labels_cut, all.labels_changed), (3000, 0, 0));
    assert!(all.list.iter().all(|goroutine| goroutine.labels.address() == all.list[0].labels.address()));
}

/// A list of so many places, at which nobody lives; how many were looked at.
struct Dead {
    count: u64,
    looked: Cell<u64>,
}

impl Memory for Dead {
    fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        for piece in pieces {
            piece.read = piece.buffer.len();
            if piece.address == 0x300 {
                let words = [0x1_0000, self.count, self.count].map(u64::to_le_bytes);
                piece.buffer.iter_mut().zip(words.as_flattened()).for_each(|(byte, word)| *byte = *word);
            }
            self.looked.set(self.looked.get() + u64::from(piece.read == layout().g.length()));
        }
        Ok(())
    }
}

/// Check that a list of dead goroutines alone is looked through as far as there is work for it, and that the rest counts.
#[test]
fn a_list_of_dead_goroutines_costs_what_a_list_may_cost() {
    let memory = Dead { count: 3_000_000, looked: Cell::new(0) };
    let all = goroutines(&memory, &program(), &VARIABLES, &layout(), 1000).unwrap().unwrap();
    let looked = memory.looked.get();
    assert!((1_000_000..2_000_000).contains(&looked), "{looked}");
    // What was not looked at is not told as what cannot be read.
    assert_eq!((all.list.len(), all.broken), (0, 0), "{all:?}");
    assert!(all.beyond >= 3_000_000 - looked, "{all:?}");
}

/// Check that buckets that lie far apart end the list once they have cost what a capture may, which is counted, and that this is the cost of all readings together,
/// however often it would be read again for the sake of a lock that is never free.
#[test]
fn buckets_far_apart_cost_what_a_capture_may_cost() {
    let memory = Vast::new(|range: &Range<u64>, write: &mut dyn FnMut(u64, &[u64])| {
        write(0x100, &[STACKS, 1]);
        write(0x200, &[1]);
        let at = range.start.next_multiple_of(APART);
        if at >= STACKS {
            write(at, &[0, at + APART, bucket::MEMORY, 0, 512, 1, 0x1010, 1, 0, 512, 0]);
        }
    });
    let variables = Variables { publishing: Some(0x108), ..VARIABLES };
    let heap = heap(&memory, &program(), &variables, &layout(), 1000).unwrap().unwrap();
    assert!(heap.mixed);
    assert_eq!((heap.walk.taken, heap.walk.over_work, heap.walk.broken, heap.walk.foreign), (1000, 1, 0, 0));
    assert!(heap.walk.beyond > 10_000 && !heap.walk.is_whole(), "{:?}", heap.walk);
    assert!(memory.bytes.get() < 1200 << 20, "{}", memory.bytes.get());
}

/// Check that names that cost much are looked up as long as there is work for them, and that whoever asks is told when there is none.
#[test]
fn names_cost_what_a_capture_may_cost() {
    let (work, code) = (Work::for_names(), wide(10 << 20));
    let named = (0..1000).map_while(|_| work.done(&code, |code| code.function(0x1010))).count();
    assert_eq!((named, work.done(&code, |_| ()), code.looked_up()), (615, None, 615 * (10 << 20)));
    let (work, known) = (Work::for_names(), wide(0));
    assert!((0..1_000_000).all(|_| work.done(&known, |code| code.function(0x1010)).is_some()));
}
