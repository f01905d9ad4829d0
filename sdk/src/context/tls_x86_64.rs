//! Where a thread-local variable of ours is, for x86_64.
//!
//! In: the variable that `tls` defines. Out: the thread pointer, and what the variable's descriptor says. The second is
//! not callable from a signal handler.

use std::arch::asm;

use super::tls::{Place, THREAD};

/// The calling thread's pointer.
///
/// Source: System V ABI for x86_64, thread-local storage, variant II: the word at `%fs:0` holds its own address.
#[inline]
pub(super) fn thread_pointer() -> *const u8 {
    let pointer;
    // SAFETY: the ABI fixes `%fs:0` to the address of the thread control block for as long as the thread lives; a load.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, pure, readonly)) };
    pointer
}

/// Asks the descriptor. Linkers know these two instructions, in this form and with these registers.
///
/// Source: Oliva, "Thread-Local Storage Descriptors for IA32 and AMD64/EM64T".
#[inline(never)]
pub(super) fn tls_place() -> Place {
    let (descriptor, distance);
    // SAFETY: the sequence that the specification gives. The callee keeps all registers but rax, yet older C libraries
    //         did not keep vector registers where it allocates: all that a C function may change is declared as changed.
    unsafe {
        asm!(
            "leaq {thread}_here@tlsdesc(%rip), %rax",
            "movq %rax, %r12",
            "call *{thread}_here@tlscall(%rax)",
            thread = sym THREAD,
            out("r12") descriptor,
            out("rax") distance,
            clobber_abi("C"),
            options(att_syntax),
        );
    }
    Place { descriptor, distance }
}
