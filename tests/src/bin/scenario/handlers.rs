//! Three users of SIGPROF beside the profiler: one who was there before its first start, and two who come between its starts and pass
//! on what they get.
//!
//! In: whether the first one asks for the signal's origin (`SA_SIGINFO`). Out: behind each step, how many of the signals that were
//! sent each of the three got.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use profiler::Config;
use profiler_tests::Result;
use profiler_tests::subject::Options;
use serde_json::{Value, json};

/// Signals that the main thread sends itself behind each step, and another one, which nobody knows.
const SENT: usize = 50;

/// How many signals of others each got.
static GOT: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
/// Whom the two who come later found.
static FOUND: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs them one after the other, and starts the profiler again in front of each.
pub(crate) fn handlers(options: &Options) -> Result<Value> {
    let start = || profiler::start(Config::new("handlers"));
    let mut steps = Vec::new();
    let mut sent_behind = |step: &str| steps.push(json!([step, sent()]));
    match options.value::<u32>("info")? {
        0 => install(first as *const () as usize, 0)?,
        _ => install(first_with_info as *const () as usize, libc::SA_SIGINFO)?,
    }
    let profiler = start()?;
    sent_behind("start");
    install_behind(&FOUND[0], second)?;
    sent_behind("the second in front");
    drop(profiler);
    sent_behind("the end");
    let profiler = start()?;
    sent_behind("another start");
    install_behind(&FOUND[1], third)?;
    sent_behind("the third in front");
    profiler.pause();
    profiler.resume()?;
    sent_behind("a resume");
    profiler.pause();
    install(libc::SIG_IGN, 0)?;
    sent_behind("ignored");
    profiler.resume()?;
    sent_behind("a resume where nobody was");
    profiler.pause();
    install(first as *const () as usize, 0)?;
    profiler.resume()?;
    sent_behind("the first once more");
    Ok(json!({ "steps": steps, "sent": 2 * SENT }))
}

extern "C" fn first(_: i32) {
    GOT[0].fetch_add(1, Ordering::Relaxed);
}

extern "C" fn first_with_info(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    count(0, info);
}

extern "C" fn second(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    count(1, info);
    pass_on(&FOUND[0], signal, info, context);
}

extern "C" fn third(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    count(2, info);
    pass_on(&FOUND[1], signal, info, context);
}

fn count(which: usize, info: *const libc::siginfo_t) {
    // SAFETY: a handler with SA_SIGINFO gets a valid siginfo_t (sigaction(2)).
    if unsafe { (*info).si_code } == libc::SI_TKILL {
        GOT[which].fetch_add(1, Ordering::Relaxed);
    }
}

fn pass_on(found: &AtomicUsize, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the address that sigaction(2) gave for the profiler's handler, which has SA_SIGINFO; it was written before the caller was
    //         installed.
    let found: Handler = unsafe { std::mem::transmute(found.load(Ordering::Relaxed)) };
    found(signal, info, context);
}

/// Has two threads send themselves signals: how many each of the three got.
fn sent() -> [usize; 3] {
    let before = GOT.each_ref().map(|got| got.load(Ordering::Relaxed));
    let send = || {
        for _ in 0..SENT {
            // SAFETY: raise(3) sends the calling thread a signal, which it has handled when the call returns.
            unsafe { libc::raise(libc::SIGPROF) };
        }
    };
    send();
    thread::scope(|scope| drop(scope.spawn(send)));
    std::array::from_fn(|which| GOT[which].load(Ordering::Relaxed) - before[which])
}

/// Installs a handler that passes on what it gets to the one that it finds.
fn install_behind(found: &AtomicUsize, handler: Handler) -> Result<()> {
    // SAFETY: sigaction(2): the structure is valid for the call, which writes to it.
    let before = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPROF, std::ptr::null(), &raw mut before);
        before.sa_sigaction
    };
    found.store(before, Ordering::Relaxed);
    install(handler as *const () as usize, libc::SA_SIGINFO)
}

/// Sets the action of SIGPROF.
fn install(handler: usize, flags: i32) -> Result<()> {
    // SAFETY: sigaction(2): the structure is valid for the call; the handlers above are of the kind that the flags say.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags | libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}
