//! A machine or a peer that does not play along: the service goes on, and the profiler says what it could not do.

use std::time::{Duration, Instant};

use profiler_tests::process::Running;
use profiler_tests::receiver::{Answer, Protocol, Receiver};

use serde_json::{Value, json};

use crate::scenario::{command, half_turn, not_run, number, result, sending, start};

/// Check that where no timer can be made the last resort takes samples, and that the refused ones are named with reasons, in the
/// log, too, which also has the one that was taken.
#[test]
fn without_permission_for_timers_the_last_resort_works() {
    let outcome = result(&mut command("limits", &[]));
    assert_eq!(outcome["started"], true, "{outcome}");
    assert!(number(&outcome, "/stats/taken") > 10, "{outcome}");
    let engine = &outcome["running"]["engine"];
    assert_ne!(engine["name"], "timer", "{outcome}");
    let refused = engine["refused"].as_array().unwrap();
    assert!(!refused.is_empty(), "{outcome}");
    assert!(refused.iter().all(|engine| !engine["why"].as_str().unwrap().is_empty()), "{outcome}");
    let log: Vec<&str> = outcome["log"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let is_logged = |words: &[&str]| log.iter().any(|line| words.iter().all(|word| line.contains(word)));
    for engine in refused {
        let [name, why] = ["name", "why"].map(|part| engine[part].as_str().unwrap());
        assert!(is_logged(&["cannot be used", &format!("engine=\"{name}\""), why]), "{name}: {outcome}");
    }
    let name = engine["name"].as_str().unwrap();
    assert!(is_logged(&["samples are taken", &format!("engine=\"{name}\"")]), "{outcome}");
}

/// A run of the scenario `takeover`, and the one thing that the profiler says about it.
fn takeover(how: &str) -> (Value, String) {
    let _turn = half_turn();
    let outcome = result(&mut command("takeover", &[&format!("how={how}")]));
    let notes = outcome["notes"].as_array().unwrap();
    // Four times as long, of which a second or two without samples.
    let (before, after) = (number(&outcome, "/before"), number(&outcome, "/after"));
    assert!(before > 0 && after > before, "{outcome}");
    assert_eq!(notes.len(), 1, "{outcome}");
    let note = notes[0].as_str().unwrap().to_owned();
    (outcome, note)
}

/// Check that a program that ignores SIGPROF later is noticed, and that samples come again.
#[test]
fn an_ignored_signal_is_noticed_and_taken_back() {
    let (outcome, note) = takeover("ignore");
    assert!(note.contains("put back"), "{outcome}");
}

/// Check that another handler that comes later and keeps the signals is noticed, that samples come again, and that it goes on
/// getting what is not ours.
#[test]
fn a_handler_that_keeps_our_signals_is_noticed_and_stood_behind_us() {
    let (outcome, note) = takeover("keep");
    assert!(note.contains("kept our signals"), "{outcome}");
    assert_eq!(number(&outcome, "/foreign"), 1, "{outcome}");
}

/// Check that another handler that comes later and passes on what is not its own is noticed and left where it is.
#[test]
fn a_handler_that_passes_our_signals_on_is_left_in_front() {
    let (outcome, note) = takeover("pass");
    assert!(note.contains("passes our signals on"), "{outcome}");
    assert!(number(&outcome, "/got") > 10, "{outcome}");
}

/// Check that each of three handlers gets each signal of others once, whoever is in front of whom, before and after other starts of the
/// profiler; and that none gets any once the program ignores the signal, until one comes again.
#[test]
fn each_of_several_handlers_gets_each_signal_once() {
    for info in [0, 1] {
        let outcome = result(&mut command("handlers", &[&format!("info={info}")]));
        let of = |sent: [bool; 3]| sent.map(|sent| if sent { number(&outcome, "/sent") } else { 0 });
        let steps = [
            ("start", [true, false, false]),
            ("the second in front", [true, true, false]),
            ("the end", [true, true, false]),
            ("another start", [true, true, false]),
            ("the third in front", [true; 3]),
            ("a resume", [true; 3]),
            ("ignored", [false; 3]),
            ("a resume where nobody was", [false; 3]),
            ("the first once more", [true, false, false]),
        ];
        assert_eq!(outcome["steps"], json!(steps.map(|(step, got)| (step, of(got)))), "info={info}: {outcome}");
    }
}

/// Check that forked children end well and without samples, and that the parent goes on sampling and delivering.
#[test]
fn a_fork_harms_neither_side() {
    let receiver = Receiver::start().unwrap();
    let outcome = result(sending(&mut command("fork", &["times=20"]), &receiver, Protocol::Grpc));
    assert_eq!(number(&outcome, "/well"), 20, "{outcome}");
    // Of fifty periods, however many stacks stand for them.
    assert!(number(&outcome, "/after") > 25, "the parent stopped sampling: {outcome}");
    assert_eq!(outcome["flushed"], true, "{outcome}");
    assert_eq!(number(&outcome, "/stats/exported"), receiver.accepted().stacks, "{outcome}");
}

/// Check that stacks are whole where the first thread of a program has ended, and the others go on.
#[test]
fn a_first_thread_that_ends_takes_no_stacks_with_it() {
    let receiver = Receiver::start().unwrap();
    let outcome = result(sending(&mut command("leader", &[]), &receiver, Protocol::Grpc));
    let (taken, stopped) = (number(&outcome, "/stats/taken"), number(&outcome, "/stats/degraded/unwind_stopped"));
    assert!(taken > 100 && stopped * 20 < taken, "{outcome}");
    assert_eq!((outcome["flushed"].clone(), number(&outcome, "/stats/exported")), (true.into(), taken), "{outcome}");
}

/// Starts the scenario `exit` with a receiver that never answers, waits until it leaves, and says how long that takes and
/// with which code.
fn leave(how: &str, receiver: &Receiver) -> (Duration, Option<i32>) {
    let _turn = half_turn();
    let mut child: Running = start(sending(&mut command("exit", &[&format!("how={how}")]), receiver, Protocol::Grpc));
    assert_eq!(child.json().unwrap()["leaving"], how);
    let leaving = Instant::now();
    let finished = child.finish().unwrap();
    (leaving.elapsed(), finished.status.code())
}

/// How much longer than its bound something may take on a busy machine; still less than the 10 s that a request may take,
/// which is what it would be without a bound.
const SLACK: Duration = Duration::from_secs(5);

/// Check that leaving while a collector hangs takes no longer than the bound of the guard's drop, 2 s, however one leaves.
#[test]
fn leaving_is_bounded_while_the_collector_hangs() {
    let receiver = Receiver::start().unwrap();
    receiver.answer(Answer::Hang);
    for (how, code, bound) in [("exit", 3, 0), ("leak", 0, 0), ("return", 0, 2)] {
        let (time, status) = leave(how, &receiver);
        assert_eq!(status, Some(code), "{how}");
        assert!(time < Duration::from_secs(bound) + SLACK, "{how} took {time:?}");
    }
}

/// Check that a hanging collector takes nothing from the service: sampling goes on, figures are at hand, and the account
/// balances all the while.
#[test]
fn a_hanging_collector_does_not_stop_sampling() {
    let receiver = Receiver::start().unwrap();
    receiver.answer(Answer::Hang);
    let _turn = half_turn();
    let options = ["seconds=4", "flush=1"];
    let outcome = result(sending(&mut command("account", &options), &receiver, Protocol::Grpc));
    assert_eq!(number(&outcome, "/wrong"), 0, "{outcome}");
    assert!(number(&outcome, "/snapshots") > 200, "{outcome}");
    assert!(number(&outcome, "/stats/taken") > 500, "{outcome}");
    assert_eq!((number(&outcome, "/stats/exported"), &outcome["flushed"]), (0, &false.into()), "{outcome}");
    let seconds = |name: &str| Duration::from_secs_f64(outcome[name].as_f64().unwrap());
    // Snapshots are taken all the while by the host's own thread: none of them waits for the collector.
    assert!(seconds("longest_snapshot_seconds") < SLACK, "{outcome}");
    assert!(seconds("flush_seconds") < Duration::from_secs(1) + SLACK, "{outcome}");
    assert!(seconds("drop_seconds") < Duration::from_secs(2) + SLACK, "{outcome}");
}

/// Check that the profiler needs no directory it can write to.
#[test]
fn nothing_is_written_to_disk() {
    let receiver = Receiver::start().unwrap();
    let mut command = command("settings", &["service=a"]);
    // Not even root can make a file in /proc.
    let outcome = result(sending(command.current_dir("/proc").env("TMPDIR", "/proc"), &receiver, Protocol::Grpc));
    assert_eq!((&outcome["started"], &outcome["flushed"]), (&true.into(), &true.into()), "{outcome}");
    assert_eq!(number(&outcome, "/stats/exported"), receiver.accepted().stacks, "{outcome}");
}

/// Runs the scenario `fault` under an engine, and checks that the account is exact and the weight about right.
#[track_caller]
fn fault(what: &str, engine: &str) -> Value {
    tried(what, engine).unwrap_or_else(|why| panic!("{what}: {why}"))
}

/// The same of what only root may do, and not even root everywhere; where it may not, says that `test` was not run.
#[track_caller]
fn fault_by_root(test: &str, what: &str, engine: &str) -> Option<Value> {
    let root = rustix::process::getuid().is_root();
    let outcome = if root { tried(what, engine) } else { Err("it needs root".to_owned()) };
    outcome.inspect_err(|why| not_run(test, why)).ok()
}

/// What came of the scenario `fault`, or why the machine does not let it be tried.
#[track_caller]
fn tried(what: &str, engine: &str) -> Result<Value, String> {
    let _turn = half_turn();
    let receiver = Receiver::start().unwrap();
    let mut command = command("fault", &[&format!("what={what}")]);
    let outcome = result(sending(command.env("PROFILER_ENGINE", engine), &receiver, Protocol::Grpc));
    if let Some(why) = outcome["refused"].as_str() {
        return Err(why.to_owned());
    }
    let of = |path: &str| number(&outcome, path);
    assert_eq!((&outcome["flushed"], of("/stats/pending")), (&true.into(), 0), "{outcome}");
    assert_eq!(of("/stats/taken"), of("/stats/exported") + of("/stats/lost_total"), "{outcome}");
    assert_eq!(of("/stats/exported"), receiver.accepted().stacks, "{outcome}");
    let weight = of("/stats/weight") as f64 / outcome["due"].as_f64().unwrap();
    assert!((0.8..1.2).contains(&weight), "weight {weight:.2}: {outcome}");
    Ok(outcome)
}

/// Checks that an engine was refused for a reason that names `word`.
#[track_caller]
fn assert_refused(outcome: &Value, engine: &str, word: &str) {
    let refused = outcome["running"]["engine"]["refused"].as_array().unwrap();
    let why = refused.iter().find(|refused| refused["name"] == engine).map(|refused| refused["why"].as_str().unwrap());
    assert!(why.is_some_and(|why| why.contains(word)), "{engine} is not refused for {word}: {outcome}");
}

/// Check that where a filter refuses timers and perf events, `setitimer` takes over, and each refusal is named.
#[test]
fn a_filter_that_refuses_calls_leaves_the_last_resort() {
    let outcome = fault("calls_refused", "perf");
    for (engine, call) in [("perf", "perf_event_open"), ("process_timer", "timer_create")] {
        assert_refused(&outcome, engine, call);
    }
    assert_eq!(outcome["running"]["engine"]["name"], "setitimer", "{outcome}");
}

/// Check that where a filter would end the process for a call, it is not made: not one of the calls that the sampler would
/// like to make, by the thread that starts it, nor later by a handler.
#[test]
fn a_filter_that_kills_is_never_provoked() {
    let outcome = fault("calls_deadly", "perf");
    for engine in ["perf", "timer", "process_timer"] {
        assert_refused(&outcome, engine, "seccomp");
    }
    assert_eq!(outcome["running"]["engine"]["name"], "setitimer", "{outcome}");
    let notes = outcome["running"]["engine"]["notes"].to_string();
    assert!(notes.contains("process_vm_readv"), "that stacks cannot be walked is not said: {outcome}");
}

/// Check the same in a program that waits for children which it did not make: it takes the answer of the child that tries the calls.
#[test]
fn a_filter_that_kills_is_not_provoked_where_others_take_the_answer() {
    let outcome = fault("calls_deadly_reaped", "perf");
    for engine in ["perf", "timer", "process_timer"] {
        assert_refused(&outcome, engine, "seccomp");
    }
}

/// Check that where memory cannot be read through the kernel, the stacks of threads are still whole, but for those taken before
/// the sampler has found out where they end.
#[test]
fn a_filter_that_refuses_reads_leaves_stacks_of_threads_whole() {
    let outcome = fault("reads_refused", "timer");
    let of = |path: &str| number(&outcome, path);
    assert!(of("/stats/taken") > 200, "{outcome}");
    assert!(of("/stats/degraded/unwind_stopped") < of("/stats/taken") / 2, "{outcome}");
    let notes = outcome["running"]["engine"]["notes"].to_string();
    assert!(notes.contains("process_vm_readv: it is refused"), "it is not said: {outcome}");
}

/// Check that a limit of signals that is reached half-way leaves those threads their timers that have them, and the others
/// to the process's.
#[test]
fn a_limit_of_timers_reached_half_way_keeps_what_runs() {
    let Some(outcome) = fault_by_root("a limit of timers of a user of its own", "few_signals", "timer") else { return };
    assert_refused(&outcome, "timer", "timer_create");
    assert_eq!(outcome["running"]["engine"]["name"], "timer", "{outcome}");
}

/// Check that a limit of descriptors that is reached half-way stops no engine: those without one are timed otherwise.
#[test]
fn a_limit_of_descriptors_reached_half_way_keeps_what_runs() {
    for engine in ["perf", "timer"] {
        fault("few_descriptors", engine);
    }
}

/// Check that where the host has taken all descriptors, so that no file with names can be opened, that is said, and that the names come once it gives them back.
#[test]
fn names_come_once_there_are_descriptors() {
    let outcome = fault("no_descriptors", "timer");
    let notes = outcome["running"]["symbol_notes"].to_string();
    assert!(notes.contains("tried again") && notes.contains("Too many open files"), "{outcome}");
    let of = |when: &str| number(&outcome, &format!("/{when}/symbols_resolved"));
    assert!(of("running") == 0 && of("stats") > 0, "{outcome}");
}

/// Check that perf events take no more than a quarter of the descriptors that the process may have: the other threads keep their timers, and
/// it is said why.
#[test]
fn perf_events_leave_most_descriptors_to_the_host() {
    let outcome = fault("quarter_of_descriptors", "perf");
    let engine = &outcome["running"]["engine"];
    let Some(events) = engine["threads"]["perf"].as_u64() else {
        return not_run("a quarter of the descriptors", &format!("this machine allows no perf events: {engine}"));
    };
    assert!(events <= 6 && engine["threads"]["timer"].as_u64() > Some(0), "{outcome}");
    assert_refused(&outcome, "perf", "a quarter of RLIMIT_NOFILE");
}

/// Check that a limit of memory that lets nothing more be mapped, set as soon as `start` returns, ends neither sampling nor the
/// process, whose threads then have what they need.
#[test]
fn a_limit_of_memory_set_after_the_start_keeps_what_runs() {
    for engine in ["perf", "timer"] {
        fault("no_memory", engine);
    }
}

/// Check that the sampler works where `/proc` is not mounted.
#[test]
fn nothing_of_proc_is_needed() {
    for engine in ["perf", "timer"] {
        fault_by_root("unmounting /proc in a namespace of its own", "no_proc", engine);
    }
}

/// Check that a host that closes all descriptors, and is given their numbers anew, loses none of its own to the profiler:
/// they stay what they are, with what is in them; nothing is printed; the profiler ends, says why, counts what it lost, and
/// can be started again.
#[test]
fn descriptors_that_the_host_closed_are_left_alone() {
    let _turn = half_turn();
    for (engine, first) in [("perf", 0), ("timer", 1), ("perf", 4)] {
        let receiver = Receiver::start().unwrap();
        let mut command = command("closed", &[&format!("first={first}")]);
        let sending = sending(command.env("PROFILER_ENGINE", engine), &receiver, Protocol::Grpc);
        let finished = start(sending).finish().unwrap();
        assert_printed_nothing(&finished.stderr);
        let outcome = finished.json().unwrap();
        assert_eq!(outcome["changed"], serde_json::json!([]), "{outcome}");
        assert!(number(&outcome, "/before/exported") > 0 && number(&outcome, "/descriptors") >= 140, "{outcome}");
        for (what, expected) in [("flushed", false), ("refused", true), ("work_goes_on", true), ("stopped", false)] {
            assert_eq!(outcome[what], expected, "{what}: {outcome}");
        }
        assert_eq!(outcome["within"], 503, "{outcome}");
        let of = |path: &str| number(&outcome["after"], path);
        assert_eq!(outcome["after"]["sampling"], false, "{outcome}");
        assert_eq!((of("/pending"), of("/taken")), (0, of("/exported") + of("/lost_total")), "{outcome}");
        assert!(of("/lost/closed") > 0, "{outcome}");
        assert!(outcome["after"]["engine"]["notes"].to_string().contains("closed the descriptors"), "{outcome}");
        let again = &outcome["again"];
        assert_eq!((&again["flushed"], &again["stopped"]), (&true.into(), &true.into()), "{outcome}");
        assert!(number(again, "/stats/exported") > 20, "{outcome}");
    }
}

/// Checks that nothing was printed. But for one case, which a machine that takes the processor away at the wrong instant brings about: where the
/// host closes the descriptors between the profiler's look at them and the runtime's use of them, the runtime panics, and what hook the host has
/// for panics prints that.
#[track_caller]
fn assert_printed_nothing(stderr: &str) {
    let of_the_runtime = "unexpected error when polling the I/O driver";
    let mut lines = stderr.lines().skip_while(|line| line.is_empty());
    let begins =
        lines.next().is_some_and(|line| line.starts_with("thread 'profiler-io'") && line.contains("panicked at"));
    let is_its_panic = begins && lines.next().is_some_and(|line| line.starts_with(of_the_runtime));
    // Its stack follows; another panic would be a second one.
    let is_all = stderr.matches("panicked at").count() == 1;
    assert!(stderr.is_empty() || (is_its_panic && is_all), "something was printed: {stderr}");
}

/// Check the same while nothing is done but to wait for the answer to a request, whose time is over only afterwards.
#[test]
fn descriptors_that_the_host_closed_during_a_request_are_left_alone() {
    let _turn = half_turn();
    let receiver = Receiver::start().unwrap();
    receiver.answer(Answer::Hang);
    let mut command = command("closed", &["first=2", "names=false", "delivers=false", "patience=1"]);
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "1000");
    let finished = start(sending(&mut command, &receiver, Protocol::Http)).finish().unwrap();
    assert_printed_nothing(&finished.stderr);
    let outcome = finished.json().unwrap();
    assert_eq!(outcome["changed"], serde_json::json!([]), "{outcome}");
    assert_eq!(outcome["after"]["lost"]["closed"], outcome["after"]["taken"], "{outcome}");
}
