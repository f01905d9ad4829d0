//! Which system calls a filter (seccomp(2)) would end this process for.
//!
//! In: the calls that the sampler would like to make. Out: those that it must not. A filter cannot be asked what it does:
//! it may refuse a call, which is harmless, or end whoever makes it, and services are run under filters of both kinds (Docker's
//! refuses, systemd's `SystemCallFilter=` kills). So where there is one, a child tries the calls first. It is a copy of
//! this process that makes the calls and ends: no code of the host runs in it, no SIGCHLD tells of it, and no `wait` of
//! the host's finds it. Called by `start`, once.

use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Why a call is not made.
pub(super) const DEADLY: &str = "a filter of system calls (seccomp) would end this process for it";

/// Calls that the sampler would like to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    PerfEventOpen,
    TimerCreate,
    Setitimer,
    ProcessVmReadv,
    MemfdCreate,
}

impl Call {
    const ALL: [Self; 5] =
        [Self::PerfEventOpen, Self::TimerCreate, Self::Setitimer, Self::ProcessVmReadv, Self::MemfdCreate];

    /// As the manual has it.
    fn name(self) -> &'static str {
        match self {
            Self::PerfEventOpen => "perf_event_open",
            Self::TimerCreate => "timer_create",
            Self::Setitimer => "setitimer",
            Self::ProcessVmReadv => "process_vm_readv",
            Self::MemfdCreate => "memfd_create",
        }
    }

    fn number(self) -> libc::c_long {
        match self {
            Self::PerfEventOpen => libc::SYS_perf_event_open,
            Self::TimerCreate => libc::SYS_timer_create,
            Self::Setitimer => libc::SYS_setitimer,
            Self::ProcessVmReadv => libc::SYS_process_vm_readv,
            Self::MemfdCreate => libc::SYS_memfd_create,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How long a child may sleep on end; one that a supervisor of the filter does not answer never ends.
const ASLEEP: Duration = Duration::from_millis(200);
/// How long it may take in all: where processors are scarce, it waits for one and has done nothing wrong.
const LIMIT: Duration = Duration::from_secs(2);

/// What the filter in force does.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    deadly: Vec<Call>,
}

impl Filter {
    /// Finds out, where there is a filter on the calling thread.
    pub(super) fn probe() -> Self {
        if !is_filtered() {
            return Self::default();
        }
        let mut filter = Self::default();
        let (mut from, mut quietly) = (0, true);
        // A child ends at the first deadly call; the next one goes on behind it.
        loop {
            match try_from(from, quietly) {
                Ok(None) => return filter,
                Ok(Some(BEFORE_ALL)) if quietly => quietly = false,
                Ok(Some(deadly)) if deadly < BEHIND_ALL => {
                    filter.deadly.push(Call::ALL[deadly]);
                    from = deadly + 1;
                }
                // Nothing is known: what filters end processes for is not tried. Timers are in every list of harmless calls.
                Ok(Some(_)) | Err(_) => {
                    filter.deadly.extend([Call::PerfEventOpen, Call::ProcessVmReadv, Call::MemfdCreate]);
                    return filter;
                }
            }
        }
    }

    /// Whether this call would end the process.
    pub(super) fn is_deadly(&self, call: Call) -> bool {
        self.deadly.contains(&call)
    }
}

/// Whether the calling thread has a filter. Source: proc(5), "/proc/pid/status", `Seccomp`: 2 is a filter.
fn is_filtered() -> bool {
    // Where it cannot be read, there may be one.
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else { return true };
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// The child came to none of the calls.
const BEFORE_ALL: usize = usize::MAX;
/// It came through them all.
const BEHIND_ALL: usize = Call::ALL.len();

/// Lets a child try the calls from `from` on; the one that it did not survive. `quietly`: without a core file.
fn try_from(from: usize, quietly: bool) -> io::Result<Option<usize>> {
    // SAFETY: system calls with numbers only, and stores.
    let reached = unsafe { in_child(|progress| try_calls(from, quietly, progress)) }?;
    Ok((reached != BEHIND_ALL).then_some(reached))
}

/// How far `work` came in a child: what it stored last.
///
/// # Safety
/// `work` makes system calls and stores, and no more: the child is a copy of one thread of many, whose locks nobody opens.
unsafe fn in_child(work: impl FnOnce(&AtomicUsize)) -> io::Result<usize> {
    let progress = Progress::map()?;
    progress.counter().store(BEFORE_ALL, Ordering::Relaxed);
    let signals = AllBlocked::new();
    // SAFETY: clone(2) without flags: a copy of this process, whose end sends no signal. The child does nothing but system
    //         calls and stores to the page that it shares with us; the signal mask that it inherits holds all signals back.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t;
    if child == 0 {
        work(progress.counter());
        loop {
            // SAFETY: exit_group(2) ends the child.
            unsafe { libc::syscall(libc::SYS_exit_group, 0) };
        }
    }
    drop(signals);
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    wait_for(child);
    // Not by how it ended: another thread may have waited for all children that there are, and has the answer.
    Ok(progress.counter().load(Ordering::Relaxed))
}

/// The child: makes each call with arguments that it cannot do anything with.
fn try_calls(from: usize, quietly: bool, progress: &AtomicUsize) {
    if quietly {
        // SAFETY: prctl(2) with numbers only, in the child.
        unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    }
    for (index, call) in Call::ALL.into_iter().enumerate().skip(from) {
        progress.store(index, Ordering::Relaxed);
        // SAFETY: with arguments that point nowhere and name nothing, each of these calls fails and does nothing
        //         (perf_event_open(2), timer_create(2), setitimer(2), process_vm_readv(2), memfd_create(2)); the filter comes before that.
        unsafe { libc::syscall(call.number(), -1_i64, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) };
    }
    progress.store(BEHIND_ALL, Ordering::Relaxed);
}

/// Waits until the child has ended; ends it where that takes too long.
fn wait_for(child: libc::pid_t) {
    let (start, mut asleep) = (Instant::now(), None);
    loop {
        let mut status = 0;
        // SAFETY: waitpid(2) of our own child, whose end sends no signal: `__WALL` is needed to find it.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG | libc::__WALL) } {
            0 => {
                asleep = sleeps(child).then(|| asleep.unwrap_or_else(Instant::now));
                let too_long = asleep.is_some_and(|since| since.elapsed() >= ASLEEP) || start.elapsed() >= LIMIT;
                if !too_long {
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                }
                // SAFETY: our own child, which was not waited for yet: the number is still its.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &raw mut status, libc::__WALL);
                }
                return;
            }
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            // It is gone; `-1` where somebody else waited for all children there are.
            _ => return,
        }
    }
}

