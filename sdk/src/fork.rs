//! What `fork(2)` must not come between, and which process this is.
//!
//! In: work under a lock that a child would find locked for good. Out: the work's result; no fork of this program falls into it. Also a number that is another one
//! in a forked child, whatever its process id. For threads; never for a signal handler.
//!
//! The C library's `dl_iterate_phdr(3)` holds a lock that glibc's `fork` leaves as it is (`dl_load_write_lock`: elf/dl-iteratephdr.c, posix/fork.c): a child of
//! that instant, in which nobody will open it, stands still in its first `dlopen`, backtrace, or start of a profiler.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nobody is at the gate. Otherwise: how many threads fork, and whether one of ours works.
const OPEN: u32 = 0;
/// A thread of ours works.
const WORKING: u32 = 1 << 31;

/// How long a fork waits for our work, which takes far less, and our work for forks: a thread that forks while it holds the loader's lock itself waits for what
/// waits for it.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long our own threads wait between two looks at the gate.
const PAUSE: Duration = Duration::from_micros(50);

/// Who is at the gate. Acquire and Release among those who come and go.
static GATE: AtomicU32 = AtomicU32::new(OPEN);
/// How many forks lie between the first process and this one, as far as they were made with the C library.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Does `work` at a time when no thread of this program is in `fork`.
pub(crate) fn apart<R>(work: impl FnOnce() -> R) -> R {
    watch();
    // Forks take milliseconds at most; one that hangs in a handler of the program's, or one after the other, must not keep the ring from being read.
    let begin = || GATE.compare_exchange(OPEN, WORKING, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let _held = if tried(PATIENCE, begin, || std::thread::sleep(PAUSE)) { Some(Held) } else { None };
    work()
}

/// While our work holds the gate. Work that panics opens it, too: otherwise each later fork would wait in vain.
struct Held;

impl Drop for Held {
    fn drop(&mut self) {
        GATE.fetch_and(!WORKING, Ordering::Release);
    }
}

/// This process: what no parent or child of it has.
pub(crate) fn this_process() -> u64 {
    u64::from(FORKS.load(Ordering::Relaxed)) << 32 | u64::from(std::process::id())
}

/// Learns of forks from now on.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    // Fails without memory: then forks are as they were without us.
    WATCH.call_once(|| {
        // SAFETY: pthread_atfork(3): functions of the signature that it asks for, in code that stays loaded (`cpu::residence`).
        unsafe { libc::pthread_atfork(Some(before), Some(behind), Some(in_child)) };
    });
}

/// Whether `attempt` succeeds within a time, tried again after each `pause`.
fn tried(within: Duration, attempt: impl Fn() -> bool, pause: impl Fn()) -> bool {
    let until = Instant::now() + within;
    while !attempt() {
        if Instant::now() >= until {
            return false;
        }
        pause();
    }
    true
}

/// On the thread that forks, in the parent, before. Forks do not wait for each other.
extern "C" fn before() {
    let enter = || {
        let one_more = |at_gate| (at_gate & WORKING == 0).then_some(at_gate + 1);
        GATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
    };
    // It does not sleep: a thread that is to be cancelled would end there, in the middle of `fork` (pthreads(7), cancellation points).
    if !tried(PATIENCE, enter, std::thread::yield_now) {
        GATE.fetch_add(1, Ordering::Acquire);
    }
}

/// The same, behind.
extern "C" fn behind() {
    let one_less = |at_gate: u32| (at_gate & !WORKING > 0).then(|| at_gate - 1);
    _ = GATE.fetch_update(Ordering::Release, Ordering::Relaxed, one_less);
}

/// In the child, which has no other threads.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    GATE.store(OPEN, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::sync::{Barrier, Mutex, PoisonError};

    use super::*;

    /// One test at a time holds the loader's lock.
    static TURN: Mutex<()> = Mutex::new(());

    /// Goes through the loader's list, doing this with the first module under the loader's lock.
    fn under_the_lock(mut work: impl FnMut()) {
        unsafe extern "C" fn call<F: FnMut()>(_: *mut libc::dl_phdr_info, _: libc::size_t, work: *mut c_void) -> i32 {
            // SAFETY: the pointer that is passed below.
            unsafe { (*work.cast::<F>())() };
            1
        }
        fn pass<F: FnMut()>(work: &mut F) {
            // SAFETY: a callback of the required signature and what it expects (dl_iterate_phdr(3)).
            unsafe { libc::dl_iterate_phdr(Some(call::<F>), std::ptr::from_mut(work).cast()) };
        }
        pass(&mut work);
    }

    /// How a child ends that goes through the loader's list, for which it has five seconds; and what it says this process is.
    fn child() -> i32 {
        let parent = this_process();
        // SAFETY: fork(2); the child calls nothing that allocates, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: alarm(2), whose signal ends the child.
            unsafe { libc::alarm(5) };
            under_the_lock(|| ());
            let is_another = this_process() != parent && this_process() >> 32 == (parent >> 32) + 1;
            // SAFETY: _exit(2).
            unsafe { libc::_exit(if is_another { 7 } else { 8 }) }
        }
        let mut status = 0;
        // SAFETY: waitpid(2) of the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    /// Check that a fork waits until the loader's list is read, so that the child can read it; and that the child is another process.
    #[test]
    fn a_child_finds_no_lock_of_the_loader() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        watch();
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                apart(|| {
                    under_the_lock(|| {
                        begun.wait();
                        std::thread::sleep(PATIENCE / 10);
                    });
                });
            });
            begun.wait();
            let status = child();
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
        });
        assert!(opens());
    }

    /// Whether the gate is open before long: other tests fork, and look at the loader's list.
    fn opens() -> bool {
        tried(100 * PATIENCE, || GATE.load(Ordering::Relaxed) == OPEN, std::thread::yield_now)
    }

    /// Check that work that panics leaves the gate open, that forks do not wait for each other, and that work which waited for one in vain leaves it at the gate.
    #[test]
    fn who_leaves_the_gate_leaves_it_to_the_others() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(std::panic::catch_unwind(|| apart(|| panic!("work that fails"))).is_err());
        assert!(opens());
        before();
        before();
        assert!(GATE.load(Ordering::Relaxed) & !WORKING >= 2);
        assert!(apart(|| GATE.load(Ordering::Relaxed)) & !WORKING >= 2);
        behind();
        behind();
        assert!(opens());
        behind();
        assert!(opens());
    }

    /// Check that a fork by a thread that holds the loader's lock itself, for which our work waits, does not stand still.
    #[test]
    fn a_fork_under_the_loaders_lock_goes_on() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        watch();
        std::thread::scope(|scope| {
            under_the_lock(|| {
                scope.spawn(|| apart(|| under_the_lock(|| ())));
                while GATE.load(Ordering::Relaxed) & WORKING == 0 {
                    std::thread::yield_now();
                }
                // SAFETY: fork(2), _exit(2) and waitpid(2), of the child that is made here.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::_exit(0);
                    }
                    assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
                }
            });
        });
    }
}
