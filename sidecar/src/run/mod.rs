//! The command `run`: the agent.
//!
//! In: the settings. Out: profiles, to destinations, page and pulls, until SIGTERM or SIGINT. Two threads: `sampling` takes records
//! out of the kernel and names them ([`sampling`]); the main one assembles, exports, serves and receives ([`io`]). All that needs privilege is
//! done before there is a second thread, and dropped.

mod io;
mod runtimes;
mod sampling;
mod source;
mod stats;

use std::sync::Arc;

use profiler::Ledger;
use profiler::serve::Server;

use self::io::Io;
use self::sampling::Sampling;
use self::source::Handle;
use crate::budget;
use crate::config::Config;
use crate::error::Error;
use crate::pipeline::{self, Pipeline};
use crate::privilege::{self, Privilege};
use crate::receive;

/// Runs until it is told to stop, or, if it is to, until standard input ends. Says on standard output where it is found, `profiles URL` and
/// `receives URL`, and then `ready`.
///
/// # Errors
/// If an address or a thread cannot be had. What the kernel refuses only lessens what is done.
pub fn main(config: Config, until_eof: bool) -> Result<(), Error> {
    let privilege = Privilege::current()?;
    privilege.log();
    let served = config.serve.as_deref().map(Server::bind).transpose().map_err(of_sdk)?;
    let received = config.receive.map(receive::bind).transpose()?;
    let ledger = Arc::<Ledger>::default();
    let pipeline = Pipeline::open(options(&config), Arc::clone(&ledger), false)?;
    privilege::drop_setup()?;
    let bounds = budget::Bounds { cpu_percent: config.cpu_percent, memory: config.memory };
    let (handle, commands) = Handle::new(ledger, config.rate_hz, privilege.tier());
    let (tasks, inbox) = io::channel();
    let sampling = Sampling::new(pipeline, &config, bounds, handle.clone(), tasks);
    let thread = std::thread::Builder::new().name("sampling".into()).spawn(move || sampling.run(&commands)).map_err(
        |error| Error::new("a thread", error.to_string(), "raise the limit of processes (RLIMIT_NPROC, pids.max)"),
    )?;
    privilege::drop_clock()?;
    let io = Io { served, received, until_eof, memory: config.memory, queue_bytes: config.queue_bytes, handle };
    let ran = io.run(config.destinations, inbox);
    if thread.join().is_err() {
        tracing::error!("the thread that samples has panicked; please report this");
    }
    ran
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
    }
}

/// An error of the SDK's, which is of the same three parts.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn of_sdk(error: profiler::Error) -> Error {
    let text = error.to_string();
    let (what, rest) = text.split_once(": ").unwrap_or((&text, ""));
    let (why, remedy) = rest.rsplit_once("; ").unwrap_or((rest, ""));
    Error::new(what, why, remedy)
}
