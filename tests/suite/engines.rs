//! Each engine tells the whole CPU time, says which threads it covers, and gives way to the next one with a reason.
//!
//! The bound on weights is that of `completeness`, for the same reasons.

use std::ops::RangeInclusive;

use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::tally::Tally;
use rustix::time::{ClockId, clock_getres};
use serde_json::Value;

use crate::scenario::{assert_lawful, command, not_run, number, result, sending, turn};
use crate::steal::While;

/// A run of the scenario `spin` under `engine`: what it said, what arrived; weight ÷ (CPU seconds × rate) of its threads;
/// and weight and stacks ÷ the same of the whole process, the profiler's own threads included.
struct Run {
    outcome: Value,
    tally: Tally,
    weight: f64,
    process_weight: f64,
    stacks: f64,
    /// What weights may be.
    complete: RangeInclusive<f64>,
}

fn spin(engine: &str, rate: u32, options: &[&str]) -> Run {
    let _turn = turn();
    let run = While::begin();
    let receiver = Receiver::start().unwrap();
    let rate_option = format!("rate={rate}");
    let options = [options, &["seconds=4", &rate_option]].concat();
    let mut command = command("spin", &options);
    let outcome = result(sending(command.env("PROFILER_ENGINE", engine), &receiver, Protocol::Grpc));
    assert_lawful(&receiver);
    let tally = receiver.accepted();
    let due = |clock: &str| outcome[clock].as_f64().unwrap() * f64::from(rate);
    let weight = tally.below("spin") as f64 / due("cpu_seconds");
    let (process_weight, stacks) = (tally.weight as f64, tally.stacks as f64);
    let (process_weight, stacks) = (process_weight / due("process_cpu_seconds"), stacks / due("process_cpu_seconds"));
    Run { outcome, tally, weight, process_weight, stacks, complete: run.complete() }
}

/// Checks a weight, that nothing was lost, and that all of it arrived.
#[track_caller]
fn assert_complete(run: &Run, weight: f64) {
    let Run { outcome, tally, stacks, complete, .. } = run;
    assert!(complete.contains(&weight), "weight {weight:.3} of {complete:.3?}, stacks {stacks:.3}: {outcome}");
    assert_eq!(
        (number(outcome, "/stats/lost_total"), number(outcome, "/stats/exported")),
        (0, tally.stacks),
        "{outcome}"
    );
}

/// The threads that `engine` covers by alarms of their own.
fn covered(run: &Run, engine: &str) -> Option<u64> {
    run.outcome["engine"]["threads"][engine].as_u64()
}

/// Ticks of the kernel a second, at which it looks at timers: the coarse clock goes by them (clock_getres(2)).
fn ticks() -> f64 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    1e9 / (tick.tv_sec as f64 * 1e9 + tick.tv_nsec as f64)
}

/// Check that perf events follow a rate above the kernel's tick, stack by stack, where the kernel allows them.
#[test]
fn perf_follows_a_rate_above_the_tick() {
    let run = spin("perf", 1000, &["threads=2"]);
    assert_complete(&run, run.weight);
    if let Some(why) = run.outcome["engine"]["refused"].as_array().unwrap().iter().find(|one| one["name"] == "perf") {
        return not_run("perf events", &format!("this machine allows none: {why}"));
    }
    assert_eq!(run.outcome["engine"]["name"], "perf", "{}", run.outcome);
    assert!(covered(&run, "perf") >= Some(1), "{}", run.outcome);
    let of_timers = ticks() / 1000.0;
    if of_timers >= 1.0 {
        return not_run("a rate above the tick", "this kernel ticks a thousand times a second");
    }
    // More than timers could bring; what is missing to 1 the load of the machine decides.
    assert!(run.stacks > 1.2 * of_timers, "stacks {:.3}, {of_timers:.3} by timers: {}", run.stacks, run.outcome);
}

/// Check that time in the kernel, which perf events do not count, is told all the same, and once: of threads that spend nearly all
/// of theirs there. And that it is told by stacks of its own, a tick of the kernel each, not by those few of the program's own code standing
/// for it all: under either engine there are as many as the kernel has ticks on such a thread.
#[test]
fn time_in_the_kernel_is_told() {
    let stacks = ["perf", "timer"].map(|engine| {
        let run = spin(engine, 1000, &["threads=2", "kernel=1"]);
        assert_complete(&run, run.process_weight);
        let of_threads = run.outcome["cpu_seconds"].as_f64().unwrap() * 1000.0;
        let below = run.tally.below("spin_in_kernel") as f64 / of_threads;
        assert!(run.complete.contains(&below), "{engine}: {below:.3} of the work: {}", run.outcome);
        run.stacks
    });
    // A twentieth of the time is the program's own.
    let [perf, timer] = stacks;
    assert!(perf > timer / 2.0, "stacks: {perf:.3} with events, {timer:.3} with timers alone");
}

