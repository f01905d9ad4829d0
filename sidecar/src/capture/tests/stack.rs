//! Stacks of arm64, where a call leaves its return address in a register.

use super::{Forged, Program, program};
use crate::capture::stack::{Bytes, End, Start, walk};
use crate::elf::Machine;

/// A program of arm64: its first function has no frame, the fourth one is entered by a signal's handler, all others have frames of 32 bytes.
fn arm() -> Program {
    let frame = |entry| if entry == 0x1000 { 0 } else { 32 };
    Program { machine: Machine::Aarch64, frame, injected: 0x1300, ..program() }
}

/// The stack from `pc` on at 0x8000, with what the link register has; of each frame whether it is one that called.
fn stack(memory: &Forged, pc: u64, lr: u64) -> (Vec<(u64, bool)>, End) {
    let start = Start { pc, sp: 0x8000, lr, is_call: false };
    let (stack, end) = walk(&arm(), start, &mut Bytes::new(memory, 0x8000..0x9000, 0, &[])).unwrap();
    (stack.iter().map(|pc| (pc.address, pc.is_return)).collect(), end)
}

/// Check that the caller of a function without a frame is in the register, and that of one with a frame at its bottom.
#[test]
fn a_return_address_is_in_the_register_or_at_the_bottom_of_the_frame() {
    let memory = Forged::default().with(0x8000, &[0x1f20, 0, 0, 0, 0x1f30]);
    assert_eq!(stack(&memory, 0x1010, 0x1110), (vec![(0x1010, true), (0x1110, true), (0x1f20, true)], End::Root));
    assert_eq!(stack(&memory, 0x1110, 0x1210), (vec![(0x1110, true), (0x1f20, true)], End::Root));
    // Nothing says who called it.
    assert_eq!(stack(&memory, 0x1010, 0), (vec![(0x1010, true)], End::Lost));
}

/// Check that below what a signal's handler entered stands the register of the function that it interrupted, which called nobody.
#[test]
fn an_interrupted_function_has_the_register_that_it_had() {
    // The frame of what was entered; the register, and what fills 16 bytes; the frame of the caller.
    let memory = Forged::default().with(0x8000, &[0x1010, 0, 0, 0, 0x1110, 0, 0x1f20]);
    let (frames, end) = stack(&memory, 0x1310, 0);
    assert_eq!((frames, end), (vec![(0x1310, true), (0x1010, false), (0x1110, true), (0x1f20, true)], End::Root));
}
