//! Whose the current thread is: a process of our pid namespace, of one below, or none of our business.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_ns_current_pid_tgid};
use profiler_sidecar_ebpf::Setting;

use crate::maps::{kernel_half, kernel_word, level, setting};

/// `PF_KTHREAD`, `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Bytes of `struct upid`: a number, its namespace.
const UPID: u64 = 16;

/// Whose a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Below,
    Outside,
}

/// A thread: whose, and its numbers where it is ours.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) whose: Whose,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

impl Thread {
    const fn other(whose: Whose) -> Self {
        Self { whose, pid: 0, tid: 0 }
    }
}

/// Where the current `task_struct` is.
#[inline(always)]
pub(crate) fn address() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_get_current_task() }
}

/// The current one.
#[inline(always)]
pub(crate) fn current() -> Thread {
    if setting(Setting::InitialNamespace) != 0 { of_machine() } else { of_namespace() }
}

#[inline(always)]
fn of_machine() -> Thread {
    // SAFETY: no arguments.
    let both = unsafe { bpf_get_current_pid_tgid() };
    let (pid, tid) = ((both >> 32) as u32, both as u32);
    if pid == 0 {
        return Thread::other(Whose::Outside);
    }
    Thread { whose: Whose::Ours, pid, tid }
}

/// Whether the current thread is one of the kernel's own, all of which are in the initial namespace.
#[inline(always)]
pub(crate) fn is_of_kernel() -> bool {
    if setting(Setting::InitialNamespace) == 0 || setting(Setting::Offsets) == 0 {
        return false;
    }
    kernel_half(address() + setting(Setting::TaskFlags)).unwrap_or(0) & KERNEL_THREAD != 0
}

#[inline(always)]
fn of_namespace() -> Thread {
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    let (device, inode) = (setting(Setting::NamespaceDevice), setting(Setting::NamespaceInode));
    // SAFETY: the helper writes 8 bytes, both fields.
    if unsafe { bpf_get_ns_current_pid_tgid(device, inode, &raw mut ids, 8) } != 0 {
        return Thread::other(elsewhere());
    }
    learn_level();
    Thread { whose: Whose::Ours, pid: ids.tgid, tid: ids.pid }
}

/// Notes how deep our namespace is, from the first thread of ours.
#[inline(always)]
fn learn_level() {
    // SAFETY: an element of an array, written as a whole; who writes it first or twice writes the same.
    unsafe {
        if let Some(known) = level()
            && *known == 0
            && let Some(pid) = thread_pid(address())
            && let Some(level) = kernel_half(pid + setting(Setting::PidLevel))
        {
            *known = u64::from(level) + 1;
        }
    }
}

/// Whether the current thread, which is not of our namespace, is of one below it.
#[inline(always)]
fn elsewhere() -> Whose {
    match number_in_ours(address()) {
        Some(_) => Whose::Below,
        None => Whose::Outside,
    }
}

/// `task_struct.thread_pid`.
#[inline(always)]
fn thread_pid(task: u64) -> Option<u64> {
    if setting(Setting::Offsets) == 0 { None } else { kernel_word(task + setting(Setting::TaskThreadPid)) }
}

/// The number that a thread has in our namespace, if it is in it or in one below.
#[inline(always)]
pub(crate) fn number_in_ours(task: u64) -> Option<u32> {
    // SAFETY: an element of an array.
    let known = unsafe { *level()? };
    let ours = if setting(Setting::InitialNamespace) != 0 { 0 } else { known.checked_sub(1)? };
    let pid = thread_pid(task)?;
    if u64::from(kernel_half(pid + setting(Setting::PidLevel))?) < ours {
        return None;
    }
    let upid = pid + setting(Setting::PidNumbers) + UPID * (ours & 31);
    let namespace = kernel_word(upid + 8)?;
    let is_ours = setting(Setting::InitialNamespace) != 0
        || u64::from(kernel_half(namespace + setting(Setting::NamespaceInum))?) == setting(Setting::NamespaceInode);
    if is_ours { kernel_half(upid) } else { None }
}
