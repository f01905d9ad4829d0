//! Which program a process runs, as a number that no other one has: so that what was read of one is never taken for true of another.
//!
//! In: exec, at two moments of it; samples. Out: the number in each sample, and in the map `PROGRAMS`, where the user side looks before and
//! after it reads the mappings of a process: equal numbers say that all of it was this program's. Numbers are times, so none comes twice. An
//! odd one says that the process is becoming another program.
//!
//! Source: `begin_new_exec` in `fs/exec.c`. It takes the old memory away, then names the thread (tracepoint `task_rename`), then lets those in who
//! wait to look at the memory (`exec_update_lock`, which `mm_access`, and so the opening of `/proc/PID/maps`, takes). The registers are the new
//! program's at `sched_process_exec` (`exec_binprm`).

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;

/// By pid. The one that was not asked for longest makes room for another, which costs a look at its mappings. All of its memory is had at
/// once, see `TARGETS`.
#[map]
static PROGRAMS: LruHashMap<u32, u64> = LruHashMap::with_max_entries(8192, 0);

/// `BPF_ANY`.
const ANY: u64 = 0;
/// `BPF_NOEXIST`.
const NEW: u64 = 1;

/// The number of the program that a process runs; 0 where it cannot be had. `is_user`: a thread of it was interrupted in its own code, so it
/// is not in an exec, whatever was taken for one.
#[inline(always)]
pub(crate) fn of(pid: u32, is_user: bool) -> u64 {
    match known(pid) {
        0 => set(pid, now(), NEW),
        number if is_user && is_between(number) => set(pid, now(), ANY),
        number => return number,
    }
    known(pid)
}

/// Whether a process is becoming another program: its registers are those of the old one, its memory that of the new one.
#[inline(always)]
pub(crate) fn is_between(number: u64) -> bool {
    number & 1 != 0
}

/// The process has the memory of another program from now on.
#[inline(always)]
pub(crate) fn leaves(pid: u32) {
    set(pid, now() | 1, ANY);
}

/// The process runs another program from now on; its number.
#[inline(always)]
pub(crate) fn begins(pid: u32) -> u64 {
    let number = now();
    set(pid, number, ANY);
    number
}

/// A number that is used again says nothing of the process that had it before.
#[inline(always)]
pub(crate) fn forget(pid: u32) {
    let _known = PROGRAMS.remove(pid);
}

#[inline(always)]
fn known(pid: u32) -> u64 {
    // SAFETY: an element of the map, which can become another one's while it is read: then it is one of these, and fits no reading.
    PROGRAMS.get_ptr(pid).map_or(0, |number| unsafe { number.read_volatile() })
}

#[inline(always)]
fn set(pid: u32, number: u64, flags: u64) {
    let _full = PROGRAMS.insert(pid, number, flags);
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() & !1 }
}
