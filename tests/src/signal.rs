//! Records one real profiling signal and sends copies of it to the calling thread, as fast as the kernel delivers them.
//!
//! In: the SIGPROF that the profiler's own timer sends. Out: the same signal, with the same origin and value, so that the
//! profiler's handler takes it for its timer's and does all of its work. That is how the cost of one sample is measured
//! without waiting for the kernel's tick and without an entry of its own into any profiler. And what else tests do with signals:
//! block them, have a child killed.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::workload::spin;
use crate::{Error, Result};

/// A signal as the kernel described it to a handler.
#[derive(Clone, Copy)]
pub struct Recorded(libc::siginfo_t);

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorded").field("signal", &self.0.si_signo).field("code", &self.0.si_code).finish()
    }
}

/// Where the recording handler puts what it gets.
struct Slot {
    state: AtomicU8,
    /// The thread whose signal is wanted.
    thread: AtomicI32,
    /// Invariant: written only by whoever moved `state` from `EMPTY` to `WRITING`, read only while it is `FULL`.
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
}

const EMPTY: u8 = 0;
const WRITING: u8 = 1;
const FULL: u8 = 2;

// SAFETY: `info` has one writer, and no reader beside it: see its invariant.
unsafe impl Sync for Slot {}

static SLOT: Slot =
    Slot { state: AtomicU8::new(FULL), thread: AtomicI32::new(0), info: UnsafeCell::new(MaybeUninit::uninit()) };
static RECORDING: Mutex<()> = Mutex::new(());

/// Blocks SIGPROF on the calling thread, as some libraries block all signals on theirs.
pub fn block_sigprof() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) and sigaddset(3) write the set, pthread_sigmask(3) reads it; none can fail with this signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPROF);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Has what `command` starts killed when the thread that starts it ends, however that ends: Ctrl-C in a terminal, for one, is for the
/// process group in front alone.
pub fn end_with_the_caller(command: &mut Command) {
    let hook = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork(2) and exec(2) the hook makes one system call, prctl(2), and nothing else.
    unsafe { command.pre_exec(hook) };
}

/// Waits for SIGPROFs on the calling thread, burning its CPU for that, until one is found that `takes` says the profiler takes
/// when it comes again: where it has one timer for the process and one for the thread, it may ignore the former.
///
/// # Errors
/// When none comes, or none is taken, or `takes` fails.
pub fn record(mut takes: impl FnMut(&Recorded) -> Result<bool>) -> Result<Recorded> {
    for _ in 0..50 {
        let recorded = next()?;
        if takes(&recorded)? {
            return Ok(recorded);
        }
    }
    Err("no SIGPROF is taken when it is sent again".into())
}

/// Waits for a SIGPROF on the calling thread, and keeps it from its handler.
fn next() -> Result<Recorded> {
    let _alone = RECORDING.lock().map_err(|_| "an earlier recording panicked")?;
    SLOT.thread.store(own_id(), Ordering::Relaxed);
    // Release: pairs with the exchange in `keep`: who sees EMPTY sees whose signal is wanted.
    SLOT.state.store(EMPTY, Ordering::Release);
    with_handler(keep, || {
        let end = Instant::now() + Duration::from_secs(5);
        // Acquire: pairs with the store in `keep`: who sees FULL sees the signal.
        while SLOT.state.load(Ordering::Acquire) != FULL {
            if Instant::now() > end {
                return Err(Error::from("no SIGPROF came in 5 s on a busy thread"));
            }
            spin(Duration::from_micros(100));
        }
        Ok(())
    })??;
    // SAFETY: `state` is FULL, so `info` was written, and nobody writes it until the next recording, which waits for us.
    Ok(Recorded(unsafe { (*SLOT.info.get()).assume_init() }))
}

impl Recorded {
    /// Sends it to the calling thread, which has handled it when this returns.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn replay(&self) -> io::Result<()> {
        self.aimed().replay()
    }

    /// The same signal of a timer that expired so many times more before it was delivered.
    #[must_use]
    pub fn overrun(mut self, times: i32) -> Self {
        // `si_overrun` is the sixth number of a timer's siginfo_t: include/uapi/asm-generic/siginfo.h, `_timer`.
        // SAFETY: a siginfo_t is 128 bytes of plain numbers, aligned for them.
        unsafe { (&raw mut self.0).cast::<i32>().add(5).write(times) };
        self
    }

    /// The same for the calling thread alone, with one system call a time.
    #[must_use]
    pub fn aimed(&self) -> Aimed {
        Aimed { recorded: *self, process: std::process::id(), thread: own_id() }
    }
}

/// A recorded signal and the thread that it is for.
#[derive(Debug, Clone, Copy)]
pub struct Aimed {
    recorded: Recorded,
    process: u32,
    thread: i32,
}

impl Aimed {
    /// Sends it. Where the calling thread is the one it is for, it has handled it when this returns.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn replay(&self) -> io::Result<()> {
        let Self { recorded: Recorded(info), process, thread } = self;
        // SAFETY: rt_tgsigqueueinfo(2) reads a siginfo_t; a process may send itself one of any origin.
        let outcome = unsafe {
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, *process, *thread, libc::SIGPROF, std::ptr::from_ref(info))
        };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Runs `work` while SIGPROF finds a handler that does nothing: what delivery alone costs.
///
/// # Errors
/// When the handler cannot be changed.
pub fn with_empty_handler<T>(work: impl FnOnce() -> T) -> Result<T> {
    extern "C" fn nothing(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    with_handler(nothing, work)
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn keep(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if own_id() != SLOT.thread.load(Ordering::Relaxed) {
        return;
    }
    // Acquire and Release: see `record`.
    if SLOT.state.compare_exchange(EMPTY, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        // SAFETY: an SA_SIGINFO handler gets a valid siginfo_t (sigaction(2)); the exchange makes us the one writer.
        unsafe { (*SLOT.info.get()).write(*info) };
        SLOT.state.store(FULL, Ordering::Release);
    }
}

/// The calling thread's id: gettid(2), which a signal handler may call.
fn own_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn with_handler<T>(handler: Handler, work: impl FnOnce() -> T) -> Result<T> {
    let mut previous = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sigaction(2): both structures are valid for the call; the handler has SA_SIGINFO's signature.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &raw const action, previous.as_mut_ptr())
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error().into());
    }
    let result = work();
    // SAFETY: the first call succeeded, so it filled `previous`.
    unsafe { libc::sigaction(libc::SIGPROF, previous.as_ptr(), std::ptr::null_mut()) };
    Ok(result)
}
