//! One profiler under measurement, in a process of its own: does one task under it and prints what it saw as JSON.
//!
//! In: the task and its numbers as `key=value` on the command line. Out: lines of JSON on standard output. The program
//! of each profiler (`bin/subject_*`) is [`main`] with its own [`Subject`]; they cannot share one program, for all of them
//! want SIGPROF, and two of the peers export the same symbol.

mod options;
mod tags;
mod task;
mod turns;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use serde_json::{Value, json};

pub use options::Options;
pub use tags::Rounds;
pub use turns::Turns;

use crate::Result;

/// A profiler that takes samples from its start to its finish.
pub trait Subject: Sized {
    /// Starts it at `rate_hz`; what it sends goes to `url`.
    ///
    /// # Errors
    /// Its own.
    fn start(rate_hz: u32, url: &str) -> Result<Self>;

    /// The stacks that it took so far, as far as it can say without being stopped.
    ///
    /// # Errors
    /// Its own.
    fn stacks(&mut self) -> Result<Option<u64>>;

    /// How it is told what a thread works for, each a loop of so many rounds under a name of the row `tags`.
    fn ways(&self) -> Vec<(&'static str, Rounds<'_>)> {
        Vec::new()
    }

    /// Stops it, once everything that it took is where it belongs.
    ///
    /// # Errors
    /// Its own.
    fn finish(self) -> Result<()>;
}

/// A service: it says where it listens, and serves until standard input ends. Asked to, it makes a span for each request, and tells
/// its profiler what the request is; how often it polled futures of such requests.
pub type Service = fn(bool, &mut dyn FnMut(SocketAddr)) -> Result<u64>;

/// The whole program of a subject; `service` is the one of its task `serve`.
pub fn main<S: Subject>(service: Service) -> ExitCode {
    answer(Options::parse(std::env::args().skip(1)).and_then(|options| task::run::<S>(&options, service)))
}

/// Says what came of a task, and whether that was well.
#[must_use]
pub fn answer(outcome: Result<Value>) -> ExitCode {
    match outcome {
        Ok(value) => {
            say(&value);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
    }
}

/// One line of JSON on standard output.
pub fn say(value: &Value) {
    let mut stdout = std::io::stdout().lock();
    // Nobody is left to be told when standard output is gone.
    let _written = writeln!(stdout, "{value}").and_then(|()| stdout.flush());
}
