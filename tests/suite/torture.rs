//! Torture: what a sampler at 1 kHz must survive, with an exact account at the end.
//!
//! In: the tortures of `src/bin/torture`, each in a process of its own with a time in which it must end, sending to a
//! receiver. Out: it ended well, the account balanced all along, and what the receiver decoded is what is counted as
//! exported. `TORTURE_SECONDS` says how long each goes on with each engine: 1 here, 60 in `make torture`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use profiler_tests::process::{Running, run};
use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::tally::Tally;
use profiler_tests::truth::{Known, LIBRARIES, Verdict};
use serde_json::Value;

use crate::scenario::{LIMIT, clean, half_turn, not_run, number, sending};

fn seconds() -> f64 {
    std::env::var("TORTURE_SECONDS").map_or(1.0, |seconds| seconds.parse().expect("TORTURE_SECONDS is no number"))
}

/// The engines to go through: those of a thread's own clock, unless told otherwise. One that the kernel refuses is stood in
/// for by the next.
fn engines() -> Vec<String> {
    let engines = std::env::var("TORTURE_ENGINES").unwrap_or_else(|_| "perf timer".to_owned());
    engines.split_whitespace().map(str::to_owned).collect()
}

/// The first of the engines, where the handler is tried: it is the same for all. All of them in `make torture`.
fn one_engine() -> Vec<String> {
    let all = if std::env::var_os("TORTURE_SECONDS").is_some() { usize::MAX } else { 1 };
    engines().into_iter().take(all).collect()
}

/// Runs one to its end; what it said.
#[expect(clippy::print_stdout, reason = "`make torture` shows what each one counted")]
fn suffer(name: &str, options: &[String], engine: &str, receiver: &Receiver) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.arg(name).arg(format!("seconds={}", seconds())).args(options);
    clean(&mut command);
    command.env("PROFILER_ENGINE", engine);
    let limit = LIMIT + Duration::from_secs_f64(3.0 * seconds());
    let _turn = half_turn();
    let child = Running::start(sending(&mut command, receiver, Protocol::Grpc), limit).unwrap();
    let outcome = child.finish().unwrap().json().unwrap();
    println!("{name}, {engine}: {}", outcome.get("own").unwrap_or(&outcome));
    outcome
}

/// Runs one with each engine and checks its account; `check` gets its own figures and what was received.
#[track_caller]
fn torture(name: &str, options: &[String], check: impl Fn(&Value, &Tally)) {
    torture_with(engines(), name, options, check);
}

#[track_caller]
fn torture_with(engines: Vec<String>, name: &str, options: &[String], check: impl Fn(&Value, &Tally)) {
    torture_on(engines, name, options, |own, receiver| check(own, &receiver.accepted()));
}

/// The same, where `check` gets all that was received.
#[track_caller]
fn torture_on(engines: Vec<String>, name: &str, options: &[String], check: impl Fn(&Value, &Receiver)) {
    for engine in engines {
        let receiver = Receiver::start().unwrap();
        let outcome = suffer(name, options, &engine, &receiver);
        let of = |path: &str| number(&outcome, path);
        assert!(of("/snapshots") > 0, "{outcome}");
        assert_eq!((of("/wrong"), of("/stats/pending")), (0, 0), "{outcome}");
        assert_eq!(of("/stats/taken"), of("/stats/exported") + of("/stats/lost_total"), "{outcome}");
        let tally = receiver.accepted();
        assert_eq!(of("/stats/exported"), tally.stacks, "{outcome}");
        assert!(of("/stats/exported") > 20, "too few stacks to say anything: {outcome}");
        check(&outcome["own"], &receiver);
    }
}

/// Compiles a library of `torture`, its build id included.
fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("torture").join(source);
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}.so"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,--build-id"]);
    command.args(flags).arg("-o").arg(&library).arg(&source);
    let finished = run(&mut command, Duration::from_secs(60)).unwrap();
    assert!(finished.status.success(), "{}", finished.stderr);
    library
}

/// The library of `torture/library.c` in as many copies as asked for, as an option.
fn libraries(count: usize) -> String {
    static BUILT: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let built =
        BUILT.get_or_init(|| (0..4).map(|index| compile(&format!("torture{index}"), "library.c", &[])).collect());
    let paths: Vec<_> = built.iter().take(count).map(|path| path.to_str().unwrap()).collect();
    format!("libraries={}", paths.join(","))
}

