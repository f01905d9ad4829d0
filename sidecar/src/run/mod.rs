//! The command `run`: the agent.
//!
//! In: the settings. Out: profiles, to destinations, page and pulls, until SIGTERM or SIGINT. Three threads: `sampling` takes records
//! out of the kernel and names them ([`sampling`]); `captures` reads now and then what Go's runtimes keep ([`captures`]); the main one assembles,
//! exports, serves, receives ([`io`]) and asks programs that serve profiles themselves ([`pulls`]). All that needs privilege is
//! done before there is a second thread, and dropped.

mod captures;
mod finding;
mod instruments;
mod io;
mod metrics;
mod outside;
mod pulls;
mod readers;
mod runtimes;
mod sampling;
mod sights;
mod source;
mod stats;
mod whose;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler::serve::Server;

use self::captures::Captures;
use self::io::{Io, Waiting};
use self::pulls::Pulls;
use self::sampling::{LIMIT_CHANGED, Sampling};
use self::source::Handle;
use crate::allocator;
use crate::bpf;
use crate::budget;
use crate::config::{Config, of_sdk};
use crate::error::Error;
use crate::pipeline::{self, Pipeline};
use crate::privilege::{self, Privilege};
use crate::receive;
use crate::target::Process;

/// How long the sampling thread may take to end, once it has nothing more to say.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// Runs until it is told to stop, or, if it is to, until standard input ends. Says on standard output where it is found, `profiles URL` and
/// `receives URL`, and then `ready`.
///
/// # Errors
/// If an address or a thread cannot be had. What the kernel refuses only lessens what is done.
pub fn main(config: Config, until_eof: bool) -> Result<(), Error> {
    allocator::share_one_heap();
    let waiting = Waiting::begin()?;
    let privilege = Privilege::current()?;
    privilege.log();
    for (setting, why) in config.idle() {
        tracing::warn!(setting, "a setting has no effect: {why}");
    }
    let (wanted_hz, attainable_hz) = (config.rate_hz, bpf::attainable_rate_hz(config.rate_hz));
    if attainable_hz < wanted_hz {
        tracing::warn!(attainable_hz, wanted_hz, "{LIMIT_CHANGED}");
    }
    for pid in &config.filter.pids {
        if let Err(fault) = Process::named(*pid) {
            tracing::warn!(pid, "{fault}: {}", fault.remedy());
        }
    }
    let served =
        config.serve.as_ref().map(|said| Server::bind_by(&said.origin, &said.value)).transpose().map_err(of_sdk)?;
    let served = served.map(|server| server.secured(&config.security)).transpose().map_err(of_sdk)?;
    let received = config.receive.map(receive::bind).transpose()?;
    let ledger = Arc::<Ledger>::default();
    let wanted = pipeline::Options { rate_hz: attainable_hz, ..options(&config) };
    let pipeline = Pipeline::open(wanted, Arc::clone(&ledger), false)?;
    privilege::drop_setup()?;
    let bounds = budget::Bounds { cpu_percent: config.cpu_percent, memory: config.memory };
    let (handle, commands) = Handle::new(ledger, &config, (privilege.tier(), attainable_hz));
    let (tasks, inbox) = io::channel();
    let sampling = Sampling::new(pipeline, &config, (bounds, attainable_hz), handle.clone(), tasks);
    let thread = std::thread::Builder::new().name("sampling".into()).spawn(move || sampling.run(&commands)).map_err(
        |error| Error::new("a thread", error.to_string(), "raise the limit of processes (RLIMIT_NPROC, pids.max)"),
    )?;
    privilege::drop_clock()?;
    // After the last of what needs privilege: it needs none but to read memory.
    let captured = Captures::start(&config, &handle)?;
    let pulls = Pulls::new(&config, &handle);
    let Config { memory, queue_bytes, spool, metrics, .. } = config;
    let metrics = (metrics, config.runtime_interval);
    let io = Io { served, received, until_eof, captured, pulls, metrics, memory, queue_bytes, spool, handle };
    let ran = io.run(waiting, config.destinations, inbox);
    ran?;
    match has_panicked(thread) {
        true => Err(Error::new("the thread that samples", "it has panicked", "please report this, with the log")),
        false => Ok(()),
    }
}

/// Whether a thread that is about to end panicked. One that waits for a target's file for ever is left behind: the process ends with it.
fn has_panicked(thread: JoinHandle<()>) -> bool {
    let until = Instant::now() + LAST_STEPS;
    while !thread.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.is_finished() && thread.join().is_err()
}

/// What the pipeline is to do by these settings.
#[must_use]
pub fn options(config: &Config) -> pipeline::Options {
    pipeline::Options {
        rate_hz: config.rate_hz,
        kernel: config.kernel,
        filter: config.filter.clone(),
        family: None,
        profile_sdk: config.profile_sdk,
        // An attribute of each sample makes one of a few into many.
        processors: false,
    }
}
