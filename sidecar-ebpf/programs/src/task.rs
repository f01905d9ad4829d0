//! Whose the current thread is: a process of our pid namespace, of one below, or none of our business.

use core::mem::{MaybeUninit, offset_of};

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_current_task_btf, bpf_get_ns_current_pid_tgid,
    bpf_probe_read_kernel,
};
use profiler_sidecar_ebpf::Setting;

use crate::maps::{Namespace, kernel_half, kernel_word, namespace, setting};

/// `PF_KTHREAD`, `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// `PIDTYPE_TGID`, `include/linux/pid.h`.
const OF_PROCESS: usize = 1;

/// `struct upid`, `include/linux/pid.h`: a number, and the namespace that it is of.
#[repr(C)]
struct Upid {
    number: u32,
    namespace: u64,
}

const _: () = assert!(size_of::<Upid>() == 16 && offset_of!(Upid, namespace) == 8);

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

/// A field of the current `task_struct`. Only with the kernel's offsets.
#[inline(always)]
pub(crate) fn field<T>(of: Setting) -> T {
    // SAFETY: the current task, a field of which is at that offset.
    unsafe { load(bpf_get_current_task_btf().cast_const().cast(), of) }
}

/// A field of a structure of the kernel's that the verifier knows: a load, where a helper would be called for any other address. It reads zeros where there is no
/// structure, for the verifier makes a probing one of it (`BPF_PROBE_MEM`, `convert_ctx_accesses` in kernel/bpf/verifier.c).
#[inline(always)]
unsafe fn load<T>(structure: *const u8, of: Setting) -> T {
    // SAFETY: the caller has the structure that this is an offset in.
    unsafe { structure.add(setting(of) as usize).cast::<T>().read_volatile() }
}

/// The current one.
#[inline(always)]
pub(crate) fn current() -> Thread {
    if setting(Setting::InitialNamespace) != 0 {
        return of_machine();
    }
    match learned() {
        Some(ours) => of_namespace(ours),
        None => by_helper(),
    }
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
    field::<u32>(Setting::TaskFlags) & KERNEL_THREAD != 0
}

/// Our namespace, once a thread of it was seen. While we are in it, no other one has its address.
#[inline(always)]
fn learned() -> Option<Namespace> {
    if setting(Setting::Offsets) == 0 {
        return None;
    }
    let ours = namespace()?;
    // SAFETY: an element of an array. The address is read first, as `learn` writes it last; on processors that keep to no order, a level that is not there yet is 0,
    // where no address is ours: a tick at the start counts as one outside.
    unsafe {
        let address = (&raw const (*ours).address).read_volatile();
        let level = (&raw const (*ours).level).read_volatile();
        (address != 0).then_some(Namespace { level, address })
    }
}

/// By what its task and that of its process say: most ticks of a machine are none of ours, and the helper looks at twice as much.
#[inline(always)]
fn of_namespace(ours: Namespace) -> Thread {
    let pid: *const u8 = field(Setting::TaskThreadPid);
    // SAFETY: what the field names; nothing, at a thread's last instructions (`release_task`): level 0, which is above ours.
    let level = u64::from(unsafe { load::<u32>(pid, Setting::PidLevel) });
    let Some(tid) = number(pid as u64, level, ours) else { return Thread::other(Whose::Outside) };
    if level > ours.level {
        return Thread::other(Whose::Below);
    }
    let signal: *const u8 = field(Setting::TaskSignal);
    // SAFETY: what the field names, for as long as the thread runs, and a pointer in its array.
    let process: *const u8 = unsafe { load(signal.add(OF_PROCESS * size_of::<u64>()), Setting::SignalPids) };
    if process == pid {
        return Thread { whose: Whose::Ours, pid: tid, tid };
    }
    match number(process as u64, level, ours) {
        Some(pid) => Thread { whose: Whose::Ours, pid, tid },
        None => Thread::other(Whose::Outside),
    }
}

/// As the helper says it: before a thread of our namespace has shown where that is, and without the kernel's offsets. It does not tell what is below from what is
/// outside.
#[inline(always)]
fn by_helper() -> Thread {
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    let (device, inode) = (setting(Setting::NamespaceDevice), setting(Setting::NamespaceInode));
    // SAFETY: the helper writes 8 bytes, both fields.
    if unsafe { bpf_get_ns_current_pid_tgid(device, inode, &raw mut ids, 8) } != 0 {
        return Thread::other(Whose::Outside);
    }
    learn();
    Thread { whose: Whose::Ours, pid: ids.tgid, tid: ids.pid }
}

/// Notes where our namespace is, from the first thread of it: the deepest that this one has a number in.
#[inline(always)]
fn learn() {
    if setting(Setting::Offsets) == 0 {
        return;
    }
    if let Some(ours) = namespace()
        && let Some(pid) = kernel_word(address() + setting(Setting::TaskThreadPid))
        && let Some(level) = kernel_half(pid + setting(Setting::PidLevel))
        && let Some(upid) = upid(pid, level.into())
    {
        // SAFETY: an element of an array; the address last, see `learned`. Who writes first or twice writes the same.
        unsafe {
            (&raw mut (*ours).level).write_volatile(level.into());
            (&raw mut (*ours).address).write_volatile(upid.namespace);
        }
    }
}

/// The number that a thread has in our namespace, if it is in it or in one below.
#[inline(always)]
pub(crate) fn number_in_ours(task: u64) -> Option<u32> {
    if setting(Setting::Offsets) == 0 {
        return None;
    }
    let pid = kernel_word(task + setting(Setting::TaskThreadPid))?;
    if setting(Setting::InitialNamespace) != 0 {
        return kernel_half(pid + setting(Setting::PidNumbers));
    }
    number(pid, kernel_half(pid + setting(Setting::PidLevel))?.into(), learned()?)
}

/// The number that a `struct pid` of that level has in our namespace, if it has one.
#[inline(always)]
fn number(pid: u64, level: u64, ours: Namespace) -> Option<u32> {
    if level < ours.level {
        return None;
    }
    let upid = upid(pid, ours.level)?;
    (upid.namespace == ours.address).then_some(upid.number)
}

/// `pid.numbers[level]`. A level is 32 at most (`MAX_PID_NS_LEVEL`); the verifier wants to see a bound.
#[inline(always)]
fn upid(pid: u64, level: u64) -> Option<Upid> {
    let mut upid = MaybeUninit::<Upid>::uninit();
    let at = pid + setting(Setting::PidNumbers) + size_of::<Upid>() as u64 * (level & 63);
    // SAFETY: the helper checks the address, and writes all of it where it returns 0.
    unsafe {
        let read = bpf_probe_read_kernel(upid.as_mut_ptr().cast(), size_of::<Upid>() as u32, at as *const _);
        (read == 0).then(|| upid.assume_init())
    }
}
