//! One scenario under the profiler, in a process of its own: `scenario NAME key=value…`.
//!
//! In: what to do, on the command line; where profiles go, in `OTEL_*` and `PROFILER_*` as for any user; lines on standard
//! input where a scenario waits. Out: lines of JSON on standard output, the last of which is the result. Signal handler,
//! timers, limits and environment belong to a process, so each test of them starts one of these, with a time in which it
//! must end (`suite/`).

mod account;
mod burn;
mod closed;
mod exit;
mod fault;
mod fork;
mod handlers;
mod leader;
mod metrics;
mod published;
mod resumes;
mod runtimes;
mod settings;
mod spans;
mod takeover;
mod tasks;
mod watched;

use std::process::ExitCode;
use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::child::{say, wait_for_word};
use profiler_tests::subject::Options;
use serde_json::{Value, json};

/// How much longer than it should a workload may take where the machine is busy with other things.
const MORE: Duration = Duration::from_secs(60);
/// How long a last flush may take there, where it is not the time that is tried.
const FLUSH: Duration = Duration::from_secs(100);

fn main() -> ExitCode {
    match run() {
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

fn run() -> Result<Value> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which scenario?")?;
    let options = Options::parse(arguments)?;
    match name.as_str() {
        "shares" => burn::shares(&options),
        "spin" => burn::spinning(&options),
        "brief" => burn::brief(&options),
        "held_up" => burn::held_up(&options),
        "paused" => burn::paused(&options),
        "account" => account::account(&options),
        "resumes" => resumes::resumes(&options),
        "settings" => settings::start(&options),
        "second" => settings::second(),
        "closed" => closed::closed(&options),
        "limits" => settings::without_timers(),
        "fault" => fault::fault(&options),
        "fork" => fork::fork(&options),
        "handlers" => handlers::handlers(&options),
        "leader" => leader::leader(),
        "metrics" => metrics::metrics(),
        "tasks" => tasks::tasks(&options),
        "observed_by_another" => spans::observed_by_another(),
        "spans" => spans::spans(&options),
        "takeover" => takeover::takeover(&options),
        "published" => published::published(&options),
        "watched" => watched::watched(&options),
        "exit" => exit::exit(&options),
        other => Err(format!("there is no scenario {other:?}").into()),
    }
}
