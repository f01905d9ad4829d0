//! Signals that wait while the kernel verifies a program.
//!
//! In: nothing. Out: a guard; until it is dropped, no signal is pending for this thread. `bpf_check` gives up with EAGAIN where one is (`do_check`,
//! kernel/bpf/verifier.c), and who is refused asks again with the verifier's log, which takes many times as long.

use std::marker::PhantomData;

/// Signals are held back for this thread. They come when it is dropped.
#[derive(Debug)]
pub(super) struct Unhurried {
    before: libc::sigset_t,
    /// A mask is a thread's.
    of_thread: PhantomData<*const ()>,
}

impl Unhurried {
    pub(super) fn begin() -> Self {
        // SAFETY: sigset_t is plain data; sigfillset(3) writes one, pthread_sigmask(3) reads that and writes the other. Both are valid for the calls, which cannot
        //         fail with these arguments.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self { before, of_thread: PhantomData }
        }
    }
}

impl Drop for Unhurried {
    fn drop(&mut self) {
        // SAFETY: pthread_sigmask(3) reads the mask that it returned before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set of signals that this thread holds back: `SigBlk` of proc(5).
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let set = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(set.trim(), 16).unwrap()
    }

    /// Check that signals wait until the end, and that what was held back before still is.
    #[test]
    fn signals_wait() {
        let before = blocked();
        let terminate = 1 << (libc::SIGTERM - 1);
        {
            let _unhurried = Unhurried::begin();
            assert_ne!(blocked() & terminate, 0);
            let _within = Unhurried::begin();
        }
        assert_eq!((blocked(), before & terminate), (before, 0));
    }
}
