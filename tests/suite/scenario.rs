//! Starts scenarios: which program, in which environment, sending where.
//!
//! In: a scenario's name and options, and a receiver. Out: the running child, or what it said last.

use std::io::Write;
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use profiler_tests::process::{Running, run};
use profiler_tests::receiver::{Protocol, Receiver, list};
use serde_json::Value;

/// How long a scenario may take that does not say otherwise: many times what it needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// The command of a scenario, in an environment in which no variable of ours is set.
pub(crate) fn command(name: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scenario"));
    command.arg(name).args(options);
    clean(&mut command);
    command
}

/// Takes the variables that the profiler reads out of a command's environment.
pub(crate) fn clean(command: &mut Command) {
    let ours = |name: &str| name.starts_with("OTEL_") || name.starts_with("PROFILER_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
}

/// Lets `command` send to `receiver`.
pub(crate) fn sending<'a>(command: &'a mut Command, receiver: &Receiver, protocol: Protocol) -> &'a mut Command {
    sending_to(command, &receiver.endpoint(), protocol)
}

/// Lets `command` send to whoever is at `endpoint`.
pub(crate) fn sending_to<'a>(command: &'a mut Command, endpoint: &str, protocol: Protocol) -> &'a mut Command {
    let protocol = match protocol {
        Protocol::Grpc => "grpc",
        Protocol::Http => "http/protobuf",
    };
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
}

/// Starts `command`.
pub(crate) fn start(command: &mut Command) -> Running {
    Running::start(command, LIMIT).unwrap()
}

/// Runs `command` to its end; its last line.
pub(crate) fn result(command: &mut Command) -> Value {
    run(command, LIMIT).unwrap().json().unwrap()
}

/// What tests share of the machine: as many processors as the smallest one has that they run on.
const PROCESSORS: usize = 2;
static FREE: Mutex<usize> = Mutex::new(PROCESSORS);
static FREED: Condvar = Condvar::new();

/// Processors that a test has to itself, as far as the other tests go, until this is dropped.
#[must_use]
pub(crate) struct Turn(usize);

impl Turn {
    fn of(processors: usize) -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = FREED.wait_while(free, |free| *free < processors).unwrap_or_else(PoisonError::into_inner);
        *free -= processors;
        Self(processors)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        FREED.notify_all();
    }
}

/// The whole machine, for a test that keeps more than one processor busy and compares what came of it.
pub(crate) fn turn() -> Turn {
    Turn::of(PROCESSORS)
}

/// A part of it, for a test that keeps one processor busy, or is as right beside another one. A test that takes none does next
/// to nothing, or waits.
pub(crate) fn half_turn() -> Turn {
    Turn::of(PROCESSORS / 2)
}

/// Says that something was not tried, and why: past the test runner, which shows nothing of tests that pass.
pub(crate) fn not_run(what: &str, why: &str) {
    // Nobody is left to be told when standard error is gone.
    let _written = writeln!(std::io::stderr(), "\nNOT RUN: {what}: {why}");
}

/// Checks that no body broke a rule of OTLP or of a backend, and that there were any.
#[track_caller]
pub(crate) fn assert_lawful(receiver: &Receiver) {
    let findings = receiver.findings();
    assert!(findings.is_empty(), "what was sent breaks rules:{}", list(&findings));
    assert!(!receiver.bodies().is_empty(), "nothing was sent");
}

/// A number of a JSON object.
#[track_caller]
pub(crate) fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("there is no number at {path} in {value}"))
}