/// Whether the child neither runs nor waits for a processor. Source: proc(5), "/proc/pid/stat": the state stands behind the name.
fn sleeps(child: libc::pid_t) -> bool {
    // Where it cannot be read, as with `hidepid`, it may sleep.
    let Ok(stat) = fs::read(format!("/proc/{child}/stat")) else { return true };
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|name| stat.get(name + 2));
    state != Some(&b'R')
}

/// A page that parent and child share, with a counter in it.
struct Progress {
    page: *mut libc::c_void,
}

const PAGE: usize = 4096;

impl Progress {
    fn map() -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice (mmap(2)).
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { page }) }
    }

    fn counter(&self) -> &AtomicUsize {
        // SAFETY: the page is mapped, aligned and zero at first, and is there for as long as `self`.
        unsafe { &*self.page.cast() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped.
        unsafe { libc::munmap(self.page, PAGE) };
    }
}

/// No signal reaches the calling thread, nor a child that it makes, until this is dropped: no handler of the host runs in
/// the child, and one for the filter's own signal does not either.
struct AllBlocked {
    old: libc::sigset_t,
}

impl AllBlocked {
    fn new() -> Self {
        let (mut all, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigfillset(3) writes the one, pthread_sigmask(3) reads it and writes the other; neither can fail.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), old.as_mut_ptr());
            Self { old: old.assume_init() }
        }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: pthread_sigmask(3) reads the mask that it returned before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.old, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a child tries all calls and survives where no filter is in force. Filters are tried end to end.
    #[test]
    fn without_a_filter_nothing_is_deadly() {
        assert_eq!(try_from(0, true).unwrap(), None);
        let filter = Filter::probe();
        assert!(Call::ALL.into_iter().all(|call| !filter.is_deadly(call)));
    }

    /// Check that a child that runs, or waits for a processor, has longer than one that sleeps, which is ended.
    #[test]
    fn only_a_child_that_sleeps_is_ended_soon() {
        // SAFETY: looks at the clock, and stores.
        let busy = unsafe {
            in_child(|progress| {
                let start = Instant::now();
                while start.elapsed() < 3 * ASLEEP {}
                progress.store(BEHIND_ALL, Ordering::Relaxed);
            })
        };
        assert_eq!(busy.unwrap(), BEHIND_ALL);
        let start = Instant::now();
        // SAFETY: ppoll(2) of no descriptors and without a time: it waits for signals, all of which are blocked.
        let asleep = unsafe {
            in_child(|_| {
                libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0, 0);
            })
        };
        assert_eq!(asleep.unwrap(), BEFORE_ALL);
        assert!((ASLEEP..LIMIT).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}
