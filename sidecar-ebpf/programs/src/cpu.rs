//! The program `cpu`: what ran when the CPU clock ticked, as one record.
//!
//! Runs in the timer's interrupt on each processor, with preemption off, never within itself: the kernel leaves out a tick that comes while another program of a
//! perf event, a probe or a tracepoint is at work on that processor (`bpf_prog_active`, `bpf_overflow_handler` in `kernel/events/core.c`). In: the
//! interrupted registers. Out: a record, or a counter that says why there is none.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_get_smp_processor_id, bpf_get_stack};
use profiler_sidecar_ebpf::{Counter, Flag, KERNEL_FRAMES, Kind, Sample, Setting, TOP, Target, TargetFlag};

use crate::maps::{BODY, Scratch, Wake, count, scratch, send, setting, target};
use crate::task::{self, Thread, Whose};
use crate::{context, go, program, registers, walk};

/// Bytes of the kernel's frames.
const KERNEL_BYTES: usize = 8 * KERNEL_FRAMES;

#[unsafe(no_mangle)]
#[unsafe(link_section = "perf_event")]
extern "C" fn cpu(context: *mut c_void) -> u32 {
    let thread = task::current();
    match thread.whose {
        Whose::Outside => count(Counter::Outside),
        Whose::Below => count(Counter::ForeignPidns),
        Whose::Ours => ours(context, thread),
    }
    0
}

#[inline(always)]
fn ours(context: *mut c_void, thread: Thread) {
    let target = target(thread.pid);
    // What the user side told of is a program; asked only of others, for it takes a look into the task.
    if target.is_none() && task::is_of_kernel() {
        return count(Counter::Outside);
    }
    // SAFETY: a value of the map, which the verifier knows.
    if target.is_some_and(|target| unsafe { (*target).flags } & TargetFlag::Excluded as u32 != 0) {
        return count(Counter::Excluded);
    }
    let Some(scratch) = scratch() else { return };
    count(Counter::Seen);
    // SAFETY: this processor's scratch, which nobody else has: see above.
    unsafe { sample(context, scratch, thread, target) };
}

#[inline(always)]
unsafe fn sample(context: *mut c_void, scratch: *mut Scratch, thread: Thread, target: Option<*const Target>) {
    // SAFETY: this processor's scratch, ours until this is over.
    unsafe {
        begin(context.cast(), scratch, thread);
        let is_user = registers::is_user(context.cast());
        let number = program::of(thread.pid, is_user);
        (*scratch).sample.program = number;
        let has_user = if is_user {
            registers::interrupted(context.cast(), scratch);
            true
        } else {
            !program::is_between(number) && registers::entered() != 0
        };
        if has_user {
            if let Some(target) = target {
                of_thread(scratch, &*target);
            }
            walk::walk_user();
        }
        if !is_user {
            kernel(context, scratch);
        }
        if has_user {
            if addr_of!((*scratch).left).read_volatile() != 0 {
                walk::walk_saved();
            }
            if let Some(target) = target {
                known(scratch, &*target);
            }
        }
        // Code of Go is told without its thread, whose name takes a tenth of the time of all else.
        if addr_of!((*scratch).is_on_goroutine).read_volatile() == 0 {
            // Before Linux 6.2 the helper leaves what is behind the name as it was: zeroed above.
            bpf_get_current_comm(addr_of_mut!((*scratch).sample.comm).cast(), 16);
        }
        end(scratch);
    }
}

/// The head of the record, and an empty rest.
#[inline(always)]
unsafe fn begin(context: *const u64, scratch: *mut Scratch, thread: Thread) {
    // SAFETY: as in `sample`. All words are written one by one, for `memset` is a call that the verifier does not know.
    unsafe {
        let sample = addr_of_mut!((*scratch).sample);
        let words = sample.cast::<u64>();
        (*sample).head.kind = Kind::Sample as u32;
        (*sample).head.pid = thread.pid;
        (*sample).head.tid = thread.tid;
        (*sample).head.cpu = bpf_get_smp_processor_id();
        (*sample).period_nanos = registers::period(context);
        // From `comm` on.
        let mut word = offset_of!(Sample, comm) / 8;
        while word < size_of::<Sample>() / 8 {
            words.add(word).write_volatile(0);
            word += 1;
        }
        addr_of_mut!((*scratch).length).write_volatile(TOP as u32);
        addr_of_mut!((*scratch).left).write_volatile(0);
        addr_of_mut!((*scratch).labels).write_volatile(0);
        addr_of_mut!((*scratch).is_on_goroutine).write_volatile(0);
        addr_of_mut!((*scratch).stack_bytes).write_volatile(0);
        addr_of_mut!((*scratch).departed).write_volatile(0);
    }
}

/// The kernel's stack.
#[inline(always)]
unsafe fn kernel(context: *mut c_void, scratch: *mut Scratch) {
    // SAFETY: as in `sample`; there is room for the longest stack, as is checked.
    unsafe {
        (*scratch).sample.flags |= Flag::Kernel as u32;
        if setting(Setting::KernelStacks) == 0 {
            return;
        }
        let length = addr_of!((*scratch).length).read_volatile() as usize;
        if length > BODY - KERNEL_BYTES {
            return;
        }
        let at = addr_of_mut!((*scratch).body).cast::<u8>().add(length);
        let written = bpf_get_stack(context, at.cast(), KERNEL_BYTES as u32, 0);
        if written > 0 {
            (*scratch).sample.kernel = (written / 8) as u16;
            (*scratch).length = length as u32 + written as u32;
        }
    }
}

/// What only threads of processes that the user side knows have: a pointer to what is theirs, a goroutine.
#[inline(always)]
unsafe fn of_thread(scratch: *mut Scratch, target: &Target) {
    // SAFETY: as in `sample`; the task is the current one.
    unsafe {
        if setting(Setting::Offsets) != 0 {
            (*scratch).thread_pointer = task::field(Setting::ThreadPointer);
        }
        if target.flags & TargetFlag::Go as u32 != 0 {
            go::read(scratch, &target.go);
        }
    }
}

/// What stands behind the frames: labels, a thread context.
#[inline(always)]
unsafe fn known(scratch: *mut Scratch, target: &Target) {
    // SAFETY: as in `sample`; the task is the current one.
    unsafe {
        if target.flags & TargetFlag::Go as u32 != 0 {
            go::read_labels(scratch, &target.go);
        }
        if target.flags & TargetFlag::Context as u32 != 0 {
            context::read_context((*scratch).thread_pointer.wrapping_add(target.context_offset as u64));
        }
    }
}

/// Into the ring. Not one sample wakes the reader: it would run right after the tick, where no tick ever hits it, and all others would
/// seem to use more time than they do.
#[inline(always)]
unsafe fn end(scratch: *mut Scratch) {
    // SAFETY: as in `sample`; the body follows the fixed part.
    unsafe {
        let length = addr_of!((*scratch).length).read_volatile() as usize;
        if length > BODY {
            return;
        }
        let sent = send(addr_of!((*scratch).sample).cast(), size_of::<Sample>() + length, Wake::WhenFull);
        count(if sent { Counter::Sent } else { Counter::RingFull });
    }
}
