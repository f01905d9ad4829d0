//! Unwinding without tables: by frame pointer, and by what the code at hand looks like.
//!
//! In: a frame in code that no unwind tables speak of (assembly, just-in-time code, C built without them, some linkers' PLT
//! stubs). Out: its caller, if what is found there is a return address for certain: the instruction before it is a call, and
//! not one of some other function. So a register that is no frame pointer ends the walk instead of leading it astray. Runs
//! in the signal handler; code is read like foreign stack memory, for it may be unmapped at any time.

use super::arch::{FRAME_POINTER, code};
use super::cursor::Cursor;
use super::memory::StackMemory;
use super::walk::Stepped;

/// Functions are no longer than this.
const LONGEST: u64 = 1 << 16;

/// A return address on the stack.
struct Found {
    return_address: u64,
    /// Start of the function that was called; `None` where the call does not say what it calls.
    function: Option<u64>,
}

/// Moves to the caller.
pub(crate) fn step(cursor: &mut Cursor, memory: &mut StackMemory<'_>) -> Stepped {
    if let Some(registers) = code::interrupted(cursor.pc, cursor.sp, memory) {
        cursor.resume(&registers);
        return Stepped::ToCaller;
    }
    if cursor.is_exact
        && let Some(leaf) = code::leaf(cursor.pc, cursor.sp, memory)
    {
        let Some(found) = returning(cursor.pc, leaf.return_address_at, memory) else { return Stepped::Lost };
        if let Some(place) = leaf.frame_pointer_at {
            cursor.save(FRAME_POINTER, place);
        }
        return cursor.return_to(found.return_address, leaf.return_address_at.wrapping_add(8)).into();
    }
    let pointer = cursor.register(FRAME_POINTER, memory);
    if pointer == Some(0) && !cursor.is_exact {
        return Stepped::AtRoot;
    }
    let on_stack = |pointer: &u64| pointer.is_multiple_of(8) && *pointer >= cursor.sp;
    let framed = pointer.filter(on_stack).and_then(|place| {
        let found = returning(cursor.pc, place.checked_add(8)?, memory)?;
        Some((place, found))
    });
    let frameless = if cursor.is_exact { returning(cursor.pc, cursor.sp, memory) } else { None };
    let distance = |found: Option<&Found>| found.map_or(u64::MAX, |found| found.distance(cursor.pc));
    match (framed, frameless) {
        // Of two the one whose function begins nearer; of equals the frame pointer's.
        (Some((place, framed)), frameless) if distance(Some(&framed)) <= distance(frameless.as_ref()) => {
            cursor.save(FRAME_POINTER, place);
            cursor.return_to(framed.return_address, place.wrapping_add(16)).into()
        }
        (_, Some(found)) => cursor.return_to(found.return_address, cursor.sp.wrapping_add(8)).into(),
        (_, None) => Stepped::Lost,
    }
}

/// Words on the stack among which the return address of a leaf is looked for.
const PUSHED: u64 = 8;

/// The caller of a leaf whose tables led nowhere: by the first word on the stack that is a return address of a call of just
/// this function, which then has pushed what is below.
pub(crate) fn repaired(leaf: &Cursor, memory: &mut StackMemory<'_>) -> Option<Cursor> {
    let found = |pushed: u64| {
        let place = leaf.sp.checked_add(8 * pushed)?;
        let found = returning(leaf.pc, place, memory)?;
        Some((pushed, place, found.return_address, found.function?))
    };
    let (pushed, place, return_address, function) = (0..PUSHED).find_map(found)?;
    let mut caller = leaf.clone();
    match code::pushes(function, pushed as usize, memory) {
        Some(registers) => {
            for (below, register) in (1..=pushed).zip(registers) {
                caller.save(register, place.wrapping_sub(8 * below));
            }
        }
        None => caller.forget(),
    }
    caller.return_to(return_address, place.checked_add(8)?)?;
    Some(caller)
}

impl Found {
    /// How far `pc` is in the function that was called; a large number where that is not known.
    fn distance(&self, pc: u64) -> u64 {
        self.function.map_or(u64::MAX, |function| pc.wrapping_sub(function))
    }
}

/// The return address at `place`, if it is one of the function that holds `pc`.
fn returning(pc: u64, place: u64, memory: &mut StackMemory<'_>) -> Option<Found> {
    let return_address = memory.read(place).ok()?;
    let holds_pc = |function: &u64| pc.checked_sub(*function).is_some_and(|distance| distance < LONGEST);
    let function = match code::call_before(return_address, memory)? {
        code::Call::Unknown => None,
        code::Call::To(target) => {
            let stub = || code::stub_target(target, memory).filter(holds_pc);
            Some(Some(target).filter(holds_pc).or_else(stub)?)
        }
    };
    Some(Found { return_address, function })
}
