//! A machine that refuses: from the start, or half-way.
//!
//! In: `what` it refuses. Out: why that cannot be had here; or the account, the engine and the reasons it gives, and the CPU time of the eight threads that
//! worked meanwhile, half of which were made after the start.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler::Config;
use profiler_tests::clock::process_cpu;
use profiler_tests::subject::Options;
use profiler_tests::workload::spin;
use profiler_tests::{Result, sandbox, stats};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::FLUSH;

/// Samples a second.
const RATE: u32 = 100;
const THREADS: usize = 8;
/// A quarter of the descriptors that there are where they are few: fewer than threads.
const QUARTER: u64 = 6;
/// CPU time of each thread.
const WORK: Duration = Duration::from_millis(150);

/// Starts where something is refused, works, and says what came of it.
pub(crate) fn fault(options: &Options) -> Result<Value> {
    let what: String = options.value("what")?;
    match what.as_str() {
        "calls_refused" => sandbox::refuse(&[libc::SYS_timer_create, libc::SYS_perf_event_open])?,
        "reads_refused" => sandbox::refuse(&[libc::SYS_process_vm_readv])?,
        "calls_deadly" | "calls_deadly_reaped" => {
            let timers = [libc::SYS_timer_create, libc::SYS_perf_event_open];
            sandbox::forbid(&[timers, [libc::SYS_process_vm_readv, libc::SYS_memfd_create]].concat())?;
        }
        // One signal may wait for each timer: enough for a few threads.
        "few_signals" => {
            if let Some(why) = refusal(few_signals(5))? {
                return Ok(json!({ "refused": why }));
            }
        }
        "no_proc" => {
            if let Some(why) = refusal(without_proc())? {
                return Ok(json!({ "refused": why }));
            }
        }
        "quarter_of_descriptors" => {
            setrlimit(Resource::Nofile, Rlimit { current: Some(QUARTER * 4), ..getrlimit(Resource::Nofile) })?;
        }
        "few_descriptors" | "no_descriptors" | "no_memory" => {}
        other => return Err(format!("what={other:?} is unknown").into()),
    }
    let reaper = (what == "calls_deadly_reaped").then(Reaper::start);
    let profiler = profiler::start(Config::new("fault").rate_hz(RATE).interval(Duration::from_secs(1)))?;
    drop(reaper);
    let cpu = process_cpu();
    if what == "no_memory" {
        no_memory()?;
    }
    let limited = ["few_descriptors", "no_descriptors"].contains(&&*what).then(few_descriptors).transpose()?;
    let taken = if what == "no_descriptors" { all_descriptors() } else { Vec::new() };
    match what.as_str() {
        "no_memory" => drop(spin(Duration::from_secs(2))),
        "reads_refused" => work(2, 10 * WORK)?,
        _ => work(THREADS, WORK)?,
    }
    let cpu = process_cpu() - cpu;
    let running = stats::to_json(&profiler.stats());
    // Whether the last descriptor became a perf event or the connection to the collector is chance; with a limit for good,
    // nothing could be delivered.
    drop(taken);
    limited.map_or(Ok(()), |before| setrlimit(Resource::Nofile, before))?;
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    let stats = stats::to_json(&profiler.stats());
    Ok(json!({
        "due": cpu.as_secs_f64() * f64::from(RATE), "running": running, "flushed": flushed, "stats": stats,
    }))
}

/// A thread that waits for all children that there are, whoever made them, until this is dropped.
struct Reaper(Arc<AtomicBool>);

impl Reaper {
    fn start() -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let is_enough = Arc::clone(&enough);
        std::thread::spawn(move || {
            while !is_enough.load(Ordering::Relaxed) {
                // SAFETY: waitpid(2) without a place for the status.
                unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) };
            }
        });
        Self(enough)
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Why the kernel does not let this be tried: in a container root has fewer rights than elsewhere, and may know of no other user.
fn refusal(outcome: io::Result<()>) -> Result<Option<String>> {
    match outcome {
        Ok(()) => Ok(None),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EINVAL) => Ok(Some(error.to_string())),
            _ => Err(error.into()),
        },
    }
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
fn few_signals(most: u64) -> io::Result<()> {
    setrlimit(Resource::Sigpending, Rlimit { current: Some(most), maximum: Some(most) })?;
    let user = 60_000 + std::process::id() % 5_000;
    // SAFETY: setresuid(2) and prctl(2) with numbers only; no other thread runs yet.
    let outcome = unsafe { libc::setresuid(user, user, user) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above. Without this, `/proc/self` would belong to root from now on.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) };
    Ok(())
}

/// Leaves no room for another mapping, and some in the heap for what this program tells of itself.
fn no_memory() -> Result<()> {
    let room: Vec<Vec<u8>> = (0..16).map(|_| vec![1; 32 << 10]).collect();
    // Above it, so that the C library does not give it back.
    std::mem::forget(Box::new([1_u8; 64]));
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")?.split(' ').next().ok_or("no size")?.parse()?;
    let size = pages * rustix::param::page_size() as u64;
    setrlimit(Resource::As, Rlimit { current: Some(size), maximum: Some(size) })?;
    drop(room);
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

/// Files on all descriptors that may still be opened.
fn all_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Moves into a mount namespace in which `/proc` is not mounted.
fn without_proc() -> io::Result<()> {
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
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
