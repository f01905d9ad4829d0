//! What differs by architecture, for aarch64: registers of the signal frame, and the one system call.
//!
//! In: the `ucontext_t` that the kernel hands to a signal handler. Out: registers that unwinding starts from; addresses out
//! of code pointers that may be signed. Runs in the signal handler. The twin of `x86_64`.

use std::arch::{asm, naked_asm};
use std::ops::Range;

/// How many registers unwind tables speak of: x0 … x30 and the stack pointer (DWARF for the Arm 64-bit Architecture, "DWARF
/// register names").
pub(crate) const REGISTERS: usize = 32;
/// DWARF numbers of registers. The return address is the one in the link register.
pub(crate) const FRAME_POINTER: u8 = 29;
pub(crate) const STACK_POINTER: u8 = 31;
pub(crate) const RETURN_ADDRESS: u8 = 30;
/// DWARF numbers of the registers that a call preserves: x19 … x29. The link register is not one of them: the call itself
/// changes it.
pub(crate) const PRESERVED: [u8; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];

/// Where the C library's thread descriptor is, in bytes from the thread pointer: below it (variant I of ELF thread-local
/// storage, with glibc and with musl).
pub(crate) const THREAD_DESCRIPTOR: Range<i64> = -4096..0;

/// The registers that unwinding starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// By DWARF number.
    pub(crate) values: [u64; REGISTERS],
}

impl Registers {
    /// These registers: x0 … x30 and the stack pointer.
    pub(crate) fn new(values: [u64; REGISTERS], pc: u64) -> Self {
        Self { pc, sp: values[usize::from(STACK_POINTER)], values }
    }

    /// The registers at the instruction that the signal interrupted.
    pub(crate) fn of_signal_frame(context: &libc::ucontext_t) -> Self {
        let machine = &context.uc_mcontext;
        let value = |number| machine.regs.get(number).copied().unwrap_or(machine.sp);
        Self::new(std::array::from_fn(value), machine.pc)
    }

    /// The registers here, in the function that this becomes a part of; of the others than the preserved ones, nothing.
    #[cfg(feature = "heap")]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let mut values = [0; REGISTERS];
        let pc: u64;
        // SAFETY: writes the preserved registers, the link register and the stack pointer into `values`, each at its DWARF
        //         number; changes nothing else.
        unsafe {
            asm!(
                "stp x19, x20, [{values}, #152]",
                "stp x21, x22, [{values}, #168]",
                "stp x23, x24, [{values}, #184]",
                "stp x25, x26, [{values}, #200]",
                "stp x27, x28, [{values}, #216]",
                "stp x29, x30, [{values}, #232]",
                "mov {pc}, sp",
                "str {pc}, [{values}, #248]",
                "adr {pc}, .",
                values = in(reg) values.as_mut_ptr(),
                pc = out(reg) pc,
                options(nostack, preserves_flags),
            );
        }
        Self::new(values, pc)
    }

    /// Whether the signal interrupted a system call of process `pid` (ourselves), and not the code of the program: the
    /// instruction before the program counter is `svc #0` then, or, where the call is to be made again, the one at it.
    pub(crate) fn in_system_call(&self, pid: u32) -> bool {
        const SVC_0: u32 = 0xd400_0001;
        let mut word = [0_u64; 1];
        let [before, at] = [self.pc.wrapping_sub(4), self.pc].map(|address| {
            let read = crate::unwind::memory::read_own_memory(pid, address & !7, &mut word) == 8;
            let [word] = word;
            read && (if address & 4 == 0 { word as u32 } else { (word >> 32) as u32 }) == SVC_0
        });
        before || at
    }
}

/// The address in a code pointer, which may be signed in libraries that are built with branch protection and on processors
/// that have it.
pub(crate) fn code_address(pointer: u64) -> u64 {
    pointer & address_bits()
}

/// The bits of a code pointer that are not its signature.
///
/// Source: Arm Architecture Reference Manual, XPACLRI: takes the signature out of x30, by the rules of the address space
/// that bit 55 tells (0: the lower half, user space); a hint, so that it does nothing on processors without signatures.
fn address_bits() -> u64 {
    let mut pointer = (1_u64 << 55) - 1;
    // SAFETY: XPACLRI changes x30 and nothing else; written as its hint, for assemblers that do not know the name.
    unsafe { asm!("hint #7", inout("x30") pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The calling thread's pointer: its thread-local variables are above it, the C library's descriptor of the thread below,
/// both at the upper end of the stack that the C library makes for a thread.
///
/// Source: ELF for the Arm 64-bit Architecture, "Thread Local Storage": TPIDR_EL0, variant I.
pub(crate) fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reads a register that the ABI reserves for this.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The stack pointer, which tells calls within each other apart: a variable may lie elsewhere where a sanitizer watches over it.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The word at `address`, which need not be aligned, by an instruction of our own: a stack holds words that the program has not written, or that
/// a sanitizer guards, and the compiler must know nothing of reading them.
///
/// # Safety
/// The eight bytes there must be readable.
#[inline]
pub(crate) unsafe fn load(address: u64) -> u64 {
    let word;
    // SAFETY: a load, from where the caller says that one may be made.
    unsafe {
        asm!("ldr {}, [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly));
    }
    word
}

/// A system call as a bare instruction, for the C library's wrapper would write `errno`: what it returns, an error as a negative number.
///
/// # Safety
/// As the call is, with these arguments.
pub(crate) unsafe fn system_call(number: i64, arguments: [u64; 6]) -> i64 {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let outcome;
    // SAFETY: the caller answers for the call. Only x0 is changed (syscall(2)).
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") first => outcome,
            in("x1") second,
            in("x2") third,
            in("x3") fourth,
            in("x4") fifth,
            in("x5") sixth,
            options(nostack),
        );
    }
    outcome
}

/// Calls `work` with the stack pointer at `top`.
///
/// # Safety
/// `top` must be the upper end of writable memory, aligned to 16 bytes, large enough for `work` and used by nothing else.
pub(crate) unsafe fn call_on_stack<F: FnMut()>(top: *mut libc::c_void, work: &mut F) {
    extern "C" fn call<F: FnMut()>(work: *mut libc::c_void) {
        // SAFETY: the work that was handed on below, which nobody else has meanwhile. A panic in it aborts.
        unsafe { (*work.cast::<F>())() }
    }
    // SAFETY: `top` as the caller promises; `call` gets the work of its own type.
    unsafe { change_stacks((&raw mut *work).cast(), top, call::<F>) };
}

/// Calls `call` with `work` on the stack below `top`. Unwind tables lead back to the caller's stack, by the frame pointer.
///
/// # Safety
/// As for [`call_on_stack`]; `call` takes `work`.
#[unsafe(naked)]
unsafe extern "C" fn change_stacks(
    work: *mut libc::c_void,
    top: *mut libc::c_void,
    call: extern "C" fn(*mut libc::c_void),
) {
    // Procedure Call Standard for the Arm 64-bit Architecture: arguments are in x0, x1 and x2, x29 is preserved by the callee, and the stack pointer is
    // aligned to 16 bytes.
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x1",
        "blr x2",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a signature above the address is taken off, and that addresses stay as they are.
    #[test]
    fn return_addresses_lose_their_signature() {
        let code = return_addresses_lose_their_signature as *const () as u64;
        let mut signed = code;
        // SAFETY: PACIASP signs x30 with sp; a hint, so that it does nothing where there are no signatures.
        unsafe { asm!("hint #25", inout("x30") signed, options(nomem, nostack, preserves_flags)) };
        assert_eq!((code_address(signed), code_address(code)), (code, code));
    }
}
