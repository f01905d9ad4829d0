//! Another user of SIGPROF, who was there first.
//!
//! In: the bench. Out: how many signals were sent that are not the profiler's, how many of them the first handler got, and
//! how many of the profiler's own it got, which must be none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

use crate::bench::{on_threads, torture};

static FOREIGN: AtomicU64 = AtomicU64::new(0);
static OURS: AtomicU64 = AtomicU64::new(0);

extern "C" fn first_handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: a handler with SA_SIGINFO gets a valid siginfo_t (sigaction(2)).
    let code = unsafe { (*info).si_code };
    let counter = if code == libc::SI_TKILL || code == libc::SI_USER { &FOREIGN } else { &OURS };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Sends SIGPROF to itself on three threads that are busy besides, under a handler that was installed before the start.
pub(crate) fn others(options: &Options) -> Result<Value> {
    // SAFETY: sigaction(2): the structure is valid for the call; the handler has SA_SIGINFO's signature and only counts.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = first_handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut())
    };
    if outcome != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    torture(options, |time, _| {
        let sent = on_threads(3, time, |_| {
            // SAFETY: raise(3) sends the calling thread a signal, which it has handled when the call returns.
            unsafe { libc::raise(libc::SIGPROF) };
            spin(Duration::from_micros(200));
        })?;
        let (foreign, ours) = (FOREIGN.load(Ordering::Relaxed), OURS.load(Ordering::Relaxed));
        Ok(json!({ "sent": sent, "foreign": foreign, "ours": ours }))
    })
}
