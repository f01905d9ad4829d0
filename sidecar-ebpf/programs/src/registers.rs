//! Registers of user space at the moment of a tick, and the period, from the context of the perf event.
//!
//! Source: `struct bpf_perf_event_data` (`include/uapi/linux/bpf_perf_event.h`): registers, then the period; `struct pt_regs` of x86_64,
//! `struct user_pt_regs` of aarch64 (`arch/*/include/uapi/asm/ptrace.h`).

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use profiler_sidecar_ebpf::Setting;

use crate::maps::setting;

/// Indexes of words.
#[cfg(bpf_target_arch = "x86_64")]
mod at {
    pub(super) const FP: usize = 4; // rbp
    pub(super) const IP: usize = 16; // rip
    pub(super) const MODE: usize = 17; // cs
    pub(super) const SP: usize = 19; // rsp
    pub(super) const G: usize = 1; // r14 holds g in Go's own calls; not used
    pub(super) const PERIOD: usize = 21;
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
    /// `PSR_MODE_EL0t`.
    pub(super) const fn is_user(mode: u64) -> bool {
        mode & 0xf == 0
    }
}

/// Registers of user space.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    pub(crate) lr: u64,
    pub(crate) g: u64,
}

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

/// Those of the context, where the program was interrupted.
#[inline(always)]
pub(crate) fn interrupted(context: *const u64) -> Registers {
    // SAFETY: registers in the context.
    unsafe { read(context) }
}

/// Those that the program came into the kernel with, where it did.
#[inline(always)]
pub(crate) fn entered() -> Option<Registers> {
    if setting(Setting::Offsets) == 0 {
        return None;
    }
    // SAFETY: the current task, and its registers, of a type that the verifier knows.
    unsafe {
        let registers = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u64;
        is_user(registers).then(|| read(registers))
    }
}

#[inline(always)]
unsafe fn read(from: *const u64) -> Registers {
    // SAFETY: the caller has registers there.
    unsafe {
        Registers {
            ip: from.add(at::IP).read_volatile(),
            sp: from.add(at::SP).read_volatile(),
            fp: from.add(at::FP).read_volatile(),
            #[cfg(bpf_target_arch = "aarch64")]
            lr: from.add(at::LR).read_volatile(),
            #[cfg(not(bpf_target_arch = "aarch64"))]
            lr: 0,
            g: from.add(at::G).read_volatile(),
        }
    }
}
