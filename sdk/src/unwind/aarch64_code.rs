//! Unwinding without tables, for aarch64: by link register and frame pointer, and by what the code at hand looks like.
//!
//! In: a frame in code that no unwind tables speak of (assembly, just-in-time code, C built without them, PLT stubs). Out: its
//! caller, if what is found there is a return address for certain: the instruction before it is a call, and not one of some
//! other function. Runs in the signal handler; code is read like foreign stack memory, for it may be unmapped at any time.
//! The twin of `x86_64_code` and `frame_pointer`: here a call leaves its return address in a register.
//!
//! Sources: Arm Architecture Reference Manual (encodings); Procedure Call Standard for the Arm 64-bit Architecture (frame
//! records); ELF for the Arm 64-bit Architecture, "Procedure Linkage Table"; Linux, `struct rt_sigframe`.

use super::aarch64::{FRAME_POINTER, REGISTERS, RETURN_ADDRESS, Registers, code_address};
use super::cursor::Cursor;
use super::memory::StackMemory;
use super::walk::Stepped;

/// Functions are no longer than this.
const LONGEST: u64 = 1 << 16;

/// A return address.
#[derive(Clone, Copy)]
struct Found {
    address: u64,
    /// Start of the function that was called; `None` where the call does not say what it calls.
    function: Option<u64>,
}

/// Moves to the caller.
pub(crate) fn step(cursor: &mut Cursor, memory: &mut StackMemory<'_>) -> Stepped {
    if let Some(registers) = interrupted(cursor.pc, cursor.sp, memory) {
        cursor.resume(&registers);
        return Stepped::ToCaller;
    }
    let pointer = cursor.register(FRAME_POINTER, memory);
    if pointer == Some(0) && !cursor.is_exact {
        return Stepped::AtRoot;
    }
    let record = pointer.filter(|pointer| pointer.is_multiple_of(8) && *pointer >= cursor.sp);
    let framed = record.and_then(|record| {
        let address = memory.read(record.checked_add(8)?).ok()?;
        Some((record, returning(cursor.pc, address, memory)?))
    });
    let linked = linked(cursor, memory);
    match (framed, linked) {
        (Some((record, framed)), linked)
            if !linked.is_some_and(|linked| is_better(linked, framed, cursor.pc, memory)) =>
        {
            cursor.save(FRAME_POINTER, record);
            cursor.return_to(framed.address, record.wrapping_add(16)).into()
        }
        (_, Some(linked)) => by_link(cursor, linked, memory).into(),
        (_, None) => Stepped::Lost,
    }
}

/// The caller of a leaf of this function whose tables led to `wrong`, which is no return address: by the link register, if
/// it returns from a call of just this function.
pub(crate) fn repaired(leaf: &Cursor, wrong: u64, function: u64, memory: &mut StackMemory<'_>) -> Option<Cursor> {
    let before = instruction(wrong.checked_sub(4)?, memory);
    if before.is_some_and(|word| is_call_by_register(word) || is_call(word)) {
        return None;
    }
    let found = linked(leaf, memory).filter(|found| found.function == Some(function))?;
    let mut caller = leaf.clone();
    by_link(&mut caller, found, memory)?;
    Some(caller)
}

/// The return address in the link register, which is there in a leaf only.
fn linked(cursor: &Cursor, memory: &mut StackMemory<'_>) -> Option<Found> {
    let address = cursor.is_exact.then(|| cursor.register(RETURN_ADDRESS, memory))??;
    returning(cursor.pc, address, memory)
}

/// By the link register. The PLT's first entry alone has pushed something: that register and another one.
fn by_link(cursor: &mut Cursor, found: Found, memory: &mut StackMemory<'_>) -> Option<()> {
    /// `stp x16, x30, [sp, #-16]!`
    const PUSH: u32 = 0xa9bf_7bf0;
    let before = (1..=4).filter_map(|index| instruction(cursor.pc.checked_sub(4 * index)?, memory));
    let pushed = if before.into_iter().any(|word| word == PUSH) { 16 } else { 0 };
    cursor.return_to(found.address, cursor.sp.checked_add(pushed)?)
}

/// Whether the frame is not made yet, or no more: then the frame pointer is the caller's.
fn is_better(linked: Found, framed: Found, pc: u64, memory: &mut StackMemory<'_>) -> bool {
    match (linked.function, framed.function) {
        // The return address of the function that begins nearest before `pc` is the one that belongs to it.
        (Some(linked), Some(framed)) if linked != framed => linked > framed,
        _ => !has_frame(pc, memory),
    }
}

/// Whether a function has a frame at `pc`, as far as a look at the instructions before can tell: `mov x29, sp` (or `add`)
/// stands there, and no `ldp x29, x30` or `ret` behind it.
fn has_frame(pc: u64, memory: &mut StackMemory<'_>) -> bool {
    for index in 1..=64 {
        match pc.checked_sub(4 * index).and_then(|place| instruction(place, memory)) {
            Some(word) if word & 0xffc0_03ff == 0x9100_03fd => return true,
            Some(word) if word & 0xfe40_7fff == 0xa840_7bfd || word == 0xd65f_03c0 => return false,
            Some(_) => {}
            None => return false,
        }
    }
    true
}