/// Check that threads that come and go leave nothing behind: no descriptor, no timer, no memory, no place in a table.
#[test]
fn torture_by_threads_that_come_and_go() {
    torture("threads", &[], |own, tally| {
        assert!(number(own, "/made") >= 400, "{own}");
        match (&own["clear"], &own["covered"]) {
            (Value::Null, Value::Null) => not_run("timers of threads that have ended", "there is no /proc/self/timers"),
            both => assert_eq!(both, (&true.into(), &true.into()), "{own}"),
        }
        let grown =
            |what: &str| number(own, &format!("/late/{what}")).saturating_sub(number(own, &format!("/early/{what}")));
        assert!(grown("descriptors") < 8, "{own}");
        assert!(grown("resident") < 24 << 20, "{} bytes more: {own}", grown("resident"));
        assert!(tally.below("spin") > 0, "the threads are not seen");
    });
}

/// Check that stacks are taken in libraries that are unloaded right after, and that their code is seen in the profile.
#[test]
fn torture_by_libraries_that_come_and_go() {
    torture("libraries", &[libraries(4)], |own, tally| {
        assert!(number(own, "/unloaded") > 20, "no library went away: {own}");
        assert!(tally.below("library_frames") > 0, "the library's code is not seen: {own}");
    });
}

/// Two libraries of which one can take the place of the other, as an option.
pub(crate) fn swapped() -> String {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let [first, second] = LIBRARIES.map(|name| format!("-DLIBRARY={name}"));
        [compile(LIBRARIES[0], "swapped.c", &[&first]), compile(LIBRARIES[1], "swapped.c", &[&second, "-DSECOND"])]
    });
    format!("libraries={},{}", built[0].display(), built[1].display())
}

/// Checks that nothing has the name of what did not run, and that all but what was sampled around the swaps has the right
/// one. A library stays three times as long as a swap leaves doubt.
#[track_caller]
fn assert_true(verdict: &Verdict, around: u64, own: &Value) {
    let Verdict { right, wrong, unknown, .. } = *verdict;
    assert_eq!(wrong, 0, "{verdict:?}: {own}");
    assert!(right > 20 && u64::try_from(unknown).unwrap() <= around, "{verdict:?}: {own}");
}

/// Swaps two libraries in one place; `check` gets what came of it.
#[track_caller]
fn swap_libraries(captures: bool, check: impl Fn(&Value, u64, &Receiver)) {
    torture_on(engines(), "swaps", &[swapped(), format!("capture={captures}")], |own, receiver| {
        let (swaps, in_place, around) = (number(own, "/swaps"), number(own, "/in_place"), number(own, "/around"));
        assert!(in_place >= 8 && in_place * 2 > swaps, "{own}");
        check(own, around, receiver);
    });
}

/// Check that every sample has the name of the library that really ran, where two take each other's place, in windows that
/// are longer than the libraries stay.
#[test]
fn torture_by_libraries_in_the_place_of_others() {
    swap_libraries(false, |own, around, receiver| {
        let sent = Verdict::of(receiver.bodies().iter().flat_map(|body| &body.profiles), Known::Function);
        assert_true(&sent, around, own);
    });
}

/// Check the same of a capture.
#[test]
fn torture_by_libraries_in_the_place_of_others_while_they_are_captured() {
    swap_libraries(true, |own, around, _| {
        assert_true(&serde_json::from_value(own["captured"].clone()).unwrap(), around, own);
    });
}

/// Check that programs started by fork and exec, by posix_spawn and by vfork run and end as ever.
#[test]
fn torture_by_starting_programs() {
    torture("spawn", &[libraries(1)], |own, _| {
        assert!(number(own, "/started") > 10, "{own}");
        assert_eq!(number(own, "/started"), number(own, "/well"), "{own}");
    });
}

/// Check that a forked child outlives its parent's profiler, and has one of its own then, with an exact account on both
/// sides.
#[test]
fn torture_by_children_that_outlive_the_profiler() {
    for engine in engines() {
        let receiver = Receiver::start().unwrap();
        let outcome = suffer("offspring", &[], &engine, &receiver);
        assert_eq!(number(&outcome, "/balanced"), 2 * number(&outcome, "/rounds"), "{outcome}");
        assert_eq!(number(&outcome, "/exported"), receiver.accepted().stacks, "{outcome}");
    }
}

