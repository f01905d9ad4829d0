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

/// A leaf has pushed less words than this where its frame is not made yet.
const PUSHED: u64 = 8;

/// A return address on the stack.
#[derive(Clone, Copy)]
struct Found {
    place: u64,
    address: u64,
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
        && by_leaf(cursor, &leaf, memory).is_some()
    {
        return Stepped::ToCaller;
    }
    let pointer = cursor.register(FRAME_POINTER, memory);
    if pointer == Some(0) && !cursor.is_exact {
        return Stepped::AtRoot;
    }
    let on_stack = |pointer: &u64| pointer.is_multiple_of(8) && *pointer >= cursor.sp;
    let framed = pointer.filter(on_stack).and_then(|pointer| returning(cursor.pc, pointer.checked_add(8)?, memory));
    let unframed = if cursor.is_exact { pushed(cursor, |_| true, memory) } else { None };
    match (framed, unframed) {
        (Some(framed), unframed) if !unframed.is_some_and(|other| is_better(&other, &framed, cursor.pc, memory)) => {
            cursor.save(FRAME_POINTER, framed.place.wrapping_sub(8));
            cursor.return_to(framed.address, framed.place.wrapping_add(8)).into()
        }
        (_, Some(unframed)) => by_pushes(cursor, &unframed, memory).into(),
        (_, None) if cursor.is_exact => {
            let found = returning(cursor.pc, cursor.sp, memory);
            found.and_then(|found| cursor.return_to(found.address, found.place.wrapping_add(8))).into()
        }
        (_, None) => Stepped::Lost,
    }
}

/// The caller of a leaf of this function whose tables led to `wrong`, which is no return address: by the first word on the
/// stack that is one of a call of just this function, which then has pushed what is below.
pub(crate) fn repaired(leaf: &Cursor, wrong: u64, function: u64, memory: &mut StackMemory<'_>) -> Option<Cursor> {
    if code::call_before(wrong, memory).is_some() {
        return None;
    }
    let found = pushed(leaf, |called| called == function, memory)?;
    let mut caller = leaf.clone();
    by_pushes(&mut caller, &found, memory)?;
    Some(caller)
}

/// By an instruction that shows where the return address is, if what is there is one. Which function was called does not matter: others end in a jump
/// to this one.
fn by_leaf(cursor: &mut Cursor, leaf: &code::Leaf, memory: &mut StackMemory<'_>) -> Option<()> {
    let address = memory.read(leaf.return_address_at).ok()?;
    code::call_before(address, memory)?;
    cursor.return_to(address, leaf.return_address_at.wrapping_add(8))?;
    if let Some(place) = leaf.frame_pointer_at {
        cursor.save(FRAME_POINTER, place);
    }
    Some(())
}

/// By what the function pushes first.
fn by_pushes(cursor: &mut Cursor, found: &Found, memory: &mut StackMemory<'_>) -> Option<()> {
    let count = found.place.wrapping_sub(cursor.sp) / 8;
    match code::pushes(found.function?, count as usize, memory) {
        Some(registers) => {
            for (below, register) in (1..=count).zip(registers) {
                cursor.save(register, found.place.wrapping_sub(8 * below));
            }
        }
        // The frame pointer, pushed and not changed yet.
        None if count == 1 && cursor.register(FRAME_POINTER, memory) == memory.read(cursor.sp).ok() => {}
        None => cursor.forget(),
    }
    cursor.return_to(found.address, found.place.checked_add(8)?)
}

/// Of the topmost words on the stack, the return address of a call of a function that holds the program counter.
fn pushed(cursor: &Cursor, is_function: impl Fn(u64) -> bool, memory: &mut StackMemory<'_>) -> Option<Found> {
    let places = (0..PUSHED).filter_map(|word| cursor.sp.checked_add(8 * word));
    let mut found = places.filter_map(|place| returning(cursor.pc, place, memory));
    found.find(|found| found.function.is_some_and(&is_function))
}

/// Whether the frame is not made yet, or no more: then the frame pointer is the caller's.
fn is_better(unframed: &Found, framed: &Found, pc: u64, memory: &mut StackMemory<'_>) -> bool {
    let Some(function) = unframed.function.filter(|_| unframed.place != framed.place) else { return false };
    // The return address of the function that begins nearest before `pc` is the one that belongs to it.
    framed.function.is_some_and(|other| other < function)
        || (framed.function.is_none_or(|other| other == function) && !code::has_frame(function, pc, memory))
}

/// The return address at `place`, if it is one of the function that holds `pc`.
fn returning(pc: u64, place: u64, memory: &mut StackMemory<'_>) -> Option<Found> {
    let address = memory.read(place).ok()?;
    let holds_pc = |function: &u64| pc.checked_sub(*function).is_some_and(|distance| distance < LONGEST);
    let function = match code::call_before(address, memory)? {
        code::Call::Unknown => None,
        code::Call::To(target) => {
            let stub = || code::stub_target(target, memory).filter(holds_pc);
            Some(Some(target).filter(holds_pc).or_else(stub)?)
        }
    };
    Some(Found { place, address, function })
}
