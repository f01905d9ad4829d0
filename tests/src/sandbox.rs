//! Filters of system calls (seccomp(2)) for the calling thread and for those that it makes.
//!
//! In: the numbers of calls, and what becomes of them: fail, end the process, be trapped. Out: the filter in force; and, for
//! calls that are trapped, how many were.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::Result;

/// Calls that were trapped but those counted below, and the number of the first of them.
static TRAPPED: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicI32 = AtomicI32::new(-1);
static READS: AtomicU64 = AtomicU64::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// How many calls of `process_vm_readv` were trapped.
#[must_use]
pub fn trapped_reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// How many calls of `rt_sigprocmask` were trapped that change nothing, and only ask whether an address can be read.
#[must_use]
pub fn trapped_looks() -> u64 {
    LOOKS.load(Ordering::Relaxed)
}

/// How many other calls were trapped, and the number of the first of them.
#[must_use]
pub fn trapped_others() -> (u64, i32) {
    (TRAPPED.load(Ordering::Relaxed), FIRST.load(Ordering::Relaxed))
}

/// Traps every system call of the calling thread but those `allowed`, from now on and for good: each is counted and fails.
///
/// # Errors
/// When the kernel takes no filter.
pub fn trap_all_but(allowed: &[i64]) -> Result<()> {
    // SAFETY: sigaction(2): the structure is valid for the call; the handler has SA_SIGINFO's signature and only counts.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error().into());
    }
    install(allowed, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_TRAP)
}

/// Lets every call in `calls` fail with EPERM, on the calling thread and on those that it makes.
///
/// # Errors
/// When the kernel takes no filter.
pub fn refuse(calls: &[i64]) -> Result<()> {
    install(calls, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, libc::SECCOMP_RET_ALLOW)
}

/// Ends the process at any call in `calls`, made by the calling thread or by one that it makes.
///
/// # Errors
/// When the kernel takes no filter.
pub fn forbid(calls: &[i64]) -> Result<()> {
    install(calls, libc::SECCOMP_RET_KILL_PROCESS, libc::SECCOMP_RET_ALLOW)
}

/// The part of `siginfo_t` that tells of a trapped call.
///
/// Source: Linux, include/uapi/asm-generic/siginfo.h, `__sifields._sigsys`, on 64-bit machines.
#[repr(C)]
struct TrapInfo {
    signo: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    address: usize,
    call: i32,
}

extern "C" fn on_trap(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: a handler with SA_SIGINFO gets a valid siginfo_t, of which this is the beginning, and a valid ucontext_t, which is its own.
    let (call, context) = unsafe { ((*info.cast::<TrapInfo>()).call, &mut *context.cast::<libc::ucontext_t>()) };
    let first = first_argument(context);
    if i64::from(call) == libc::SYS_process_vm_readv {
        READS.fetch_add(1, Ordering::Relaxed);
    } else if i64::from(call) == libc::SYS_rt_sigprocmask && first == u64::MAX {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        // What the kernel says where it can be read.
        set_outcome(context, -i64::from(libc::EINVAL));
    } else {
        // Only the first one is of interest.
        let _known = FIRST.compare_exchange(-1, call, Ordering::Relaxed, Ordering::Relaxed);
        TRAPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The first argument of the call that was trapped.
fn first_argument(context: &libc::ucontext_t) -> u64 {
    #[cfg(target_arch = "x86_64")]
    let first = context.uc_mcontext.gregs[libc::REG_RDI as usize] as u64;
    // What is trapped has not been called: x0 holds its argument still.
    #[cfg(target_arch = "aarch64")]
    let first = context.uc_mcontext.regs[0];
    first
}

/// What the call that was trapped returns.
fn set_outcome(context: &mut libc::ucontext_t, outcome: i64) {
    #[cfg(target_arch = "x86_64")]
    {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = outcome;
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[0] = outcome as u64;
    }
}

/// Answers `listed` calls with one action and all others with another.
fn install(listed: &[i64], action: u32, otherwise: u32) -> Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0); // offset of `nr` in seccomp_data
    let answer = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    let mut program = vec![load];
    for call in listed {
        let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter { code: jump, jt: 0, jf: 1, k: *call as u32 });
        program.push(answer(action));
    }
    program.push(answer(otherwise));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: prctl(2): the program is valid for the call; the kernel copies it.
    let outcome = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}
