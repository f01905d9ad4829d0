//! Where a thread-local variable of ours is, for aarch64.
//!
//! In: the variable that `tls` defines. Out: the thread pointer, and what the variable's descriptor says. The second is
//! not callable from a signal handler.

use std::arch::asm;

use super::tls::{Place, THREAD};

/// The calling thread's pointer.
///
/// Source: System V ABI for the Arm 64-bit architecture, thread-local storage, variant I: the register TPIDR_EL0.
#[inline]
pub(super) fn thread_pointer() -> *const u8 {
    let pointer;
    // SAFETY: the register holds the thread pointer for as long as the thread lives; reading it has no effect.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, pure, nomem)) };
    pointer
}

/// Asks the descriptor. Linkers know these instructions, in this form and with these registers.
///
/// Source: ELF for the Arm 64-bit architecture, "Relocations for thread-local storage", the descriptor dialect.
#[inline(never)]
pub(super) fn tls_place() -> Place {
    let (descriptor, distance);
    // SAFETY: the sequence that the specification gives. All that a C function may change is declared as changed.
    unsafe {
        asm!(
            "adrp x0, :tlsdesc:{thread}_here",
            "ldr x1, [x0, #:tlsdesc_lo12:{thread}_here]",
            "add x0, x0, :tlsdesc_lo12:{thread}_here",
            "mov x20, x0",
            ".tlsdesccall {thread}_here",
            "blr x1",
            thread = sym THREAD,
            out("x20") descriptor,
            out("x0") distance,
            clobber_abi("C"),
        );
    }
    Place { descriptor, distance }
}
