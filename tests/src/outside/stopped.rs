//! A thread of another process that is made to stand still, anywhere or behind every instruction.
//!
//! In: the id of a thread. Out: where its thread pointer points, and the thread again. All of it from one thread of the
//! caller's, for only the one that attached may ask (ptrace(2)). Both take turns ten thousand times a second: where that is
//! allowed, no other thread comes between them.

use std::io;
use std::marker::PhantomData;
use std::ptr;

use crate::Result;

/// A thread that stands still unless told otherwise. Goes its way when this is dropped.
#[derive(Debug)]
pub struct Stopped {
    tid: libc::pid_t,
    /// A signal that it stopped for, which it gets when it goes on.
    signal: libc::c_int,
    has_ended: bool,
    // Only the thread that attached may ask.
    tracer: PhantomData<*const ()>,
}

/// The calling thread, to the scheduler.
const SELF: libc::pid_t = 0;

impl Stopped {
    /// Attaches to the thread `tid` and stops it, wherever it is.
    ///
    /// # Errors
    /// When that is not allowed, or there is none.
    pub fn attach(tid: i32) -> Result<Self> {
        trace(libc::PTRACE_SEIZE as _, tid, 0, 0)?;
        let mut this = Self { tid, signal: 0, has_ended: false, tracer: PhantomData };
        this.interrupt()?;
        [tid, SELF].into_iter().for_each(|tid| schedule(tid, libc::SCHED_RR, 1));
        Ok(this)
    }

    /// Lets it run while `meanwhile` does, and stops it again wherever it is then; `false` where it has ended.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn run(&mut self, meanwhile: impl FnOnce()) -> Result<bool> {
        self.go_on(libc::PTRACE_CONT as _)?;
        meanwhile();
        self.interrupt()
    }

    /// Lets it execute one instruction; `false` where that ended it.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn step(&mut self) -> Result<bool> {
        self.go_on(libc::PTRACE_SINGLESTEP as _)?;
        self.wait()
    }

    /// Its thread pointer.
    ///
    /// # Errors
    /// When it cannot be asked.
    #[cfg(target_arch = "x86_64")]
    pub fn thread_pointer(&self) -> Result<u64> {
        // SAFETY: plain data.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.registers(libc::NT_PRSTATUS.into(), &mut registers)?;
        Ok(registers.fs_base)
    }

    /// Its thread pointer. Source: Linux, include/uapi/linux/elf.h, `NT_ARM_TLS`.
    ///
    /// # Errors
    /// When it cannot be asked.
    #[cfg(target_arch = "aarch64")]
    pub fn thread_pointer(&self) -> Result<u64> {
        let mut pointer = 0_u64;
        self.registers(0x401, &mut pointer)?;
        Ok(pointer)
    }

    fn registers<T>(&self, set: i64, into: &mut T) -> Result<()> {
        let mut place = libc::iovec { iov_base: ptr::from_mut(into).cast(), iov_len: size_of::<T>() };
        trace(libc::PTRACE_GETREGSET as _, self.tid, set, ptr::from_mut(&mut place) as i64)
    }

    fn go_on(&mut self, how: i64) -> Result<()> {
        trace(how, self.tid, 0, std::mem::take(&mut self.signal).into())
    }

    /// Stops it; `false` where it has ended. A signal on its way to the thread may be what stops it: the kernel makes one stop of
    /// the two.
    fn interrupt(&mut self) -> Result<bool> {
        // A thread that has ended cannot be stopped, which `wait` tells.
        let _ended = trace(libc::PTRACE_INTERRUPT as _, self.tid, 0, 0);
        self.wait()
    }

    /// Waits until it stands still; `false` where it has ended.
    fn wait(&mut self) -> Result<bool> {
        let mut status = 0;
        // SAFETY: waitpid(2) writes the status of a thread that is traced by this one.
        while unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL) } != self.tid {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(format!("waitpid {}: {error}", self.tid).into());
            }
        }
        if !libc::WIFSTOPPED(status) {
            self.has_ended = true;
            return Ok(false);
        }
        let (signal, is_event) = (libc::WSTOPSIG(status), status >> 16 != 0);
        self.signal = if !is_event && signal != libc::SIGTRAP { signal } else { 0 };
        Ok(true)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Before it runs freely again.
        [self.tid, SELF].into_iter().for_each(|tid| schedule(tid, libc::SCHED_OTHER, 0));
        if !self.has_ended {
            // Fails where it has been killed meanwhile.
            let _outcome = trace(libc::PTRACE_DETACH as _, self.tid, 0, self.signal.into());
        }
    }
}

/// Has the scheduler prefer a thread, or not. Where that is not allowed, all takes longer on a busy machine.
fn schedule(tid: libc::pid_t, policy: libc::c_int, priority: libc::c_int) {
    // SAFETY: plain data, of which sched_setscheduler(2) reads one number.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(tid, policy, &raw const parameters);
    }
}

fn trace(request: i64, tid: libc::pid_t, address: i64, data: i64) -> Result<()> {
    // SAFETY: ptrace(2) of another process's thread; `data` is a number, or points to what is valid for the call.
    if unsafe { libc::ptrace(request as _, tid, address, data) } == -1 {
        return Err(format!("ptrace {request:#x} of {tid}: {}", io::Error::last_os_error()).into());
    }
    Ok(())
}
