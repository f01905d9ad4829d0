//! Tests: changes in single steps, looked at from another process: what is in force behind every instruction is the old context or the new one.
//!
//! In: a forked child that makes the changes (the module above), stopped behind each instruction (ptrace(2)). Out: how often the old and the new
//! context stood in its memory. Unlike the trap of a processor that a thread sets for itself, this is there on each architecture.

use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Changes, Seen};
use crate::context::records::Record;
use crate::context::signal::Current;
use crate::context::thread::Thread;

/// How many changes are behind the child; its own, in its copy of this.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// What the child ends with where it may not be traced.
const NOT_ALLOWED: i32 = 2;

/// Many times the steps that there are.
const MOST_STEPS: u64 = 20_000_000;

/// One test at a time: each has a processor for itself, and another one is for other tests.
static TURN: Mutex<()> = Mutex::new(());

/// The child, which stands still.
struct Child {
    pid: libc::pid_t,
    /// Where the pointer to the record in force is.
    place: usize,
    /// A signal that it stopped for, which it gets when it goes on.
    signal: libc::c_int,
}

impl Child {
    /// A child of this thread alone, before the changes.
    fn fork(changes: &Changes) -> Self {
        let place = ptr::from_ref(Thread::here()).addr();
        // Both take turns a hundred thousand times: where that is allowed, no other thread comes between them on a busy machine.
        // SAFETY: plain data, of which sched_setscheduler(2) reads one number. The child inherits it.
        unsafe {
            let mut parameters: libc::sched_param = std::mem::zeroed();
            parameters.sched_priority = 1;
            libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters);
        }
        // SAFETY: the child makes the changes, which lock nothing that another thread may have had, and ends by _exit(2).
        match unsafe { libc::fork() } {
            0 => make(changes),
            pid => Self { pid, place, signal: 0 },
        }
    }

    /// Waits until it stands still; how it ended, if it did.
    fn wait(&mut self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: waitpid(2) writes the status of our own child.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } != self.pid {
            let error = io::Error::last_os_error();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
        }
        if !libc::WIFSTOPPED(status) {
            return Some(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status });
        }
        let signal = libc::WSTOPSIG(status);
        self.signal = if [libc::SIGTRAP, libc::SIGSTOP].contains(&signal) { 0 } else { signal };
        None
    }

    /// Lets it execute one instruction; how it ended, if it did.
    fn step(&mut self) -> Option<i32> {
        let signal = std::mem::take(&mut self.signal);
        // SAFETY: ptrace(2) of our own child, which stands still; a number.
        let outcome = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP as _, self.pid, 0_i64, i64::from(signal)) };
        assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
        self.wait()
    }

    /// A copy of what it has at this address.
    ///
    /// # Safety
    /// Any bytes are a `T`.
    unsafe fn copy<T>(&self, address: usize) -> T {
        let mut copy = MaybeUninit::<T>::uninit();
        let here = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: size_of::<T>() };
        let there = libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: size_of::<T>() };
        // SAFETY: process_vm_readv(2) writes what is described by `here`, which is there.
        let length = unsafe { libc::process_vm_readv(self.pid, &raw const here, 1, &raw const there, 1, 0) };
        assert_eq!(length, size_of::<T>() as isize, "{}", io::Error::last_os_error());
        // SAFETY: written in full, and any bytes will do, as the caller has it.
        unsafe { copy.assume_init() }
    }

    /// What its handler would read, and how many changes are behind it.
    fn look(&self) -> (Seen, usize) {
        // SAFETY: numbers.
        let [record, changes]: [usize; 2] =
            [self.place, ptr::from_ref(&CHANGES).addr()].map(|address| unsafe { self.copy(address) });
        let mut seen = Seen::NOTHING;
        if record != 0 {
            // SAFETY: a record is made of numbers, without padding.
            let record: Record = unsafe { self.copy(record) };
            seen.current = Current::read(&record, &mut seen.tags);
        }
        (seen, changes)
    }
}

/// What the child does.
fn make(changes: &Changes) -> ! {
    // SAFETY: ptrace(2) that makes the parent the tracer; raise(3) stops for it.
    if unsafe { libc::ptrace(libc::PTRACE_TRACEME as _, 0, 0_i64, 0_i64) == -1 || libc::raise(libc::SIGSTOP) == -1 } {
        // SAFETY: ends the child.
        unsafe { libc::_exit(NOT_ALLOWED) };
    }
    let change = || {
        CHANGES.fetch_add(1, Ordering::Relaxed);
    };
    let made = catch_unwind(AssertUnwindSafe(|| changes.run(&change)));
    // SAFETY: as above.
    unsafe { libc::_exit(i32::from(made.is_err())) }
}

/// Whether a thread gets on in single steps. A processor without instructions for single atomic changes makes them in loops (`ldxr`, `stxr`), as
/// musl does on any aarch64, and a stop within one begins it anew.
///
/// Source: Arm Architecture Reference Manual, "Exclusive access instructions and exclusive monitors"; Linux, arch/arm64/include/uapi/asm/hwcap.h.
fn is_possible() -> bool {
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: getauxval(3) with a number.
        cfg!(target_env = "gnu") && unsafe { libc::getauxval(libc::AT_HWCAP) } & libc::HWCAP_ATOMICS != 0
    }
    #[cfg(not(target_arch = "aarch64"))]
    true
}

/// Checks that behind every instruction of the changes the context before one or the one after it stands in the child's memory.
#[track_caller]
fn assert_whole(changes: &Changes) {
    if !is_possible() {
        println!("NOT RUN: each stop begins the loops anew in which this processor makes atomic changes");
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = changes.expected();
    changes.on_thread(|| {
        let mut child = Child::fork(changes);
        if let Some(status) = child.wait() {
            // SAFETY: geteuid(2) has no argument.
            let is_root = unsafe { libc::geteuid() } == 0;
            assert!(status == NOT_ALLOWED && !is_root, "it ended with {status} before it began");
            println!("NOT RUN: ptrace(2) of a child is not allowed to this user here");
            return;
        }
        let (mut steps, mut counts, mut last) = (0_u64, [0_u64; 3], 0);
        let status = loop {
            if let Some(status) = child.step() {
                break status;
            }
            steps += 1;
            assert!(steps < MOST_STEPS, "it does not get on: {last} changes of {}", expected.len() - 1);
            let (seen, changes) = child.look();
            last = changes;
            let place = [changes, changes + 1].iter().position(|place| expected.get(*place) == Some(&seen));
            counts[place.unwrap_or(2)] += 1;
        };
        println!("{steps} instructions: old, new, neither {counts:?}");
        let [old, new, neither] = counts;
        assert_eq!((status, last + 1, neither), (0, expected.len(), 0), "of {steps} instructions");
        assert!(old > 1000 && new > 100, "{old} old, {new} new of {steps} instructions");
    });
}

/// Check that a change is whole at every instruction: the first of a thread, scopes left in and out of order, spans with and without tags, tags
/// in the place of others, polls, and the end of the thread with a scope that was never left.
#[test]
fn a_change_is_whole_at_every_instruction() {
    assert_whole(&Changes::of_every_kind());
}

/// Check the same for scopes beyond those that a thread keeps, on the way there and back, and a span within them.
#[test]
fn a_change_beyond_the_bound_is_whole_at_every_instruction() {
    assert_whole(&Changes::beyond_the_bound());
}
