//! Another user of SIGPROF, who comes later: who ignores it, keeps it, or passes on what is not his.
//!
//! In: which of them. Out: how many stacks were taken before he came and how many after, how many signals he got, and what
//! the profiler says about it.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use profiler::{Config, Profiler};
use profiler_tests::Result;
use profiler_tests::clock::thread_cpu;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use serde_json::{Value, json};

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

static GOT: AtomicU64 = AtomicU64::new(0);
/// The profiler's handler, as he found it.
static BEFORE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn keeping(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    GOT.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn passing(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    GOT.fetch_add(1, Ordering::Relaxed);
    let before = BEFORE.load(Ordering::Relaxed);
    // SAFETY: the address that sigaction(2) gave for a handler with SA_SIGINFO: the profiler's, which has this signature.
    let before: Handler = unsafe { std::mem::transmute(before) };
    before(signal, info, context);
}

/// Burns CPU under the profiler, lets him come after a second of it, and goes on for four.
pub(crate) fn takeover(options: &Options) -> Result<Value> {
    let handler = match options.value::<String>("how")?.as_str() {
        "ignore" => libc::SIG_IGN,
        "keep" => keeping as *const () as usize,
        "pass" => passing as *const () as usize,
        other => return Err(format!("how={other:?} is none of ignore, keep, pass").into()),
    };
    let profiler = profiler::start(Config::new("takeover"))?;
    let before = burn(&profiler, 1);
    install(handler)?;
    let after = burn(&profiler, 4);
    // What is not the profiler's goes to him, and comes back to the profiler at most once.
    let got = GOT.load(Ordering::Relaxed);
    // SAFETY: raise(3) sends the calling thread a signal, which it has handled when the call returns.
    unsafe { libc::raise(libc::SIGPROF) };
    let foreign = GOT.load(Ordering::Relaxed) - got;
    let notes = profiler.stats().engine.notes;
    Ok(json!({ "before": before, "after": after, "got": got, "foreign": foreign, "notes": notes }))
}

/// Stacks that are taken while this thread burns so many seconds of CPU time.
fn burn(profiler: &Profiler, seconds: u64) -> u64 {
    let taken = || profiler.stats().account.taken;
    let (start, end) = (taken(), thread_cpu() + Duration::from_secs(seconds));
    while thread_cpu() < end {
        spin(Duration::from_millis(1));
    }
    taken() - start
}

fn install(handler: usize) -> Result<()> {
    // SAFETY: sigaction(2): both structures are valid for the calls; the handlers above have SA_SIGINFO's signature.
    let outcome = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPROF, std::ptr::null(), &raw mut before);
        BEFORE.store(before.sa_sigaction as *mut _, Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}
