//! What differs by architecture, for x86_64: registers of the signal frame, and the one system call.
//!
//! In: the `ucontext_t` that the kernel hands to a signal handler. Out: registers that unwinding starts from. Runs in the
//! signal handler.

use std::arch::{asm, naked_asm};
use std::ops::Range;

/// How many registers unwind tables speak of: the general ones and the return address (System V ABI for x86_64, figure 3.36).
pub(crate) const REGISTERS: usize = 17;
/// DWARF numbers of registers.
pub(crate) const FRAME_POINTER: u8 = 6;
pub(crate) const STACK_POINTER: u8 = 7;
pub(crate) const RETURN_ADDRESS: u8 = 16;
/// DWARF numbers of the registers that a call preserves: rbx, rbp, r12 … r15.
pub(crate) const PRESERVED: [u8; 6] = [3, 6, 12, 13, 14, 15];

/// Where the C library's thread descriptor is, in bytes from the thread pointer: at it (variant II of ELF thread-local
/// storage, with glibc and with musl).
pub(crate) const THREAD_DESCRIPTOR: Range<i64> = 0..1024;

/// The registers that unwinding starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// By DWARF number.
    pub(crate) values: [u64; REGISTERS],
}

impl Registers {
    /// These registers, by DWARF number.
    pub(crate) fn new(values: [u64; REGISTERS]) -> Self {
        Self { pc: values[usize::from(RETURN_ADDRESS)], sp: values[usize::from(STACK_POINTER)], values }
    }

    /// The registers at the instruction that the signal interrupted.
    pub(crate) fn of_signal_frame(context: &libc::ucontext_t) -> Self {
        use libc::{
            REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX, REG_RCX,
            REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
        };
        const ORDER: [libc::c_int; REGISTERS] = [
            REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10, REG_R11,
            REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
        ];
        Self::new(ORDER.map(|index| context.uc_mcontext.gregs[index as usize].cast_unsigned()))
    }

    /// The registers here, in the function that this becomes a part of; of the others than the preserved ones, nothing.
    #[cfg(feature = "heap")]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let mut values = [0; REGISTERS];
        // SAFETY: writes the preserved registers, the stack pointer and the address of the last of these instructions into
        //         `values`, each at its DWARF number; changes nothing else.
        unsafe {
            asm!(
                "mov [{values} + 3 * 8], rbx",
                "mov [{values} + 6 * 8], rbp",
                "mov [{values} + 7 * 8], rsp",
                "mov [{values} + 12 * 8], r12",
                "mov [{values} + 13 * 8], r13",
                "mov [{values} + 14 * 8], r14",
                "mov [{values} + 15 * 8], r15",
                "lea {pc}, [rip]",
                "mov [{values} + 16 * 8], {pc}",
                values = in(reg) values.as_mut_ptr(),
                pc = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
        Self::new(values)
    }

    /// Whether the signal interrupted a system call, and not the code of the program.
    ///
    /// Source: Intel, Software Developer's Manual, SYSCALL: rcx gets the address behind the instruction, and Linux hands it
    /// back so; where the call is to be made again, the kernel has moved the program counter back by the two bytes of the
    /// instruction (signal(7), `SA_RESTART`). Processors with FRED may leave rcx alone: there the answer is no.
    pub(crate) fn in_system_call(&self, _pid: u32) -> bool {
        const RCX: usize = 2;
        matches!(self.values[RCX].wrapping_sub(self.pc), 0 | 2)
    }
}

/// The address in a code pointer: the pointer itself.
pub(crate) fn code_address(pointer: u64) -> u64 {
    pointer
}

/// Address of the calling thread's control block, which the C library places at the upper end of the stack it makes for
/// a thread.
///
/// Source: System V ABI for x86_64, thread-local storage, variant II: the word at `%fs:0` holds its own address.
pub(crate) fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: the ABI fixes `%fs:0` to the address of the thread control block for as long as the thread lives; a load.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

/// The stack pointer, which tells calls within each other apart: a variable may lie elsewhere where a sanitizer watches over it.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
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
        asm!("mov {}, qword ptr [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly));
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
    // SAFETY: the caller answers for the call. The instruction clobbers rcx and r11 (syscall(2)).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => outcome,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
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
    // System V ABI for x86_64: arguments are in rdi, rsi and rdx, rbp is preserved by the callee, and the stack pointer is aligned to 16 bytes before a
    // call.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
