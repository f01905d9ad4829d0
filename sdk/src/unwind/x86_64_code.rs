//! What x86_64 code without unwind tables says of itself: calls, prologues, epilogues, PLT stubs, returns from signals.
//!
//! In: bytes of code, read without a fault. Out: where the return address is, where that can be told for certain from the few
//! instructions at hand. Runs in the signal handler.
//!
//! Sources: Intel SDM volume 2 (encodings); System V ABI for x86_64, section 5.2 (PLT); Linux, `struct rt_sigframe`.

use super::memory::StackMemory;
use super::x86_64::{REGISTERS, Registers};

/// What a call calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// The function here; or a stub, which jumps to another one.
    To(u64),
    /// Whatever a register or a word in memory said at that time.
    Unknown,
}

/// A frame that is being made or has been given up.
pub(crate) struct Leaf {
    pub(crate) return_address_at: u64,
    /// Where the caller's frame pointer is, if not in its register.
    pub(crate) frame_pointer_at: Option<u64>,
}

/// The `N` bytes from `address`; 0 for those on a page behind that cannot be read, where code may end.
fn bytes<const N: usize>(address: u64, memory: &mut StackMemory<'_>) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes[0] = byte(address, memory)?;
    for (place, distance) in bytes.iter_mut().zip(0..).skip(1) {
        match address.checked_add(distance).and_then(|address| byte(address, memory)) {
            Some(byte) => *place = byte,
            None => break,
        }
    }
    Some(bytes)
}

fn byte(address: u64, memory: &mut StackMemory<'_>) -> Option<u8> {
    let word = memory.read(address & !7).ok()?;
    Some(word.to_le_bytes()[(address & 7) as usize])
}

/// The `N` bytes before `end`; 0 for those on a page before that cannot be read, where code may begin.
fn bytes_before<const N: usize>(end: u64, memory: &mut StackMemory<'_>) -> [u8; N] {
    // Forwards first: memory is fetched from an address on.
    if let Some(all) = end.checked_sub(N as u64).and_then(|start| bytes(start, memory)) {
        return all;
    }
    let mut before = [0; N];
    for (place, distance) in before.iter_mut().rev().zip(1..) {
        match end.checked_sub(distance).and_then(|address| byte(address, memory)) {
            Some(byte) => *place = byte,
            None => break,
        }
    }
    before
}

/// The call that returns to `return_address`, if there is one before it.
pub(crate) fn call_before(return_address: u64, memory: &mut StackMemory<'_>) -> Option<Call> {
    let before: [u8; 7] = bytes_before(return_address, memory);
    if let [.., 0xe8, a, b, c, d] = before {
        let target = return_address.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
        return Some(Call::To(target));
    }
    // `call` by a word at a fixed place, such as the linker fills in.
    if let [_, 0xff, 0x15, a, b, c, d] = before {
        let place = return_address.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
        return Some(memory.read(place).map_or(Call::Unknown, Call::To));
    }
    // `call` by register or memory: FF /2, its length by ModRM and SIB byte.
    let is_call = (2..=7).any(|length| {
        let Some([0xff, modrm, rest @ ..]) = before.get(7 - length..) else { return false };
        let length_of_rest = match (modrm >> 6, modrm & 7) {
            (3, _) => 0,
            (0, 5) => 4,
            (0, 4) if rest.first().is_some_and(|sib| sib & 7 == 5) => 5,
            (displacement, base) => [0, 1, 4][usize::from(displacement)] + usize::from(base == 4),
        };
        modrm >> 3 & 7 == 2 && rest.len() == length_of_rest
    });
    is_call.then_some(Call::Unknown)
}

/// Where a stub jumps to, by the word that it reads; nothing, if there is no stub.
pub(crate) fn stub_target(stub: u64, memory: &mut StackMemory<'_>) -> Option<u64> {
    let code: [u8; 11] = bytes(stub, memory)?;
    let prefix = [&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2][..], &[0xf3, 0x0f, 0x1e, 0xfa], &[0xf2], &[]];
    let length = prefix.iter().find(|prefix| code.starts_with(prefix))?.len();
    let [0xff, 0x25, a, b, c, d] = *code.get(length..length + 6)?.first_chunk()? else { return None };
    let next = stub.wrapping_add(length as u64 + 6);
    memory.read(next.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))).ok()
}

