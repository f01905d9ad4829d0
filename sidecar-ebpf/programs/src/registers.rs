//! Registers of user space at the moment of a tick, and the period, from the context of the perf event.
//!
//! Source: `struct bpf_perf_event_data` (`include/uapi/linux/bpf_perf_event.h`): registers, then the period; `struct pt_regs` of x86_64,
//! `struct user_pt_regs` of aarch64 (`arch/*/include/uapi/asm/ptrace.h`).

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs};
use profiler_sidecar_ebpf::Setting;

use crate::maps::{Scratch, kernel_half, scratch, setting};

/// Indexes of words.
#[cfg(bpf_target_arch = "x86_64")]
mod at {
    pub(super) const FP: usize = 4; // rbp
    pub(super) const IP: usize = 16; // rip
    pub(super) const MODE: usize = 17; // cs
    pub(super) const SP: usize = 19; // rsp
    pub(super) const PERIOD: usize = 21;
    /// Of the kernel's own: the number of the system call, `orig_ax`.
    pub(super) const CALL: usize = 15;
    /// execve(2) and execveat(2) of programs of 64 bits, of 32 bits, and of x32, but for the bit that marks those (`__X32_SYSCALL_BIT`):
    /// `arch/x86/entry/syscalls/syscall_{64,32}.tbl`.
    pub(super) const EXECS: [u32; 6] = [59, 322, 11, 358, 520, 545];
    /// `__X32_SYSCALL_BIT`.
    pub(super) const NO_NUMBER: u32 = 0x4000_0000;
    /// Privilege level 3 in `cs`.
    pub(super) const fn is_user(mode: u64) -> bool {
        mode & 3 == 3
    }
}

/// Indexes of words.
#[cfg(bpf_target_arch = "aarch64")]
mod at {
    pub(super) const FP: usize = 29;
    pub(super) const LR: usize = 30;
    pub(super) const SP: usize = 31;
    pub(super) const IP: usize = 32;
    pub(super) const MODE: usize = 33; // pstate
    pub(super) const G: usize = 28; // where Go keeps g
    pub(super) const PERIOD: usize = 34;
    /// Of the kernel's own, `struct pt_regs` in `arch/arm64/include/asm/ptrace.h`: `syscallno`, behind `orig_x0`.
    pub(super) const CALL: usize = 35;
    /// execve(2) and execveat(2) of programs of 64 bits (`include/uapi/asm-generic/unistd.h`) and of 32 bits (`arch/arm/tools/syscall.tbl`).
    pub(super) const EXECS: [u32; 4] = [221, 281, 11, 387];
    pub(super) const NO_NUMBER: u32 = 0;
    /// `PSR_MODE_EL0t`.
    pub(super) const fn is_user(mode: u64) -> bool {
        mode & 0xf == 0
    }
}

/// Bytes of the registers.
const ALL: usize = 8 * at::PERIOD;

/// Nanoseconds between two ticks.
#[inline(always)]
pub(crate) fn period(context: *const u64) -> u64 {
    // SAFETY: the field of the context behind the registers.
    unsafe { context.add(at::PERIOD).read_volatile() }
}

/// Whether the program was interrupted, not the kernel.
#[inline(always)]
pub(crate) fn is_user(context: *const u64) -> bool {
    // SAFETY: a register in the context.
    at::is_user(unsafe { context.add(at::MODE).read_volatile() })
}

/// Notes those of the context, where the program was interrupted.
#[inline(always)]
pub(crate) unsafe fn interrupted(context: *const u64, scratch: *mut Scratch) {
    // SAFETY: registers in the context; this processor's scratch.
    unsafe { note(context, scratch) }
}

/// Notes those that the program came into the kernel with; 0 if it did not, as threads of the kernel. Nor do those that the kernel makes in a process for itself
/// (io_uring's, vhost's): they have a copy of their maker's registers, but for an address of 0 (`copy_thread` in `arch/x86/kernel/process.c`). A function of its own, for compilers
/// merge what it does with [`interrupted`], and the verifier wants other instructions for each.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn entered() -> u32 {
    if setting(Setting::Offsets) == 0 {
        return 0;
    }
    let Some(scratch) = scratch() else { return 0 };
    // SAFETY: the current task, and its registers; the table has room for them.
    unsafe {
        let registers = addr_of_mut!((*scratch).work).cast::<u64>();
        let from = bpf_task_pt_regs(bpf_get_current_task_btf());
        if bpf_probe_read_kernel(registers.cast(), ALL as u32, from as *const _) != 0
            || !is_user(registers)
            || registers.add(at::IP).read_volatile() == 0
        {
            return 0;
        }
        note(registers, scratch);
    }
    1
}

/// Whether the current thread, which is given a name, is in execve(2) or execveat(2); it names itself in others, too (prctl(2), write(2) to
/// `/proc/self/comm`). Numbers of the other kinds of program are other calls here, in none of which a thread is named. Without BTF, `true`.
#[inline(always)]
pub(crate) fn is_in_exec() -> bool {
    if setting(Setting::Offsets) == 0 {
        return true;
    }
    // SAFETY: the current task.
    let registers = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    // The lower half of the word, on machines of this byte order.
    kernel_half(registers + 8 * at::CALL as u64).is_some_and(|call| at::EXECS.contains(&(call & !at::NO_NUMBER)))
}

#[inline(always)]
unsafe fn note(from: *const u64, scratch: *mut Scratch) {
    // SAFETY: the caller has registers there, and this processor's scratch.
    unsafe {
        let sample = addr_of_mut!((*scratch).sample);
        (*sample).ip = from.add(at::IP).read_volatile();
        (*sample).sp = from.add(at::SP).read_volatile();
        (*sample).fp = from.add(at::FP).read_volatile();
        #[cfg(bpf_target_arch = "aarch64")]
        {
            (*sample).lr = from.add(at::LR).read_volatile();
            (*scratch).g = from.add(at::G).read_volatile();
        }
    }
}
