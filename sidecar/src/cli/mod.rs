//! What is said on the command line, and who does it.
//!
//! In: arguments and environment of the process. Out: an exit code; 0: done, 1: it could not be done, 2: the command line or the settings
//! cannot be. Results go to standard output, everything else, logs included, to standard error. Main thread.

mod arguments;

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use self::arguments::{Arguments, Command, RunArguments};
use crate::config::{CommandLine, Config};
use crate::error::Error;
use crate::inspect::Said;
use crate::plain::{plain, plain_lines};
use crate::target::numbers;
use crate::{inspect, oversize, record};

/// What was asked for could not be done.
const FAILED: u8 = 1;
/// What was asked for cannot be: the same code that `clap` exits with.
const MISUSE: u8 = 2;

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return answer(&error),
    };
    log();
    match arguments.command {
        Command::Run(run) => self::run(*run),
        Command::Record(asked) => match asked.options() {
            Ok(options) => looking(|| ended(record::main(&options))),
            Err(error) => complain(&error, MISUSE),
        },
        Command::Top(asked) => looking(|| ended(inspect::top(&asked))),
        Command::Heap(asked) => looking(|| shown(inspect::heap(&asked))),
        Command::Goroutines(asked) => {
            looking(|| shown(inspect::goroutines(&asked, BufWriter::new(std::io::stdout().lock()))))
        }
        Command::Contention(asked) => looking(|| shown(inspect::contention(&asked))),
        Command::Doctor { json } => doctor(json),
        Command::Hold { command } => match record::hold(&command) {
            Some(error) => complain(&error, FAILED),
            None => ExitCode::from(FAILED),
        },
    }
}

/// What `clap` says of a command line: help, or what is wrong with it.
fn answer(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader who has gone (`| head`) is no failure.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    drop(writeln!(std::io::stderr(), "{}", text.trim_end().split('\n').map(plain).collect::<Vec<_>>().join("\n")));
    ExitCode::from(MISUSE)
}

/// Logs to standard error what `PROFILER_LOG` or `RUST_LOG` asks for: `info` where neither does, or asks for what is no level.
fn log() {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let variable = |name: &'static str| Some((name, std::env::var(name).ok().filter(|value| !value.is_empty())?));
    let asked = ["PROFILER_LOG", "RUST_LOG"].into_iter().find_map(variable);
    // A word alone would be the name of a module, of which all is logged, and nothing else.
    let is_level = |value: &str| value.contains(['=', ',']) || LEVELS.contains(&value.to_ascii_lowercase().as_str());
    let level = asked.as_ref().map(|(_, value)| &**value).filter(|value| is_level(value));
    // What a peer does wrong is counted; the library that speaks HTTP/2 has a warning for each frame of it, as many as the peer likes.
    let filter = EnvFilter::builder().parse_lossy(format!("h2=error,{}", level.unwrap_or("info")));
    // A log that cannot be written (a full disk, a reader who has gone) is told to nobody: to say so on standard error would be a panic.
    let log = tracing_subscriber::fmt().log_internal_errors(false).with_writer(std::io::stderr);
    // Collectors of logs show colours as they are written.
    log.with_env_filter(filter).with_target(false).with_ansi(false).init();
    if let Some((name, value)) = asked.filter(|(_, value)| !is_level(value)) {
        tracing::warn!("{name}={value:?} is no level: error, warn, info or debug is; info is logged");
    }
}

fn run(arguments: RunArguments) -> ExitCode {
    let (check_only, until_eof) = (arguments.check_config, arguments.until_eof);
    let config = match Config::new(arguments.into(), &|name| std::env::var_os(name)).and_then(Config::at_hand) {
        Ok(config) => config.among(std::env::vars_os().map(|(name, _)| name)),
        Err(error) => return complain(&error, MISUSE),
    };
    if check_only {
        return config.check_folders().map_or_else(|error| complain(&error, MISUSE), |()| say(&config.to_string()));
    }
    looking(|| ended(crate::run::main(config, until_eof)))
}

/// Looks at processes, where their numbers are theirs.
fn looking(look: impl FnOnce() -> ExitCode) -> ExitCode {
    oversize::heard();
    numbers::check().map_or_else(|error| complain(&error, FAILED), |()| look())
}

/// Looks at what works, with the processes that variables and file choose.
fn doctor(json: bool) -> ExitCode {
    let config = match Config::new(CommandLine::default(), &|name| std::env::var_os(name)) {
        Ok(config) => config.among(std::env::vars_os().map(|(name, _)| name)),
        Err(error) => return complain(&error, MISUSE),
    };
    let idle = config.idle().into_iter().map(|(setting, why)| format!("{setting} has no effect: {why}")).collect();
    let discovery = crate::pipeline::discovery(crate::run::options(&config));
    let done = crate::doctor::main(crate::doctor::Arguments { json, discovery, idle });
    done.unwrap_or_else(|error| complain(&error, FAILED))
}

fn ended(outcome: Result<(), Error>) -> ExitCode {
    outcome.map_or_else(|error| complain(&error, FAILED), |()| ExitCode::SUCCESS)
}

fn shown(said: Result<Said, Error>) -> ExitCode {
    let said = match said {
        Ok(said) => said,
        Err(error) => return complain(&error, FAILED),
    };
    // Nobody is left to tell where standard error is closed.
    drop(write!(std::io::stderr(), "{}", said.remarks));
    if said.shown.is_empty() { ExitCode::SUCCESS } else { say(said.shown.trim_end()) }
}

/// An error for the person at the terminal.
fn complain(error: &Error, code: u8) -> ExitCode {
    // Nobody is left to tell where standard error is closed.
    drop(writeln!(std::io::stderr(), "profiler-sidecar: {}", plain_lines(&error.to_string())));
    ExitCode::from(code)
}

/// A result; a reader who has gone (`| head`) is no failure.
fn say(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&Error::new("standard output", error.to_string(), "give it a place to write to"), FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
