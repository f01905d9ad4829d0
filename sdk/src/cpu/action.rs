//! The action of SIGPROF: our handler in front, whoever was there before behind it.
//!
//! In: the owner of the sampler, which installs the handler and looks twice a second whether it is still there
//! ([`Keeper`]); the handler, which hands on what is not ours ([`chain`]). Out: signals where they belong. Our handler stays
//! for good: after `stop`, a late signal finds one that does nothing, where the default action would end the process.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::clocks::process_cpu_time;
use super::handed_on::HandedOn;
use crate::error::Error;
use crate::others::Others;

/// A handler as SA_SIGINFO asks for it (sigaction(2)).
pub(super) type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// How often the keeper looks.
const LOOK: Duration = Duration::from_millis(500);
/// CPU time between two looks; some signals must have come by then, at any rate but the lowest.
const BUSY: Duration = Duration::from_millis(100);
/// How often our handler is put in front of one that takes our signals, before it is left at that.
const MOST_PUT_BACK: u32 = 3;

/// The handlers that were found before ours was put in front, at this start or one before it, as [`word_of`] writes them.
static BEFORE: Others = Others::none();

/// The threads that are in them: as many as run on the processors of a large machine, and some that wait for one.
static HANDED_ON: HandedOn<256> = HandedOn::new();
/// There were more.
static HAD_NO_PLACE: AtomicBool = AtomicBool::new(false);

/// Installs the handler in front of whatever is there, unless it is there itself. Only the owner of the sampler calls this.
pub(super) fn install(handler: Handler) -> Result<(), Error> {
    let current = set_action(None)?;
    if is(&current, handler) {
        return Ok(());
    }
    // First, so that nobody misses a signal.
    BEFORE.found(word_of(&current));
    let replaced = set_action(Some(&action_of(handler)))?;
    if word_of(&replaced) != word_of(&current) && !is(&replaced, handler) {
        // It came between the two.
        BEFORE.found(word_of(&replaced));
    }
    Ok(())
}

/// Notices when somebody else installs an action later.
#[derive(Debug)]
pub(super) struct Keeper {
    handler: Handler,
    looked: Instant,
    /// CPU time of the process then.
    cpu: Duration,
    /// Stacks taken until then: proof that signals arrive.
    taken: u64,
    /// How many looks in a row found another handler in front.
    other: u32,
    put_back: u32,
    notes: Vec<&'static str>,
}

impl Keeper {
    pub(super) fn new(handler: Handler) -> Self {
        Self {
            handler,
            looked: Instant::now(),
            cpu: process_cpu_time(),
            taken: 0,
            other: 0,
            put_back: 0,
            notes: Vec::new(),
        }
    }

    /// What was noticed, each once.
    pub(super) fn notes(&self) -> &[&'static str] {
        &self.notes
    }

    /// Looks, if it is time, whether our handler is in place, or else gets its signals all the same: `taken` stacks were
    /// taken since the start. Puts it back where it is needed.
    pub(super) fn look(&mut self, now: Instant, taken: u64) {
        // A process that does nothing gets no signals: that says nothing.
        let cpu = process_cpu_time();
        if now - self.looked < LOOK || cpu.saturating_sub(self.cpu) < BUSY {
            return;
        }
        self.cpu = cpu;
        let arrived = taken > self.taken;
        if HAD_NO_PLACE.load(Ordering::Relaxed) {
            self.note(
                "a handler of SIGPROF that was there before ours did not return on hundreds of threads, or handed signals back \
                 again and again: some were not handed on",
            );
        }
        (self.looked, self.taken) = (now, taken);
        let Ok(current) = set_action(None) else { return };
        if is(&current, self.handler) {
            self.other = 0;
            return;
        }
        self.other += 1;
        match current.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                self.note(
                    "the program took our handler of SIGPROF away, and it was put back: where the action is the default, \
                     the next signal ends the process",
                );
                self.put_back();
            }
            // What was on its way before it came, is counted by the second look at the latest, and proves nothing.
            _ if self.other < 3 => {}
            _ if arrived => self.note("another handler of SIGPROF was installed after ours; it passes our signals on"),
            _ if self.put_back < MOST_PUT_BACK => {
                self.note(
                    "another handler of SIGPROF was installed after ours and kept our signals; ours was put in front of \
                     it, and hands it what is not ours",
                );
                self.put_back += 1;
                self.put_back();
            }
            _ => self.note("another handler of SIGPROF keeps our signals, again and again: no samples can be taken"),
        }
    }

    fn put_back(&mut self) {
        if let Err(error) = install(self.handler) {
            tracing::warn!(%error, "our handler of SIGPROF could not be put back");
        }
    }

    fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            tracing::warn!("{note}");
            self.notes.push(note);
        }
    }
}

