//! A process that is meant by its number.
//!
//! In: a pid. Out: the process, which a later one of the same number is not taken for; why nothing is sampled of it.

use crate::discover::BELOW;
use crate::error::Error;
use crate::pipeline::Pipeline;
use crate::target::{Fault, Process, Stat, State};

/// The process of this number.
///
/// # Errors
/// When there is none, it has ended, or it is a thread, of a process or of the kernel.
pub fn process_of(pid: u32) -> Result<Process, Error> {
    let refused = |why: String, remedy: String| Error::new(format!("process {pid}"), why, remedy);
    let (process, stat) = Process::named(pid).map_err(|fault| refused(fault.to_string(), fault.remedy()))?;
    let why = match stat {
        Stat { is_kernel_thread: true, .. } => "it is a thread of the kernel, which is not sampled by itself",
        Stat { state: State::Ended, .. } => "it has ended, and its parent has not asked how",
        _ => return Ok(process),
    };
    Err(refused(why.to_owned(), Fault::Missing { pid, what: String::new() }.remedy()))
}

/// Why there is no sample of a process.
///
/// # Errors
/// The same, where there can be none.
pub fn why_none(pipeline: &Pipeline, process: Process) -> Result<&'static str, Error> {
    let target = pipeline.targets().into_iter().find(|target| target.process == process);
    let why = match target {
        Some(target) if target.is_below => Some(BELOW.to_owned()),
        Some(target) => target.profiled.as_ref().err().map(ToString::to_string),
        None => None,
    };
    let what = format!("nothing was sampled of process {}", process.pid());
    why.map_or(Ok(IDLE), |why| Err(Error::new(what, why, "`profiler-sidecar doctor` says what can be sampled here")))
}

const IDLE: &str = "it spent no time on a processor";
