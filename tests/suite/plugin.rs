//! The profiler in a library that a program in another language loads: a plugin of a C program, an extension of Python.
//!
//! In: the plugin of `plugin/lib.rs`, once with little thread-local memory, which the dynamic linker puts at a fixed
//! distance from each thread's pointer, and once with much, which it puts anywhere; hosts in C and Python. Out: right
//! samples and an exact account, no allocation and no look-up of thread-local memory in the handler, and a library that
//! stays when its host closes it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_tests::process::{build, run};
use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::tally::{is_named, samples_of};
use serde_json::Value;

use crate::scenario::{assert_lawful, clean, half_turn, number, result, sending};

fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds a plugin, without jemalloc: that keeps thread-locals which only a program and what it is linked with have room for.
pub(crate) fn build_plugin(name: &str) -> PathBuf {
    let example = format!("--example={name}");
    let built = build(directory(), &["--package=profiler-tests", "--no-default-features", &example]).unwrap();
    let file = format!("lib{name}.so");
    built.into_iter().find(|path| path.ends_with(&file)).expect("cargo built no plugin")
}

/// Builds the host in C, for one test: tests run side by side.
pub(crate) fn build_host(test: &str) -> PathBuf {
    let host = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-{test}"));
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Werror", "-rdynamic", "-fno-builtin-malloc", "-o"]).arg(&host);
    command.arg(directory().join("plugin/host/host.c")).args(["-ldl", "-lpthread"]);
    let finished = run(&mut command, Duration::from_secs(60)).unwrap();
    assert!(finished.status.success(), "{}", finished.stderr);
    host
}

/// Runs a host with a plugin, for a second of work; what it said, after what holds for every host.
fn run_host(command: &mut Command, plugin: &Path) -> (Value, Receiver) {
    let receiver = Receiver::start().unwrap();
    clean(command.arg(plugin).arg("1000"));
    let _turn = half_turn();
    let outcome = result(sending(command, &receiver, Protocol::Http));
    assert_lawful(&receiver);
    assert_eq!(outcome["ended"], 0, "{outcome}");
    let of = |path: &str| number(&outcome, path);
    assert_eq!((of("/stats/pending"), &outcome["stats"]["balances"]), (0, &true.into()), "{outcome}");
    let tally = receiver.accepted();
    assert_eq!(of("/stats/exported"), tally.stacks, "{outcome}");
    // The plugin's own thread works a second at 1 kHz; the weight stands for it whatever the kernel's tick is.
    let (plugin, host) = (tally.below("plugin_burn"), tally.weight);
    assert!(plugin > 700 && plugin < 1300, "{plugin} periods in the plugin, {host} in all: {outcome}");
    assert!(host > plugin + 200, "{plugin} periods in the plugin, {host} in all: {outcome}");
    // Its scope is a little longer than the function.
    let seen: Vec<_> = receiver.bodies().iter().flat_map(|body| &body.profiles).flat_map(samples_of).collect();
    let tagged = seen.iter().filter(|sample| sample.tags.contains("from=plugin"));
    let inside = tagged.filter(|sample| sample.stack.iter().any(|name| is_named(name, "plugin_burn")));
    let inside = inside.map(|sample| sample.weight).sum::<i64>();
    assert_eq!(inside, plugin, "a tag belongs to its thread, and is seen there: {outcome}");
    assert!(tally.tagged("from", "plugin") <= tally.below("plugin_work"), "and nowhere else: {outcome}");
    (outcome, receiver)
}

fn in_a_c_program(name: &str) -> Value {
    let (outcome, receiver) = run_host(&mut Command::new(build_host(name)), &build_plugin(name));
    assert!(receiver.accepted().below("host_burn") > 200, "the host's own thread is not seen: {outcome}");
    assert_eq!((number(&outcome, "/allocations"), number(&outcome, "/resolutions")), (0, 0), "{outcome}");
    assert_eq!(outcome["stays"], true, "the library went away below its handler: {outcome}");
    outcome
}

/// Check that a plugin profiles its host, that the handler allocates nothing and looks no thread-local up on a thread that
/// never called the plugin, that the plugin stays in memory, and that late signals are harmless.
#[test]
fn a_plugin_profiles_a_c_program() {
    in_a_c_program("plugin");
}

/// Check the same where thread-locals of the plugin are not at a fixed place, so that a first touch would allocate.
#[test]
fn a_plugin_with_much_thread_local_memory_profiles_a_c_program() {
    let outcome = in_a_c_program("plugin_large");
    assert_eq!(outcome["fixed"], 0, "the plugin's thread-locals are at a fixed place all the same: {outcome}");
}

/// How many signals a host sent that does so in one of its ways, and how many its handler got, with each of the plugins.
fn assert_each_signal_came_once(way: &str) {
    for name in ["plugin", "plugin_large"] {
        let mut host = Command::new(build_host(&format!("{way}-{name}")));
        clean(host.arg(build_plugin(name)).args(["0", way]));
        let _turn = half_turn();
        let receiver = Receiver::start().unwrap();
        let outcome = result(sending(&mut host, &receiver, Protocol::Http));
        assert_eq!((number(&outcome, "/got"), number(&outcome, "/sent")), (100, 100), "{name}: {outcome}");
    }
}

/// Check that a handler that passes on what it gets, and that a plugin's was put in front of by another start, gets each signal of others once, on
/// a thread that the plugin does not know.
#[test]
fn two_handlers_do_not_call_each_other_for_ever() {
    assert_each_signal_came_once("again");
}

/// Check that a handler that is left by jumps gets each signal, also further down the stack than the one before, and on a thread that got
/// the place in memory of one that jumped.
#[test]
fn a_handler_that_is_left_by_jumps_gets_every_signal() {
    assert_each_signal_came_once("jumps");
}

/// Check that a plugin profiles a Python program, the threads of the interpreter included.
#[test]
fn a_plugin_profiles_python() {
    let python = Command::new("python3").arg("--version").output();
    assert!(python.is_ok_and(|output| output.status.success()), "python3 is missing; see need_python in .ci/tools.sh");
    let mut command = Command::new("python3");
    let (outcome, _) = run_host(command.arg(directory().join("plugin/host/host.py")), &build_plugin("plugin"));
    assert_eq!(number(&outcome, "/started"), 0, "{outcome}");
}
