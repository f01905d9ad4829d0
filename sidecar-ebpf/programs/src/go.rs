//! The goroutine that runs: `g` by the thread pointer or its register, then its number, its function, its labels, and where it left its stack.
//!
//! Source: `runtime/runtime2.go`; offsets by version from the user side. On the thread's own stack `g` is `g0`, so it goes by `g.m.curg`. There are the scheduler, and C,
//! which need not keep frame pointers; where the goroutine left its own stack for it the runtime notes in `g.sched` (`runtime/asm_*.s`, `gosave_systemstack_switch`,
//! `mcall`, `morestack`).

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_sidecar_ebpf::{Counter, Flag, G_BYTES, Go, LabelForm, Setting};

use crate::labels;
use crate::maps::{Scratch, WORK, count, setting, user_word};

/// `m.g0`, `g.stack.lo` and `g.stack.hi`, in all versions.
const M_G0: u64 = 0;
const G_STACK_LO: u32 = 0;
const G_STACK_HI: u32 = 8;
/// How far below the end of its stack a goroutine is that the runtime keeps for a thread of C's which has called Go and is back in C (`oneNewExtraM` in runtime/proc.go). Ordinary
/// ones begin a word further down, on arm64 two (`newproc1`, `gostartcall`).
const EXTRA: u64 = 4 * 8;
/// How far below the stack pointer a frame pointer may be: that of arm64 is a word below (`cmd/internal/obj/arm64/obj7.go`).
const FRAME_BELOW: u64 = if cfg!(bpf_target_arch = "aarch64") { 8 } else { 0 };
/// From `gobuf.sp` to `pc`, and from `lr` to `bp`, in all versions.
const SCHED_PC: u32 = 8;
const SCHED_LR: u32 = 8;

/// Reads the goroutine into the scratch; before the walk, which is to know where it left its stack.
#[inline(always)]
pub(crate) unsafe fn read(scratch: *mut Scratch, go: &Go) {
    // SAFETY: this processor's scratch.
    unsafe {
        let g = if go.in_register != 0 {
            Some((*scratch).g)
        } else if setting(Setting::Offsets) == 0 {
            None
        } else if (*scratch).thread_pointer == 0 {
            // Right behind an exec.
            Some(0)
        } else {
            user_word((*scratch).thread_pointer.wrapping_add(go.tls_offset as u64))
        };
        (*scratch).sample.flags |= Flag::Known as u32;
        match g.map(|g| running(scratch, g, go)) {
            // A thread that Go has not seen, or one that runs none.
            Some(Some(false)) => {}
            Some(Some(true)) => describe(scratch, go),
            _ => count(Counter::NoGoroutine),
        }
    }
}

/// Reads the goroutine of the thread that `g` is of into the table; `false` if it runs none. What is no `g` hardly has a number and the stack that the thread is on, or
/// names an `m` whose goroutine names that `m`.
#[inline(always)]
unsafe fn running(scratch: *mut Scratch, g: u64, go: &Go) -> Option<bool> {
    if g == 0 {
        return Some(false);
    }
    // SAFETY: this processor's scratch.
    unsafe {
        let m = load(scratch, g, go)?;
        // Those of the runtime, for its own stack and for signals, have no number.
        if field(scratch, go.g_goid) != 0 && is_on_stack(scratch, (*scratch).sample.sp) {
            addr_of_mut!((*scratch).is_on_goroutine).write_volatile(1);
            note_stack(scratch);
            return Some(true);
        }
        let current = user_word(m + u64::from(go.m_curg))?;
        if current != 0 && current != g {
            if load(scratch, current, go)? != m {
                return None;
            }
            // Not on the stack of a signal: what the goroutine left then is no call.
            if user_word(m + M_G0) == Some(g) {
                if field(scratch, go.g_sched_sp) == field(scratch, G_STACK_HI).wrapping_sub(EXTRA) {
                    return Some(false);
                }
                left(scratch, go);
            }
        }
        if current != 0 {
            note_stack(scratch);
        }
        Some(current != 0)
    }
}

/// Notes where the stack of the goroutine in the table is.
#[inline(always)]
unsafe fn note_stack(scratch: *mut Scratch) {
    // SAFETY: this processor's scratch.
    unsafe {
        let (low, high) = (field(scratch, G_STACK_LO), field(scratch, G_STACK_HI));
        addr_of_mut!((*scratch).stack).write_volatile(low);
        addr_of_mut!((*scratch).stack_bytes).write_volatile(high.wrapping_sub(low));
    }
}

/// Reads a `g` into the table, all that is wanted of it at once; its `m`.
#[inline(always)]
unsafe fn load(scratch: *mut Scratch, g: u64, go: &Go) -> Option<u64> {
    // SAFETY: this processor's scratch, whose table has room for it.
    unsafe {
        let bytes = if go.g_bytes > G_BYTES as u32 { G_BYTES as u32 } else { go.g_bytes };
        let read = bpf_probe_read_user(addr_of_mut!((*scratch).work).cast(), bytes, g as *const _);
        (read == 0).then(|| field(scratch, go.g_m))
    }
}

/// Whether that is within the stack of the `g` in the table.
#[inline(always)]
unsafe fn is_on_stack(scratch: *mut Scratch, at: u64) -> bool {
    // SAFETY: this processor's scratch.
    unsafe { field(scratch, G_STACK_LO) <= at && at < field(scratch, G_STACK_HI) }
}

/// A word of the `g` in the table.
#[inline(always)]
unsafe fn field(scratch: *mut Scratch, offset: u32) -> u64 {
    // SAFETY: this processor's scratch; the index is within the table.
    unsafe { addr_of_mut!((*scratch).work).cast::<u64>().add(offset as usize / 8 % (G_BYTES / 8)).read_volatile() }
}

/// Notes where the goroutine in the table left its stack: a frame of that, above its stack pointer, or none where it has only begun. What was noted before a call of Go by C
/// that is over is below.
#[inline(always)]
unsafe fn left(scratch: *mut Scratch, go: &Go) {
    // SAFETY: this processor's scratch.
    unsafe {
        let (sp, bp) = (field(scratch, go.g_sched_sp), field(scratch, go.g_sched_bp));
        let is_frame = bp == 0 || (sp.wrapping_sub(FRAME_BELOW) <= bp && bp < field(scratch, G_STACK_HI));
        if is_on_stack(scratch, sp) && is_frame {
            (*scratch).left = field(scratch, go.g_sched_sp + SCHED_PC);
            (*scratch).left_sp = sp;
            (*scratch).left_fp = bp;
            (*scratch).left_lr = field(scratch, go.g_sched_bp - SCHED_LR);
        }
    }
}

#[inline(always)]
unsafe fn describe(scratch: *mut Scratch, go: &Go) {
    // SAFETY: this processor's scratch.
    unsafe {
        (*scratch).sample.goroutine = field(scratch, go.g_goid);
        (*scratch).sample.start_pc = field(scratch, go.g_startpc);
        (*scratch).sample.flags |= Flag::Goroutine as u32;
        (*scratch).labels = if go.labels == LabelForm::None as u32 { 0 } else { field(scratch, go.g_labels) };
    }
}

/// Reads the goroutine's labels, behind all frames.
#[inline(always)]
pub(crate) unsafe fn read_labels(scratch: *mut Scratch, go: &Go) {
    // SAFETY: this processor's scratch.
    if unsafe { (*scratch).labels } == 0 {
        return;
    }
    if go.labels == LabelForm::Slice as u32 {
        labels::read_slice();
    } else {
        labels::read_map();
    }
}

const _: () = assert!(G_BYTES <= WORK);