/// Check that a program that becomes another one in the middle of sampling lives on, and gets no SIGPROF. (`setitimer` would
/// go on: it is the last choice.)
#[test]
fn torture_by_exec_in_place() {
    for engine in engines().into_iter().filter(|engine| engine != "setitimer") {
        let receiver = Receiver::start().unwrap();
        let outcome = suffer("exec", &[], &engine, &receiver);
        assert!(number(&outcome, "/images") >= 3, "{outcome}");
    }
}

/// Check that allocations under way on four threads are never waited for by a handler.
#[test]
fn torture_by_allocations() {
    torture("malloc", &[], |own, _| {
        assert!(number(own, "/rounds") >= 200 && number(own, "/freed_elsewhere") > 0, "{own}");
    });
}

/// Check that tags of which no two sets are the same take no memory, and that samples beyond what a window holds say so and
/// are counted.
#[test]
fn torture_by_tags_without_number() {
    let sets = sets();
    for engine in one_engine() {
        let receiver = Receiver::start().unwrap();
        let outcome = suffer("cardinality", &[format!("sets={sets}")], &engine, &receiver);
        let of = |path: &str| number(&outcome, path);
        assert!(of("/own/sets") >= sets && of("/own/early") > 0, "{outcome}");
        assert_eq!((of("/stats/tags_left_out"), of("/stats/pending")), (0, 0), "{outcome}");
        // The window was full before: a leak of 40 bytes a set would be twice as much.
        let grown = of("/own/late").saturating_sub(of("/own/early"));
        assert!(grown < 2 << 20, "{grown} bytes more: {outcome}");
        let tally = receiver.accepted();
        assert_eq!(of("/stats/exported"), tally.stacks, "{outcome}");
        let sets = tally.by_tag.keys().filter(|tag| tag.starts_with("request=")).count();
        assert!(sets > 20 && sets <= 16_384, "{sets} sets: {outcome}");
        // By bytes: deep stacks fill the window before sets do by their number.
        let (overflow, counted) = (tally.tagged("profiler.tags", "overflow"), of("/stats/degraded/no_context"));
        assert!(overflow > 0 && counted > 0, "no window was ever full: {outcome}");
    }
}

/// Check that they take none over many windows either, each of which is sent and let go of.
#[test]
fn torture_by_tags_without_number_that_are_sent() {
    let sets = sets();
    for engine in one_engine() {
        let receiver = Receiver::start().unwrap();
        // Memory that is let go of returns in the third window at the latest, and in the fifth where other tests hold this one up.
        let options = [format!("sets={sets}"), format!("seconds={}", seconds().max(15.0))];
        let outcome = suffer("cardinality_sent", &options, &engine, &receiver);
        let of = |path: &str| number(&outcome, path);
        assert!(of("/own/sets") >= sets && of("/own/early") > 0, "{outcome}");
        assert_eq!((of("/stats/tags_left_out"), of("/stats/pending")), (0, 0), "{outcome}");
        let grown = of("/own/late").saturating_sub(of("/own/early"));
        assert!(grown < 4 << 20, "{grown} bytes more: {outcome}");
        let tally = receiver.accepted();
        assert_eq!(of("/stats/exported"), tally.stacks, "{outcome}");
        let sent = tally.by_tag.keys().filter(|tag| tag.starts_with("request=")).count();
        let requests = receiver.bodies().len();
        assert!(sent > 50 && requests >= 6, "{sent} sets in {requests} requests: {outcome}");
    }
}

/// How many sets of tags: as many as a build without optimization makes in the time; an optimized one is asked for ten million by `make torture`.
fn sets() -> u64 {
    let asked = std::env::var("TORTURE_SETS").ok().map(|sets| sets.parse().expect("TORTURE_SETS is no number"));
    asked.unwrap_or((10_000.0 * seconds()).max(100_000.0) as u64)
}

/// A library of Go, as an option.
fn library_of_go() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("torture/goroutines");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libgoroutines.so");
    let mut command = Command::new("go");
    command.args(["build", "-buildvcs=false", "-buildmode=c-shared", "-o"]).arg(&library).arg(".");
    let finished =
        run(command.current_dir(source).env("CGO_ENABLED", "1"), LIMIT).expect("go is missing: run `make setup`");
    assert!(finished.status.success(), "{}", finished.stderr);
    format!("libraries={}", library.display())
}