/// Check that where threads nap, what perf misses is made good by their clocks, and that this is said.
#[test]
fn perf_makes_good_what_it_misses() {
    let run = spin("perf", 1000, &["threads=2", "nap_micros=200"]);
    // What is made good leaves three ticks of each thread to its timer, at the end of the run for good.
    let left = 2.0 * 3.0 / ticks() / run.outcome["cpu_seconds"].as_f64().unwrap();
    let run = Run { complete: run.complete.start() - left..=*run.complete.end(), ..run };
    assert_complete(&run, run.weight);
    let scaled = number(&run.outcome, "/stats/degraded/scaled");
    let counted = run.tally.counts.get("profiler.degraded.scaled").copied().unwrap_or(0);
    assert_eq!(u64::try_from(counted).unwrap(), scaled, "what was scaled travels with profiles");
}

/// Check that timers per thread tell the whole weight at a rate that they cannot follow stack by stack.
#[test]
fn timers_tell_the_weight_above_the_tick() {
    let run = spin("timer", 1000, &["threads=3"]);
    assert_complete(&run, run.weight);
    assert!(covered(&run, "timer") >= Some(2), "{}", run.outcome);
}

/// Check that one timer for the process tells the whole weight, on more threads than there are processors. Which thread
/// gets how much of it is a matter of chance, so it is the process's weight that is compared.
#[test]
fn one_timer_for_the_process_tells_the_weight() {
    let run = spin("process_timer", 100, &["threads=8"]);
    assert_complete(&run, run.process_weight);
    assert_eq!(covered(&run, "process_timer"), Some(0), "{}", run.outcome);
}

/// Check that `setitimer`, which drops what comes too fast, is made good by the process's clock.
#[test]
fn setitimer_is_made_good() {
    let run = spin("setitimer", 1000, &["threads=8"]);
    assert_complete(&run, run.process_weight);
    assert!(number(&run.outcome, "/stats/degraded/scaled") > 0, "{}", run.outcome);
}

/// Check that the CPU time in the profiles stays right while the rate changes all the time, from one that timers follow to one
/// that asks for perf events and back, under each kind of engine.
#[test]
fn a_rate_that_changes_loses_no_weight() {
    for engine in ["timer", "perf", "process_timer", "auto"] {
        let run = spin(engine, 100, &["threads=2", "other_rate=700", "change_millis=100"]);
        let share = run.tally.nanos as f64 / 1e9 / run.outcome["process_cpu_seconds"].as_f64().unwrap();
        let (stacks, periods) = (run.tally.stacks, run.tally.weight);
        assert!(run.complete.contains(&share), "{engine}: {share:.3}, {stacks} stacks, {periods}: {}", run.outcome);
        // In periods of whichever rate was in force, of which there are more than at the first one alone. As counted where they are taken: a
        // profile is in periods of its last rate, and where names take long it has samples of several.
        let weight =
            number(&run.outcome, "/stats/weight") as f64 / run.outcome["process_cpu_seconds"].as_f64().unwrap() / 100.0;
        assert!(weight > 2.0, "{engine}: {weight:.3}: {}", run.outcome);
        assert_eq!(number(&run.outcome, "/stats/lost_total"), 0, "{engine}: {}", run.outcome);
    }
}

/// Check that pauses cost no weight: what an alarm had not told of when it was taken away, the next one tells.
#[test]
fn pauses_lose_no_weight() {
    for engine in ["timer", "perf", "auto"] {
        let _turn = turn();
        let run = While::begin();
        let receiver = Receiver::start().unwrap();
        let mut command = command("paused", &["threads=2", "seconds=6", "rate=100"]);
        let outcome = result(sending(command.env("PROFILER_ENGINE", engine), &receiver, Protocol::Grpc));
        let tally = receiver.accepted();
        let share = |clock: &str| tally.nanos as f64 / 1e9 / outcome[clock].as_f64().unwrap();
        let (of_least, of_most) = (share("least_cpu_seconds"), share("most_cpu_seconds"));
        let complete = run.complete();
        let is_right = of_least >= *complete.start() && of_most <= *complete.end();
        assert!(is_right, "{engine}: {of_most:.3} to {of_least:.3} of {complete:.3?}: {outcome}");
        assert_eq!(number(&outcome, "/stats/lost_total"), 0, "{engine}: {outcome}");
    }
}

/// Check that samples carry the names of their threads.
#[test]
fn samples_name_their_threads() {
    let run = spin("auto", 100, &["threads=3"]);
    for thread in ["busy-0", "busy-1", "busy-2"] {
        assert!(run.tally.tagged("thread.name", thread) > 10, "{thread}: {:?}", run.tally.by_tag);
    }
    let ids = run.tally.by_tag.keys().filter(|tag| tag.starts_with("thread.id=")).count();
    assert!(ids >= 3, "{:?}", run.tally.by_tag);
}