/// What `pointer` says, if it is a return address of the function that holds `pc`.
fn returning(pc: u64, pointer: u64, memory: &mut StackMemory<'_>) -> Option<Found> {
    let address = code_address(pointer);
    let holds_pc = |function: &u64| pc.checked_sub(*function).is_some_and(|distance| distance < LONGEST);
    let place = address.checked_sub(4)?;
    let function = match instruction(place, memory)? {
        word if is_call_by_register(word) => None,
        word if is_call(word) => {
            let target = place.wrapping_add_signed(signed(word, 26) * 4);
            let in_plt = |target: &u64| target.abs_diff(pc) < LONGEST && stub_target(*target, memory).is_some();
            let is_stub = Some(target).filter(in_plt).is_some();
            let stub = stub_target(target, memory).filter(holds_pc);
            Some(Some(target).filter(|target| holds_pc(target) || is_stub).or(stub)?)
        }
        _ => return None,
    };
    Some(Found { address, function })
}

/// `bl`
fn is_call(word: u32) -> bool {
    word >> 26 == 0b10_0101
}

/// `blr`, also with authentication: a call of whatever the register said at that time.
fn is_call_by_register(word: u32) -> bool {
    word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800
}

/// Where a stub jumps to, by the word that it reads; nothing, if there is no stub: `adrp x16, page`; `ldr x17, [x16, offset]`.
fn stub_target(stub: u64, memory: &mut StackMemory<'_>) -> Option<u64> {
    /// `bti c`
    const LANDING: u32 = 0xd503_245f;
    let stub = if instruction(stub, memory)? == LANDING { stub.checked_add(4)? } else { stub };
    let (page, load) = (instruction(stub, memory)?, instruction(stub.checked_add(4)?, memory)?);
    if page & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let pages = signed(page >> 5, 19) << 2 | i64::from(page >> 29 & 3);
    let table = (stub & !0xfff).wrapping_add_signed(pages << 12).wrapping_add(u64::from(load >> 10 & 0xfff) * 8);
    memory.read(table).ok()
}

/// The lowest `bits` of a word as a signed number.
fn signed(word: u32, bits: u32) -> i64 {
    i64::from((word << (32 - bits)).cast_signed() >> (32 - bits))
}

/// The instruction at an address.
fn instruction(address: u64, memory: &mut StackMemory<'_>) -> Option<u32> {
    let word = memory.read(address & !7).ok()?;
    match address & 7 {
        0 => Some(word as u32),
        4 => Some((word >> 32) as u32),
        _ => None,
    }
}

/// The registers of the code that a signal interrupted, if `pc` is in the instructions by which its handler returns:
/// `mov x8, #139`; `svc #0`.
pub(crate) fn interrupted(pc: u64, sp: u64, memory: &mut StackMemory<'_>) -> Option<Registers> {
    const TRAMPOLINE: [u32; 2] = [0xd280_1168, 0xd400_0001];
    let mut starts_at =
        |start: u64| Some([instruction(start, memory)?, instruction(start.checked_add(4)?, memory)?] == TRAMPOLINE);
    if starts_at(pc) != Some(true) && starts_at(pc.wrapping_sub(4)) != Some(true) {
        return None;
    }
    // At the stack pointer `struct siginfo`, then `struct ucontext`; its registers behind the address of a fault.
    const REGISTERS_OFFSET: u64 = (size_of::<libc::siginfo_t>()
        + std::mem::offset_of!(libc::ucontext_t, uc_mcontext)
        + std::mem::offset_of!(libc::mcontext_t, regs)) as u64;
    let place = sp.checked_add(REGISTERS_OFFSET)?;
    let mut read = |index: u64| memory.read(place.checked_add(8 * index)?).ok();
    let mut values = [0; REGISTERS];
    for (index, value) in (0..).zip(&mut values) {
        *value = read(index)?;
    }
    Some(Registers::new(values, read(REGISTERS as u64)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::memory::Window;

    /// Code at the start of a page.
    #[repr(align(4096))]
    struct Page {
        code: [u32; 8],
    }

    /// Calls `see` with the place of these instructions.
    fn at<R>(code: [u32; 8], see: impl FnOnce(u64, &mut StackMemory<'_>) -> R) -> R {
        let page = Page { code };
        let start = page.code.as_ptr() as u64;
        let mut window = Window::new();
        // SAFETY: the range is that of `page`, which outlives the reader.
        let mut memory = unsafe { StackMemory::new(start..start + 32, &mut window, std::process::id()) };
        see(start, &mut memory)
    }

    /// Check that a return address is taken for one only behind a call, and only of the function at hand.
    #[test]
    fn return_addresses_follow_calls() {
        const NOP: u32 = 0xd503_201f;
        // `bl +8`, `nop`, `ret`, `nop`, `blr x9`
        let code = [0x9400_0002, NOP, 0xd65f_03c0, NOP, 0xd63f_0120, NOP, NOP, NOP];
        at(code, |start, memory| {
            let called = returning(start + 8, start + 4, memory).unwrap();
            assert_eq!((called.address, called.function), (start + 4, Some(start + 8)));
            assert!(returning(start + 4, start + 4, memory).is_none());
            assert!(returning(start + 8, start + 8, memory).is_none());
            assert_eq!(returning(start, start + 20, memory).unwrap().function, None);
        });
    }

    /// Check that a PLT stub is known by its instructions, with and without a landing pad, and where it leads.
    #[test]
    fn stubs_lead_to_their_functions() {
        // `bti c`, `adrp x16, 0`, `ldr x17, [x16, #16]`, `br x17`; the table's word.
        let code = [0xd503_245f, 0x9000_0010, 0xf940_0a11, 0xd61f_0220, 0x1234_5678, 1, 0, 0];
        at(code, |start, memory| {
            let target = Some(0x0000_0001_1234_5678);
            assert_eq!((stub_target(start, memory), stub_target(start + 4, memory)), (target, target));
            assert_eq!(stub_target(start + 8, memory), None);
        });
    }
}