/// Check that a program with Go's runtime in it lives under samples of goroutines, whose stacks have no room for a signal, and that their code
/// is seen, whether Go comes before the profiler or after.
#[test]
fn torture_by_goroutines_on_small_stacks() {
    let library = library_of_go();
    for late in [false, true] {
        torture("goroutines", &[library.clone(), format!("late={late}")], |own, tally| {
            assert!(number(own, "/worked") > 0, "{own}");
            assert!(tally.below("main.frames") > 50, "goroutines are not seen: {own}");
        });
    }
}

/// Check that unwinding after a panic and walking a stack do not disturb each other.
#[test]
fn torture_by_panics() {
    torture("panics", &[], |own, _| {
        assert!(number(own, "/caught") >= 200, "{own}");
    });
}

/// Check that a handler runs where 8 KiB of stack are left.
#[test]
fn torture_by_stacks_that_are_used_up() {
    torture("deep", &[], |own, tally| {
        let left = number(own, "/left");
        assert!((7 << 10..9 << 10).contains(&left), "{left} bytes were left: {own}");
        assert!(number(own, "/rounds") > 0 && tally.below("work") > 50, "{own}");
    });
}

/// Check that a stack is read without a fault where a page of it was taken away, though its end was found before, and that this is said of the stacks.
#[test]
fn torture_by_stacks_with_a_page_taken_away() {
    torture("hole", &[], |own, tally| {
        let (rounds, into) = (number(own, "/rounds"), tally.below("misled"));
        assert!(rounds >= 40 && into > 50, "{into} periods: {own}");
        let unreadable = tally.counts.get("profiler.degraded.unwind_stopped_unreadable").copied().unwrap_or(0);
        // Timers fire with the kernel's tick, and each stands for some periods.
        assert!(unreadable > 10, "{unreadable} stacks end there: {own}");
    });
}

/// Check that whoever handled SIGPROF before gets what is his and nothing of ours.
#[test]
fn torture_by_another_user_of_sigprof() {
    torture("others", &[], |own, _| {
        let (sent, foreign) = (number(own, "/sent"), number(own, "/foreign"));
        assert_eq!(number(own, "/ours"), 0, "{own}");
        // A signal that is pending already is not queued twice (signal(7)): one of ours may stand for one of his, rarely.
        assert!(foreign <= sent && foreign * 100 >= sent * 98 && sent > 100, "{own}");
    });
}

/// Check that a call that SA_RESTART restarts never ends early, and say how often the others do.
#[test]
fn torture_by_calls_that_wait() {
    torture("waits", &[], |own, _| {
        for kind in ["nanosleep", "read", "connect", "epoll_wait"] {
            assert!(number(own, &format!("/{kind}/calls")) >= 50, "{kind}: {own}");
        }
        assert_eq!((number(own, "/read/interrupted"), number(own, "/connect/interrupted")), (0, 0), "{own}");
    });
}

/// Checks what the handler did in thousands of samples of one thread.
#[track_caller]
fn assert_handler_is_modest(stack: &str) {
    torture_with(one_engine(), "handler", &[format!("stack={stack}")], |own, tally| {
        let of = |name: &str| number(own, &format!("/{name}"));
        assert!(tally.stacks >= of("samples"), "{own}");
        assert_eq!((of("allocations"), of("changed_errno")), (0, 0), "{own}");
        assert_eq!(of("other_calls"), 0, "the handler made a system call: {own}");
        assert_eq!(of("reads"), 0, "the handler read a stack through the kernel that it could read itself: {own}");
        // Of a stack of its own, about each further page once; there are few of them in this thread.
        assert!(of("looks") <= 3 * of("samples") && (stack != "own" || of("looks") > 0), "{own}");
    });
}

/// Check that the handler neither allocates nor makes a system call (a lock that waits would be one) nor changes `errno`
/// on a thread whose stack it knows.
#[test]
fn torture_shows_a_handler_without_allocation_lock_or_system_call() {
    assert_handler_is_modest("own");
}

/// Check the same, but for the call that reads memory, on a stack that is not the thread's own.
#[test]
fn torture_shows_a_handler_that_reads_other_stacks_with_one_call() {
    assert_handler_is_modest("other");
}

/// Check that the handler takes no more than 2 KiB of the thread's own stack beyond the kernel's frame.
#[test]
fn torture_shows_a_handler_on_little_stack() {
    torture_with(one_engine(), "handler_stack", &[], |own, _| {
        let (ours, empty) = (number(own, "/ours"), number(own, "/empty"));
        assert!(empty > 0 && ours >= empty && ours - empty <= 2 << 10, "{own}");
    });
}
