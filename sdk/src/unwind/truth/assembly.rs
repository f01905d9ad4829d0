//! Functions in assembly: the forms of code and of unwind tables that compilers make rarely.
//!
//! In: nothing. Out: functions to call. All but those that say so have right call frame information.

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.truth,\"ax\",@progbits",
    // A leaf without a frame, which uses the red zone.
    ".globl truth_leaf; .hidden truth_leaf",
    "truth_leaf:",
    ".cfi_startproc",
    "mov qword ptr [rsp - 8], rdi",
    "lea rax, [rdi + 1]",
    "add rax, qword ptr [rsp - 8]",
    "ret",
    ".cfi_endproc",
    // Ends in a jump to another function, behind an epilogue.
    ".globl truth_tail; .hidden truth_tail",
    "truth_tail:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rbx, -16",
    "mov rbx, rdi",
    "call truth_leaf",
    "lea rdi, [rax + rbx]",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "jmp truth_leaf",
    ".cfi_endproc",
    // An early return: remember and restore.
    ".globl truth_early; .hidden truth_early",
    "truth_early:",
    ".cfi_startproc",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset r12, -16",
    "sub rsp, 64",
    ".cfi_adjust_cfa_offset 64",
    "mov r12, rdi",
    "test rdi, 1",
    "jz 2f",
    ".cfi_remember_state",
    "add rsp, 64",
    ".cfi_adjust_cfa_offset -64",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "ret",
    "2:",
    ".cfi_restore_state",
    "call truth_leaf",
    "add rsp, 64",
    ".cfi_def_cfa_offset 16",
    "pop r12",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    // A realigned stack, as GCC makes it: the frame is found by r10, then by an expression (DW_OP_breg6 -8; DW_OP_deref).
    ".globl truth_realigned; .hidden truth_realigned",
    "truth_realigned:",
    ".cfi_startproc",
    "lea r10, [rsp + 8]",
    ".cfi_def_cfa r10, 0",
    "and rsp, -64",
    "push qword ptr [r10 - 8]",
    "push rbp",
    "mov rbp, rsp",
    ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00",
    "push r10",
    ".cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06",
    "sub rsp, 104",
    "call truth_leaf",
    "mov r10, qword ptr [rbp - 8]",
    ".cfi_def_cfa r10, 0",
    "leave",
    ".cfi_restore rbp",
    "lea rsp, [r10 - 8]",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    // The frame is found by rbx, which callees save and restore, each in its own way.
    ".globl truth_by_rbx; .hidden truth_by_rbx",
    "truth_by_rbx:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rbx, -16",
    "mov rbx, rsp",
    ".cfi_def_cfa_register rbx",
    "and rsp, -32",
    "sub rsp, 32",
    "call truth_tail",
    "mov rdi, rax",
    "call truth_clobbers",
    "mov rsp, rbx",
    ".cfi_def_cfa_register rsp",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    // Keeps rbx and rbp in other places: in a register, and not below its frame.
    ".globl truth_clobbers; .hidden truth_clobbers",
    "truth_clobbers:",
    ".cfi_startproc",
    "mov rax, rbx",
    ".cfi_register rbx, rax",
    "xor ebx, ebx",
    "sub rsp, 24",
    ".cfi_adjust_cfa_offset 24",
    "mov qword ptr [rsp + 8], rbp",
    ".cfi_offset rbp, -24",
    "mov rbp, -1",
    "nop",
    "mov rbp, qword ptr [rsp + 8]",
    ".cfi_restore rbp",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "mov rbx, rax",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    // A large frame, whose size is told in several bytes.
    ".globl truth_large; .hidden truth_large",
    "truth_large:",
    ".cfi_startproc",
    "sub rsp, 0x8238",
    ".cfi_adjust_cfa_offset 0x8238",
    "call truth_leaf",
    "add rsp, 0x8238",
    ".cfi_adjust_cfa_offset -0x8238",
    "ret",
    ".cfi_endproc",
    // Changes to the stack in rsi, as segmented stacks and coroutines do: the frame is found by the frame pointer.
    ".globl truth_on_stack; .hidden truth_on_stack",
    "truth_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rsi",
    "call rdi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    // Reads its argument in its first instruction, where a signal can catch it.
    ".globl truth_first; .hidden truth_first",
    "truth_first:",
    ".cfi_startproc",
    "mov rax, qword ptr [rdi]",
    "ret",
    ".cfi_endproc",
    // Without call frame information, but with a frame pointer; and leaves without either.
    ".globl truth_framed; .hidden truth_framed",
    "truth_framed:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 32",
    "mov qword ptr [rbp - 8], rdi",
    "call truth_bare",
    "mov rdi, rax",
    "lea rax, truth_indirect[rip]",
    "call rax",
    "add rsp, 32",
    "pop rbp",
    "ret",
    ".globl truth_indirect; .hidden truth_indirect",
    "truth_indirect:",
    "endbr64",
    "push rbp",
    "mov rbp, rsp",
    "call truth_bare",
    "mov rdi, rax",
    "call truth_pushes",
    "sub rsp, 16",
    "mov qword ptr [rsp], rax",
    "call truth_leaf",
    "leave",
    "ret",
    ".globl truth_bare; .hidden truth_bare",
    "truth_bare:",
    "lea rax, [rdi + 2]",
    "inc rax",
    "ret",
    // A leaf that pushes the frame pointer, as any other register, amid what else it pushes.
    ".globl truth_pushes; .hidden truth_pushes",
    "truth_pushes:",
    "push r15",
    "push r14",
    "push r12",
    "push rbp",
    "push rbx",
    "lea rax, [rdi + 3]",
    "pop rbx",
    "pop rbp",
    "pop r12",
    "pop r14",
    "pop r15",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn truth_leaf(number: u64) -> u64;
    fn truth_tail(number: u64) -> u64;
    fn truth_early(number: u64) -> u64;
    fn truth_realigned(number: u64) -> u64;
    fn truth_by_rbx(number: u64) -> u64;
    fn truth_clobbers(number: u64) -> u64;
    fn truth_large(number: u64) -> u64;
    fn truth_framed(number: u64) -> u64;
    fn truth_indirect(number: u64) -> u64;
    fn truth_first(number: *const u64) -> u64;
    fn truth_on_stack(work: extern "C" fn(), top: *mut libc::c_void);
}

/// Every function with tables.
pub(super) const WITH_TABLES: [unsafe extern "C" fn(u64) -> u64; 7] =
    [truth_leaf, truth_tail, truth_early, truth_realigned, truth_by_rbx, truth_clobbers, truth_large];

/// Every function without tables that keeps a frame pointer.
pub(super) const WITH_FRAME_POINTER: [unsafe extern "C" fn(u64) -> u64; 2] = [truth_framed, truth_indirect];

/// Reads `number` in its first instruction.
pub(super) fn read_first(number: *const u64) -> u64 {
    // SAFETY: a function of this signature; what it reads is the caller's business.
    unsafe { truth_first(number) }
}

/// Runs `work` with the stack pointer at `top`.
pub(super) fn run_on_stack(work: extern "C" fn(), top: *mut libc::c_void) {
    // SAFETY: the caller brings a stack.
    unsafe { truth_on_stack(work, top) }
}