/// Hands a signal that is not ours to whoever handled SIGPROF before us. It runs under our mask, not under its own. One that was
/// installed after us, and that ours was put in front of, may hand it back to us: then it goes to the one before that.
pub(super) fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !BEFORE.are_there() {
        return;
    }
    let hand_on = |turn| {
        if let Some(handler) = BEFORE.behind(turn) {
            call(handler, signal, info, context);
        }
    };
    if !HANDED_ON.in_turn(context.addr(), hand_on) {
        HAD_NO_PLACE.store(true, Ordering::Relaxed);
    }
}

/// Set in the word of a handler with SA_SIGINFO: no address of a program has this bit (Linux, arch/*/include/asm/processor.h, `TASK_SIZE`).
const WITH_INFO: usize = 1 << (usize::BITS - 1);

/// A handler and its kind in one word; 0: there is none.
fn word_of(action: &libc::sigaction) -> usize {
    match action.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => 0,
        handler if action.sa_flags & libc::SA_SIGINFO != 0 => handler | WITH_INFO,
        handler => handler,
    }
}

/// Calls a handler that [`word_of`] wrote.
fn call(handler: usize, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if handler & WITH_INFO != 0 {
        // SAFETY: sigaction(2) returned this address with SA_SIGINFO: a handler of these three arguments.
        let handler: Handler = unsafe { std::mem::transmute(handler & !WITH_INFO) };
        handler(signal, info, context);
    } else {
        // SAFETY: sigaction(2) returned this address without SA_SIGINFO: a handler of one argument.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

fn is(action: &libc::sigaction, handler: Handler) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

fn action_of(handler: Handler) -> libc::sigaction {
    // SAFETY: sigaction is plain data for which any bytes are valid; sigdelset(3) writes to its mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        let stack = if small_stacks_are_here() { libc::SA_ONSTACK } else { 0 };
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | stack;
        // No handler of the host runs on top of ours, which it might never return to; but faults are not held back. Not by
        // sigfillset(3), which leaves out the C library's own signals: with one of them glibc up to 2.40 cancels a thread, and the
        // frames of our handler with it.
        std::ptr::write_bytes(&raw mut action.sa_mask, 0xff, 1);
        for fault in
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS]
        {
            libc::sigdelset(&raw mut action.sa_mask, fault);
        }
        action
    }
}

/// Whether Go's runtime is in this process: its code runs on stacks of 2 KiB and more, on which there is no room for a signal, and
/// which it therefore takes on an alternate stack. It asks the same of all others, and sees to it where it comes after us.
///
/// Source: Go 1.26, src/runtime/signal_unix.go, `initsig`, `sigInstallGoHandler`: a library of Go handles SIGURG, with which it
/// preempts, on an alternate stack, as soon as it is loaded; for handlers that it finds it sets SA_ONSTACK (`setsigstack`).
fn small_stacks_are_here() -> bool {
    exchange(libc::SIGURG, None).is_ok_and(|action| {
        !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) && action.sa_flags & libc::SA_ONSTACK != 0
    })
}

/// Sets the action of SIGPROF, or only asks for it; returns the one that was.
fn set_action(action: Option<&libc::sigaction>) -> Result<libc::sigaction, Error> {
    let remedy = "allow this process to handle SIGPROF";
    exchange(libc::SIGPROF, action).map_err(|why| Error::environment("sigaction(SIGPROF)", why, remedy))
}

/// Sets the action of a signal, or only asks for it; returns the one that was.
fn exchange(signal: libc::c_int, action: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut previous = MaybeUninit::<libc::sigaction>::uninit();
    let new = action.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: sigaction(2): `new` is null or valid, `previous` is written to; our handler has the signature that
    //         SA_SIGINFO asks for.
    match unsafe { libc::sigaction(signal, new, previous.as_mut_ptr()) } {
        // SAFETY: sigaction(2) succeeded, so it has written the previous action.
        0 => Ok(unsafe { previous.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the kernel is told to hold back all signals but faults while our handler runs: those of the C library too.
    #[test]
    fn only_faults_come_while_the_handler_runs() {
        extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        // Source: Linux, include/linux/signal_types.h, `struct sigaction`: handler, flags, restorer, mask, a word each.
        let (ours, mut before, mut kernels) = (action_of(handler), MaybeUninit::uninit(), [0_u64; 4]);
        // SAFETY: sigaction(2) and rt_sigaction(2) read and write structures that are valid for the calls; nobody sends SIGURG here.
        unsafe {
            assert_eq!(libc::sigaction(libc::SIGURG, &raw const ours, before.as_mut_ptr()), 0);
            let none = std::ptr::null::<u64>();
            assert_eq!(libc::syscall(libc::SYS_rt_sigaction, libc::SIGURG, none, &raw mut kernels, 8), 0);
            assert_eq!(libc::sigaction(libc::SIGURG, before.as_ptr(), std::ptr::null_mut()), 0);
        }
        // The kernel itself takes out what cannot be held back.
        let let_through: Vec<_> = (1..=64).filter(|signal| kernels[3] >> (signal - 1) & 1 == 0).collect();
        let mut faults = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGSYS,
            libc::SIGKILL,
            libc::SIGSTOP,
        ];
        faults.sort_unstable();
        assert_eq!(let_through, faults);
    }
}
