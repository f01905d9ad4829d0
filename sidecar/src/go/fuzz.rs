//! What must hold for any bytes taken for a program: the entry point of the fuzz target and of the smoke test. Not public interface.
//!
//! In: bytes from a fuzzer. Out: how much was read of them; a broken property is a failed assertion, which is why nothing else may call
//! this. Everything that asks a file is asked, at addresses all over what the file says is its text.

use std::sync::Arc;

use super::{Call, Program};
use crate::elf;

/// Addresses that are asked for.
const ADDRESSES: u64 = 64;
/// Most frames of an address: the runtime's own bound of inlined calls is far below.
const FRAMES: usize = 128;

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// It is no ELF file, or one that cannot be read.
    Nothing,
    /// It is an ELF file.
    Elf,
    /// It is a program of Go.
    Program,
    /// So many frames of it have names.
    Named(u64),
}

/// Any bytes.
#[must_use]
pub fn program(bytes: Vec<u8>) -> Read {
    let Ok(file) = elf::File::of_bytes(bytes) else { return Read::Nothing };
    let file = Arc::new(file);
    elf::fuzz::asked(&file);
    let _described = super::debug_info::variables(&file, &["runtime.allgs", "runtime.mbuckets"]);
    let Ok(Some(program)) = Program::open(file) else { return Read::Elf };
    let found = program.find_all(&["runtime.goexit", "main.main", "runtime.allgadd"]);
    let text = program.text();
    assert!(text.start < text.end, "a text without an address: {text:?}");
    let step = ((text.end - text.start) / ADDRESSES).max(1);
    let spread = (0..ADDRESSES).filter_map(|number| text.start.checked_add(number.checked_mul(step)?));
    let named = spread.chain(found.into_iter().flatten()).map(|pc| address(&program, pc)).sum();
    if named > 0 { Read::Named(named) } else { Read::Program }
}

/// The frames with a name at `pc`.
fn address(program: &Program, pc: u64) -> u64 {
    let interrupted = program.frames(pc, Call::Interrupted);
    assert!(interrupted.len() <= FRAMES, "{} frames at {pc:#x}", interrupted.len());
    assert_eq!(interrupted, program.frames(pc, Call::Interrupted), "at {pc:#x}, asked again");
    let after = pc.checked_add(1).map(|pc| program.frames(pc, Call::Return));
    assert!(after.is_none_or(|after| after == interrupted), "the call before {pc:#x} + 1");
    let _depth = program.stack_depth(pc);
    if let Some(function) = program.function(pc) {
        assert!((function.entry..function.end).contains(&pc), "{function:?} does not hold {pc:#x}");
    }
    interrupted.iter().filter(|frame| !frame.function.is_empty()).count() as u64
}
