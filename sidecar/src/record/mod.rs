//! The command `record`: one capture of a process, or of a command with its descendants, into a file.
//!
//! In: whom, how long, where to ([`Options`]). Out: a file whose name says its form, a table of the hottest functions on standard error.
//! One thread samples; another one waits for Ctrl-C and other signals that ask to end, which ends the capture early and keeps it.

mod command;
mod lost;
mod output;
mod session;
mod subject;
mod top;
mod windows;

use std::ffi::OsString;
use std::time::Duration;

pub use self::command::{HOLD, hold};
pub use self::lost::{lost_since, lost_text};
pub use self::output::{Output, joined};
pub use self::session::{interrupted, main};
pub use self::subject::{can_be_sampled, process_of, why_none};
pub use self::top::table as hottest;

/// What to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whom.
    pub subject: Subject,
    /// How long at most; `None`: until the command ends, or Ctrl-C.
    pub duration: Option<Duration>,
    /// Where to.
    pub output: Output,
    /// Samples a second and processor.
    pub rate_hz: u32,
    /// Whether stacks go on into the kernel.
    pub kernel: bool,
    /// Whether samples say which processor they were taken on.
    pub processors: bool,
}

/// Whom to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A process that runs.
    Process(u32),
    /// A program with its arguments, from its first instruction on, and all processes that it starts.
    Command(Vec<OsString>),
}

#[cfg(test)]
mod tests;