/// DWARF numbers of what a function pushes first, if those are `count` registers at least.
pub(crate) fn pushes(function: u64, count: usize, memory: &mut StackMemory<'_>) -> Option<[u8; 8]> {
    /// DWARF numbers in the order of the encoding: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi.
    const ORDER: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    let code: [u8; 20] = bytes(function, memory)?;
    let mut code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(&code);
    let mut registers = [0; 8];
    for register in registers.get_mut(..count)? {
        (*register, code) = match code {
            [push @ 0x50..=0x57, rest @ ..] => (ORDER[usize::from(push & 7)], rest),
            [0x41, push @ 0x50..=0x57, rest @ ..] => (8 + (push & 7), rest),
            _ => return None,
        };
    }
    Some(registers)
}

/// Whether a function has a frame at `pc`, as far as a look at the bytes before can tell: `mov rbp, rsp` stands there, and no
/// `pop rbp` or `leave` behind it.
pub(crate) fn has_frame(function: u64, pc: u64, memory: &mut StackMemory<'_>) -> bool {
    const PROLOGUE: usize = 64;
    let length = pc.saturating_sub(function);
    let code: [u8; PROLOGUE] = bytes_before(pc, memory);
    let code = &code[PROLOGUE - length.min(PROLOGUE as u64) as usize..];
    let made = code.windows(3).rposition(|code| matches!(code, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec]));
    let given_up = code.iter().rposition(|byte| matches!(byte, 0x5d | 0xc9));
    match (made, given_up) {
        (Some(made), Some(given_up)) => given_up < made,
        (None, None) => length > PROLOGUE as u64,
        (made, _) => made.is_some(),
    }
}

/// Where the return address is at an instruction that shows it.
pub(crate) fn leaf(pc: u64, sp: u64, memory: &mut StackMemory<'_>) -> Option<Leaf> {
    let next: [u8; 8] = bytes(pc, memory)?;
    let last: [u8; 6] = bytes_before(pc, memory);
    let (words, frame_pointer_at) = match (last, next) {
        // `mov rbp, rsp` after `push rbp`
        ([.., 0x55], [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..]) => (1, Some(sp)),
        // The PLT's first entry: `push` the module; `jmp` to the resolver. The index was pushed by the stub.
        (_, [0xff, 0x35, ..]) => (1, None),
        ([0xff, 0x35, ..], [0xff, 0x25, ..] | [0xf2, 0xff, 0x25, ..]) => (2, None),
        // A stub: `jmp` by the table; `push` an index; `jmp` to the first entry.
        ([.., 0x68, _, _, _, _], [0xe9, ..] | [0xf2, 0xe9, ..]) if last[1] == 0x68 => (1, None),
        ([0xff, 0x25, ..] | [_, _, 0xf3, 0x0f, 0x1e, 0xfa], [0x68, ..]) => (0, None),
        (_, [0xff, 0x25, ..] | [0xf2, 0xff, 0x25, ..]) => (0, None),
        // `push rbp`, `endbr64`, `ret`: the frame is not there yet, or no more.
        (_, [0x55, ..] | [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0xc2 | 0xc3, ..] | [0xf2 | 0xf3, 0xc3, ..]) => (0, None),
        _ => return None,
    };
    Some(Leaf { return_address_at: sp.checked_add(8 * words)?, frame_pointer_at })
}

/// The registers of the code that a signal interrupted, if `pc` is in the instructions by which its handler returns:
/// `mov eax, 15` (or `rax`); `syscall`. Some C libraries have no unwind tables for them.
pub(crate) fn interrupted(pc: u64, sp: u64, memory: &mut StackMemory<'_>) -> Option<Registers> {
    const TRAMPOLINES: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5], &[0xb8, 15, 0, 0, 0, 0x0f, 5]];
    let is_trampoline = TRAMPOLINES.iter().any(|code| {
        let starts = [pc, pc.wrapping_sub(code.len() as u64 - 2)];
        let mut is_code = |start| (bytes::<9>(start, memory)).is_some_and(|bytes| bytes.starts_with(code));
        starts.into_iter().any(&mut is_code)
    });
    if !is_trampoline {
        return None;
    }
    // `struct ucontext` stands at the stack pointer; its registers behind flags, link and stack.
    const REGISTERS_OFFSET: u64 = std::mem::offset_of!(libc::ucontext_t, uc_mcontext) as u64;
    /// DWARF numbers in the order of `struct sigcontext`: r8 … r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
    const ORDER: [usize; REGISTERS] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
    let mut values = [0; REGISTERS];
    for (place, number) in (0_u64..).zip(ORDER) {
        values[number] = memory.read(sp.checked_add(REGISTERS_OFFSET + 8 * place)?).ok()?;
    }
    Some(Registers::new(values))
}
