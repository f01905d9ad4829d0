//! More than may be captured: bounds of a capture in goroutines and in bytes.

use super::{Forged, VARIABLES, goroutine, layout, program};
use crate::capture::Memory;
use crate::capture::goroutines::goroutines;
use crate::go::layouts::status;
use crate::target::{Fault, Piece};

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

/// Check that dead goroutines, which keep their places in the list for ever, take none of those that live.
#[test]
fn those_that_live_are_found_behind_any_number_of_dead_ones() {
    let addresses: Vec<u64> = (0..200).map(|number| 0x10000 + 0x1000 * number).collect();
    let mut memory = Forged::default().with(0x300, &[0x5000, 200, 256]).with(0x5000, &addresses);
    for (number, address) in addresses.iter().enumerate() {
        let state = match number {
            0..97 => status::DEAD,
            97..195 => status::DEAD_EXTRA,
            _ => status::RUNNING,
        };
        memory = memory.with(*address, &goroutine(number as u64, state, (0x80000, 0x80100), (0x1010, 0x80040)));
    }
    for (most, beyond) in [(3, 2), (5, 0), (100, 0)] {
        let all = goroutines(&memory, &program(), &VARIABLES, &layout(), most).unwrap().unwrap();
        let ids: Vec<u64> = all.list.iter().map(|goroutine| goroutine.id).collect();
        let living: Vec<u64> = (195..200).take(most).collect();
        assert_eq!((ids, all.beyond, all.broken), (living, beyond, 0));
    }
}

/// Check that deep stacks of many goroutines do not make a capture of any size: equal ones are one, and what is beyond the bound is counted.
#[test]
fn a_capture_is_bounded_in_bytes() {
    let different = Many { count: 2200, is_same: false };
    let all = goroutines(&different, &program(), &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    let with_stack = all.list.iter().filter(|goroutine| !goroutine.stack.is_empty());
    let bytes: usize = with_stack.clone().map(|goroutine| size_of_val(&*goroutine.stack)).sum();
    assert_eq!((all.list.len(), all.broken, all.changed), (2200, 0, 0));
    assert_eq!(with_stack.count() as u64 + all.over_bytes, 2200);
    assert!(all.over_bytes > 0 && bytes > 30 << 20 && bytes <= 32 << 20, "{bytes} {}", all.over_bytes);

    let same = Many { count: 200, is_same: true };
    let all = goroutines(&same, &program(), &VARIABLES, &layout(), 100_000).unwrap().unwrap();
    let stack = &all.list[0].stack;
    assert_eq!((all.over_bytes, stack.len()), (0, Many::FRAMES as usize + 1));
    assert!(all.list.iter().all(|goroutine| std::sync::Arc::ptr_eq(&goroutine.stack, stack)));
}
