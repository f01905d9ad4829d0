//! A machine that refuses: from the start, or half-way.
//!
//! In: `what` it refuses. Out: the account, the engine and the reasons it gives, and the CPU time of the eight threads that
//! worked meanwhile, half of which were made after the start.

use std::ffi::CStr;
use std::io;
use std::time::{Duration, Instant};

use profiler::Config;
use profiler_tests::clock::process_cpu;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use profiler_tests::{Result, sandbox, stats};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

/// Samples a second.
const RATE: u32 = 100;
const THREADS: usize = 8;
/// CPU time of each thread.
const WORK: Duration = Duration::from_millis(150);

/// Starts where something is refused, works, and says what came of it.
pub(crate) fn fault(options: &Options) -> Result<Value> {
    let what: String = options.value("what")?;
    match what.as_str() {
        "calls_refused" => sandbox::refuse(&[libc::SYS_timer_create, libc::SYS_perf_event_open])?,
        "reads_refused" => sandbox::refuse(&[libc::SYS_process_vm_readv])?,
        "calls_deadly" => {
            let timers = [libc::SYS_timer_create, libc::SYS_perf_event_open];
            sandbox::forbid(&[timers, [libc::SYS_process_vm_readv, libc::SYS_memfd_create]].concat())?;
        }
        // One signal may wait for each timer: enough for a few threads.
        "few_signals" => few_signals(5)?,
        "no_proc" => without_proc()?,
        "few_descriptors" | "no_memory" => {}
        other => return Err(format!("what={other:?} is unknown").into()),
    }
    let profiler = profiler::start(Config::new("fault").rate_hz(RATE).interval(Duration::from_secs(1)))?;
    let cpu = process_cpu();
    if what == "no_memory" {
        no_memory()?;
    }
    let limited = (what == "few_descriptors").then(few_descriptors).transpose()?;
    match what.as_str() {
        "no_memory" => drop(spin(Duration::from_secs(2))),
        "reads_refused" => work(2, 10 * WORK)?,
        _ => work(THREADS, WORK)?,
    }
    let cpu = process_cpu() - cpu;
    let running = stats::to_json(&profiler.stats());
    // Whether the last descriptor became a perf event or the connection to the collector is chance; with a limit for good,
    // nothing could be delivered.
    limited.map_or(Ok(()), |before| setrlimit(Resource::Nofile, before))?;
    profiler.pause();
    let flushed = profiler.flush(Duration::from_secs(20));
    let stats = stats::to_json(&profiler.stats());
    Ok(json!({
        "due": cpu.as_secs_f64() * f64::from(RATE), "running": running, "flushed": flushed, "stats": stats,
    }))
}

/// `then`: CPU time of each thread after it has been found.
fn work(threads: usize, then: Duration) -> Result<()> {
    let start = Instant::now();
    let thread = |_| {
        std::thread::spawn(move || {
            spin(WORK);
            // All of them live until the sampler has looked for them.
            std::thread::sleep(Duration::from_millis(1500).saturating_sub(start.elapsed()));
            spin(then);
        })
    };
    let threads: Vec<_> = (0..threads).map(thread).collect();
    threads.into_iter().try_for_each(std::thread::JoinHandle::join).map_err(|_| "a thread panicked".into())
}

/// Becomes a user that has no other process, so that the kernel's count of its signals begins at 0, and may have few.
fn few_signals(most: u64) -> Result<()> {
    setrlimit(Resource::Sigpending, Rlimit { current: Some(most), maximum: Some(most) })?;
    let user = 60_000 + std::process::id() % 5_000;
    // SAFETY: setresuid(2) and prctl(2) with numbers only; no other thread runs yet.
    let outcome = unsafe { libc::setresuid(user, user, user) };
    if outcome != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: as above. Without this, `/proc/self` would belong to root from now on.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
    Ok(())
}

/// Leaves no room for another mapping.
fn no_memory() -> Result<()> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")?.split(' ').next().ok_or("no size")?.parse()?;
    setrlimit(Resource::As, Rlimit { current: Some(pages * 4096), maximum: Some(pages * 4096) })?;
    Ok(())
}

/// Leaves two descriptors to be opened; gives the limit that there was.
fn few_descriptors() -> Result<Rlimit> {
    let highest =
        std::fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(highest.max().unwrap_or(0_u64) + 2), ..before })?;
    Ok(before)
}

/// Moves into a mount namespace in which `/proc` is not mounted.
fn without_proc() -> Result<()> {
    const PROC: &CStr = c"/proc";
    // SAFETY: unshare(2), mount(2) and umount2(2): strings that are valid for the calls; no other thread runs yet.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::umount2(PROC.as_ptr(), libc::MNT_DETACH) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}
