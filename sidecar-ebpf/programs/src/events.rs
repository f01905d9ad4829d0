//! The programs `exec`, `exit` and `fork`: what happens to processes, as small records, so that short ones are not missed; and `rename`, which
//! sees an exec when it cannot be looked at yet.
//!
//! Run in the thread that it happens to (of `fork`, the parent). Source: `include/trace/events/sched.h`, arguments of the raw tracepoints.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use core::ptr::addr_of;
use profiler_sidecar_ebpf::{Counter, Event, Exec, Head, Kind, Setting, Started};

use crate::maps::{Wake, begins_anew, begins_as, count, ends, kernel_half, kernel_word, send, setting};
use crate::task::{self, Thread, Whose};
use crate::{executable, program, registers};

/// `task_rename(task, comm)`: in an exec, and where a thread is given a name, which is none of this.
#[raw_tracepoint]
fn rename(context: RawTracePointContext) -> i32 {
    let thread = task::current();
    // Who becomes another program is the only thread of its process by then.
    if thread.whose == Whose::Ours
        && thread.pid == thread.tid
        && argument(&context, 0) == task::address()
        && registers::is_in_exec()
    {
        program::leaves(thread.pid);
    }
    0
}

/// `sched_process_exec(task, old_pid, bprm)`.
#[raw_tracepoint]
fn exec(context: RawTracePointContext) -> i32 {
    let thread = task::current();
    if thread.whose != Whose::Ours {
        return 0;
    }
    let program = program::begins(thread.pid);
    let executable = executable::of(argument(&context, 2)).unwrap_or_default();
    match executable::known(&executable) {
        Some(go) => begins_as(thread.pid, go),
        None => begins_anew(thread.pid),
    }
    let exec = Exec { head: head(Kind::Exec, thread), started: Started { program, executable } };
    // Until the reader has looked at what begins, its samples lack what it is to be told of.
    tell(addr_of!(exec).cast(), size_of::<Exec>(), Wake::Now);
    0
}

/// `sched_process_exit(task)`: of each thread; of the last one the process ends.
#[raw_tracepoint]
fn exit(context: RawTracePointContext) -> i32 {
    let thread = task::current();
    if thread.whose == Whose::Ours && is_last(argument(&context, 0), thread) {
        ends(thread.pid);
        happened(Kind::Exit, thread, 0);
    }
    0
}

/// `sched_process_fork(parent, child)`: of threads, too, which are none of this.
#[raw_tracepoint]
fn fork(context: RawTracePointContext) -> i32 {
    let (parent, child) = (argument(&context, 0), argument(&context, 1));
    let tgid = |task: u64| kernel_half(task + setting(Setting::TaskTgid));
    if setting(Setting::Offsets) != 0
        && tgid(parent) != tgid(child)
        && let Some(number) = task::number_in_ours(child)
    {
        program::forget(number);
        begins_anew(number);
        let parent = task::current();
        // Who comes from outside (`kubectl exec`) has a parent without a number here, 0. What happens below is looked at in rounds.
        if parent.whose != Whose::Below {
            happened(Kind::Fork, parent, number);
        }
    }
    0
}

#[inline(always)]
fn argument(context: &RawTracePointContext, index: usize) -> u64 {
    // SAFETY: the arguments are words, of which each of these tracepoints has more than the highest index that it is asked for.
    unsafe { context.as_ptr().cast::<u64>().add(index).read_volatile() }
}

/// Whether no thread of the process is left: `signal_struct.live` is 0 then (`do_exit` in `kernel/exit.c`). Without BTF, the leader's end.
#[inline(always)]
fn is_last(task: u64, thread: Thread) -> bool {
    if setting(Setting::Offsets) == 0 {
        return thread.pid == thread.tid;
    }
    let signal = kernel_word(task + setting(Setting::TaskSignal));
    signal.and_then(|signal| kernel_half(signal + setting(Setting::SignalLive))) == Some(0)
}

#[inline(always)]
fn happened(kind: Kind, thread: Thread, child: u32) {
    if task::is_of_kernel() {
        return;
    }
    let event = Event { head: head(kind, thread), child, padding: 0 };
    tell(addr_of!(event).cast(), size_of::<Event>(), Wake::Soon);
}

#[inline(always)]
fn head(kind: Kind, thread: Thread) -> Head {
    // SAFETY: no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    Head { kind: kind as u32, pid: thread.pid, tid: thread.tid, cpu }
}

#[inline(always)]
fn tell(record: *const u8, length: usize, wake: Wake) {
    let sent = send(record, length, wake);
    count(if sent { Counter::Events } else { Counter::EventsLost });
}
