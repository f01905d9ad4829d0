//! A process that is meant by its number.
//!
//! In: a pid. Out: the process, which a later one of the same number is not taken for; why nothing is sampled of it.

use crate::discover::WhyNot;
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

/// Whether a process can be sampled, as far as is known when sampling begins.
///
/// # Errors
/// When it cannot, and time will not change that.
pub fn can_be_sampled(pipeline: &Pipeline, process: Process) -> Result<(), Error> {
    match why_not(pipeline, process) {
        None | Some(WhyNot::NoAnswer) => Ok(()),
        Some(why) => Err(Error::new(format!("process {} cannot be sampled", process.pid()), why.to_string(), DOCTOR)),
    }
}

/// Why there is no sample of a process.
///
/// # Errors
/// The same, where there can be none.
pub fn why_none(pipeline: &Pipeline, process: Process) -> Result<&'static str, Error> {
    let what = format!("nothing was sampled of process {}", process.pid());
    why_not(pipeline, process).map_or(Ok(IDLE), |why| Err(Error::new(what, why.to_string(), DOCTOR)))
}

fn why_not(pipeline: &Pipeline, process: Process) -> Option<WhyNot> {
    let target = pipeline.targets().into_iter().find(|target| target.process == process)?;
    if target.is_below { Some(WhyNot::Below) } else { target.profiled.as_ref().err().cloned() }
}

const IDLE: &str = "it spent no time on a processor while it was recorded";
const DOCTOR: &str = "`profiler-sidecar doctor` says what can be sampled here";
