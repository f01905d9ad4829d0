//! Native programs: how many samples, how deep, and what becomes of those for which there is no room.

use std::fs::File;
use std::io::Read as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_sidecar::bpf::{Knowledge, Options};
use profiler_sidecar::config::Filter;
use profiler_sidecar::pipeline::{self, Figures, Pipeline};
use profiler_sidecar::sample::{End, Sample};

#[cfg(target_arch = "x86_64")]
use crate::programs::crooked;
use crate::programs::{Talk, deep, uring};
use crate::recorder::{RATE_HZ, Recorder, alone, assert_complete, undisturbed};
use crate::undivided::{ahead, pinned};

const LEFT_OUT: Knowledge = Knowledge { is_excluded: true, go: None, context_offset: None };

/// Runs the program to its end; its samples, and the CPU time it says it used.
fn record(depth: u32, milliseconds: u32) -> Option<(Recorder, Vec<Sample>, u64)> {
    let (recorder, program) = Recorder::usual_with(|| deep(depth, milliseconds))?;
    Some(recorded(recorder, program))
}

/// The same, alone on a processor.
fn record_undivided(depth: u32, milliseconds: u32) -> Option<(Recorder, Vec<Sample>, u64)> {
    let (recorder, program) = Recorder::usual_with(|| ahead(1, &pinned(&deep(depth, milliseconds))))?;
    Some(recorded(recorder, program))
}

fn recorded(mut recorder: Recorder, program: Command) -> (Recorder, Vec<Sample>, u64) {
    let mut program = Talk::start(program);
    let pid = program.pid();
    recorder.until_exit(pid);
    let used = recorder.line(&program).parse().unwrap();
    program.child.wait().unwrap();
    let samples = recorder.samples_of(pid).into_iter().cloned().collect();
    (recorder, samples, used)
}

/// Samples of the program's own code, at the bottom of its stack.
fn at_work(samples: &[Sample]) -> Vec<&Sample> {
    samples.iter().filter(|sample| !sample.in_kernel && sample.user.len() > 2).collect()
}

#[test]
fn a_busy_program_has_a_sample_for_each_period_of_its_cpu_time() {
    let Some(((_, samples, used), stolen)) = undisturbed(|| record_undivided(10, 2000)) else { return };
    assert_complete(&samples.iter().collect::<Vec<_>>(), used, stolen);
    for sample in &samples {
        assert_eq!(sample.period_nanos, 1_000_000_000 / u64::from(RATE_HZ));
        assert_eq!(sample.pid, sample.tid);
        assert!(sample.goroutine.is_none() && sample.labels.is_empty() && sample.span.is_none());
    }
    // Before it there are those who start it.
    let mut own = samples.iter().skip_while(|sample| sample.comm.text() != "deep-10-2000");
    assert!(own.clone().count() * 2 > samples.len() && own.all(|sample| sample.comm.text() == "deep-10-2000"));
}

#[test]
fn a_stack_of_450_calls_is_whole() {
    let Some((_, samples, _)) = record(450, 300) else { return };
    let at_work = at_work(&samples);
    // `down` 450 times, `spin`, `begin`, `_start`; `used` and what it calls on top of them now and then. A prologue hides one.
    let whole =
        at_work.iter().filter(|sample| (452..=455).contains(&sample.user.len()) && sample.end == End::Root).count();
    assert!(whole > 30 && whole * 100 >= at_work.len() * 98, "{whole} of {}", at_work.len());
    let sample = at_work.iter().find(|sample| sample.user.len() >= 453).unwrap();
    assert_eq!(sample.user[0], sample.registers.ip);
    assert_eq!(sample.top.len(), 128);
    let down: Vec<_> = sample.user[200..300].to_vec();
    assert!(down.windows(2).all(|pair| pair[0] == pair[1]), "one place calls: {down:x?}");
}

#[test]
fn a_stack_of_600_calls_is_cut_and_says_so() {
    let Some((_, samples, _)) = record(600, 300) else { return };
    let at_work = at_work(&samples);
    let cut = at_work.iter().filter(|sample| sample.user.len() == 512 && sample.end == End::Cut).count();
    assert!(cut > 30 && cut * 100 >= at_work.len() * 98, "{cut} of {}", at_work.len());
}

/// Check that a frame pointer that is none does not bring into a stack what no program can call, and that the stack says it has lost its way.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_register_that_holds_something_else_gives_no_callers() {
    let Some((recorder, program)) = Recorder::usual_with(|| crooked(300)) else { return };
    let (_, samples, _) = recorded(recorder, program);
    let outside: Vec<_> =
        samples.iter().filter(|sample| sample.user.iter().any(|address| *address >= 1 << 56)).collect();
    assert!(outside.is_empty(), "{:x?}", outside[0].user);
    let lost = samples.iter().filter(|sample| sample.user.len() == 1 && sample.end == End::Lost).count();
    assert!(lost > 30 && lost * 2 > samples.len(), "{lost} of {}", samples.len());
}

/// Check that a thread that the kernel made for itself in a process has no stack of the program's: its registers are a copy of its maker's.
#[test]
fn who_works_for_the_kernel_has_no_stack_of_the_program() {
    let Some((recorder, program)) = Recorder::usual_with(|| uring(300)) else { return };
    let (_, samples, used) = recorded(recorder, program);
    if used == 0 {
        return println!("NOT RUN: this kernel has no io_uring, or forbids it");
    }
    let (of_workers, own): (Vec<&Sample>, Vec<&Sample>) =
        samples.iter().partition(|sample| sample.comm.text().starts_with("iou-wrk-"));
    assert!(of_workers.len() > 30, "{} of {}", of_workers.len(), samples.len());
    for sample in of_workers {
        assert!(sample.in_kernel && !sample.kernel.is_empty() && sample.user.is_empty(), "{sample:?}");
    }
    let of_program = |sample: &&&Sample| sample.comm.text() == "uring-300" && !sample.user.is_empty();
    assert!(own.iter().filter(of_program).count() > 10);
}

#[test]
fn a_process_of_a_tenth_of_a_second_is_seen() {
    let Some(((_, samples, used), _)) = undisturbed(|| record_undivided(10, 100)) else { return };
    // 100 samples are due, and some of the programs before it.
    let due = used * u64::from(RATE_HZ) / 1_000_000_000;
    assert!(samples.len() as u64 * 4 >= due * 3 && samples.len() as u64 * 4 <= due * 5, "{} of {due}", samples.len());
}

#[test]
fn what_was_seen_is_what_was_decoded_and_what_was_lost() {
    let Some((mut recorder, _, _)) = record(10, 200) else { return };
    let counters = recorder.stop();
    assert_eq!(counters.sent, recorder.samples.len() as u64, "{counters:?}");
    assert_eq!(counters.events, recorder.events.len() as u64, "{counters:?}");
    assert_eq!((counters.ring_full, counters.events_lost), (0, 0), "{counters:?}");
    assert_eq!(counters.seen, counters.sent, "{counters:?}");
}

#[test]
fn a_full_ring_is_counted() {
    let Some(mut recorder) =
        Recorder::start(Options { rate_hz: RATE_HZ, ring_bytes: Some(4096), ..Options::default() })
    else {
        return;
    };
    Talk::start(deep(10, 200)).line();
    let counters = recorder.stop();
    assert!(counters.ring_full > 0, "{counters:?}");
    assert_eq!(counters.sent, recorder.samples.len() as u64, "{counters:?}");
    assert_eq!(counters.seen, counters.sent + counters.ring_full, "{counters:?}");
}

#[test]
fn a_process_that_is_left_out_has_no_samples() {
    let Some(mut recorder) = Recorder::usual() else { return };
    let own = std::process::id();
    recorder.sampler.tell(own, &LEFT_OUT).unwrap();
    recorder.drain();
    recorder.samples.clear();
    let before = recorder.sampler.counters().unwrap();
    let mut turns = 0_u64;
    recorder.until("ticks of this process", |recorder| {
        turns = (0..1_000_000).fold(turns, |turns, turn| std::hint::black_box(turns ^ turn));
        recorder.sampler.counters().unwrap().excluded > before.excluded + 50
    });
    assert_eq!(recorder.samples_of(own).len(), 0);
    recorder.sampler.tell(own, &Knowledge::default()).unwrap();
    recorder.until("samples of this process", |recorder| {
        turns = (0..1_000_000).fold(turns, |turns, turn| std::hint::black_box(turns ^ turn));
        recorder.samples_of(own).len() > 50
    });
}

/// Check that samples do not call the reader, whose time no tick would ever hit then: it comes by the clock, and for a quarter of the ring.
#[test]
fn the_reader_is_not_called_by_samples() {
    let Some(_alone) = alone() else { return };
    let mut busy = Talk::start(deep(10, 120_000));
    let filter = Filter { pids: vec![busy.pid()], ..Filter::default() };
    let options = pipeline::Options {
        rate_hz: RATE_HZ,
        kernel: true,
        filter,
        family: None,
        profile_sdk: true,
        processors: false,
    };
    let mut pipeline = Pipeline::open(options, Arc::default(), true).unwrap();
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(3) {
        pipeline.turn(Duration::from_millis(100));
        turns += 1;
    }
    drop(busy.child.kill());
    let sampled = pipeline.figures().sampled;
    assert!(sampled > 1000 && turns < 200, "{turns} turns, {sampled} samples");
}

/// Check that who takes records more slowly than they come is let go all the same, and that those that are left come the next time.
#[test]
fn a_drain_ends_however_many_records_there_are() {
    let Some((mut recorder, program)) = Recorder::usual_with(|| deep(10, 60_000)) else { return };
    let mut busy = Talk::start(program);
    let began = Instant::now();
    while recorder.sampler.counters().unwrap().sent < 200 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", recorder.sampler.counters());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut taken = 0;
    let is_all = recorder.sampler.drain(|_| {
        taken += 1;
        std::thread::sleep(Duration::from_millis(5));
    });
    // Each took five milliseconds at least of a twentieth of a second.
    assert!(!is_all && (1..=11).contains(&taken), "{taken}, {is_all}");
    recorder.drain();
    assert!(recorder.samples.len() > 100, "{}", recorder.samples.len());
    drop(busy.child.kill());
}

/// Check that once the pipeline has stopped, each sample that the kernel side sent is in the account: named, left out, or lost by a cause.
#[test]
fn the_account_closes_at_the_end() {
    let Some(_alone) = alone() else { return };
    let mut busy = Talk::start(deep(10, 120_000));
    let options = pipeline::Options {
        rate_hz: RATE_HZ,
        kernel: true,
        filter: Filter::default(),
        family: None,
        profile_sdk: true,
        processors: false,
    };
    let mut pipeline = Pipeline::open(options, Arc::default(), true).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(500) {
        pipeline.turn(Duration::from_millis(100));
    }
    pipeline.stop();
    std::thread::sleep(Duration::from_millis(100));
    drop(pipeline.end());
    drop(busy.child.kill());
    let figures = pipeline.figures();
    let Figures { sampled, left_out, gone, unreadable, kernel, .. } = figures;
    assert_eq!(kernel.sent, sampled + left_out + gone + unreadable, "{figures:?}");
    assert_eq!(kernel.seen, kernel.sent + kernel.ring_full, "{figures:?}");
    assert!(sampled > 100, "{figures:?}");
}

/// Check that a process that is left out is so for the program that it ran, not for the next one, of which nothing is known.
#[test]
fn the_next_program_of_a_process_that_is_left_out_has_samples() {
    let Some((mut recorder, next)) = Recorder::usual_with(|| deep(10, 200)) else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready; read line; exec \"$0\""]).arg(next.get_program());
    let mut shell = Talk::start(shell);
    let pid = shell.pid();
    assert_eq!(recorder.line(&shell), "ready");
    recorder.sampler.tell(pid, &LEFT_OUT).unwrap();
    recorder.samples.clear();
    shell.go();
    recorder.until_exit(pid);
    let used: u64 = recorder.line(&shell).parse().unwrap();
    shell.child.wait().unwrap();
    let periods = used * u64::from(RATE_HZ) / 1_000_000_000;
    assert!(recorder.samples_of(pid).len() as u64 * 2 > periods, "{periods}");
}

/// Check that what is told of a process too late, when it is another program already, does not leave out that one for longer than until its exec is heard of.
#[test]
fn what_is_told_too_late_is_taken_back() {
    let Some((mut recorder, next)) = Recorder::usual_with(|| deep(10, 60_000)) else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready; read line; exec \"$0\""]).arg(next.get_program());
    let mut shell = Talk::start(shell);
    let pid = shell.pid();
    assert_eq!(recorder.line(&shell), "ready");
    let (first, mut programs) = (recorder.started(pid), recorder.sampler.programs().unwrap());
    assert!(!recorder.sampler.has_left(pid, first));
    shell.go();
    // Not amid its exec.
    while programs.of(pid).unwrap().is_none_or(|number| number == first.program) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(recorder.sampler.has_left(pid, first));
    let before = recorder.sampler.counters().unwrap().excluded;
    recorder.sampler.tell(pid, &LEFT_OUT).unwrap();
    recorder.until("its exec", |recorder| recorder.started(pid) != first);
    recorder.until("ticks that are left out", |recorder| recorder.sampler.counters().unwrap().excluded > before);
    recorder.samples.clear();
    recorder.sampler.forget(pid);
    recorder.until("samples of what it runs", |recorder| recorder.samples_of(pid).len() > 20);
}

#[test]
fn the_rate_changes_while_it_runs_and_samples_say_theirs() {
    let Some((mut recorder, program)) = Recorder::usual_with(|| deep(10, 60_000)) else { return };
    let mut program = Talk::start(program);
    let pid = program.pid();
    recorder.until("samples at the first rate", |recorder| recorder.samples_of(pid).len() > 20);
    recorder.stop();
    let taken = recorder.samples.len();
    recorder.sampler.set_rate_hz(499).unwrap();
    recorder.until("samples at the second rate", |recorder| {
        recorder.samples[taken..].iter().filter(|sample| sample.pid == pid).count() > 20
    });
    program.child.kill().unwrap();
    for (index, sample) in recorder.samples.iter().enumerate() {
        let rate = if index < taken { RATE_HZ } else { 499 };
        assert_eq!(sample.period_nanos, 1_000_000_000 / u64::from(rate), "{index} of {taken}");
    }
    assert!(recorder.sampler.set_rate_hz(0).is_err(), "no rate");
}

/// Samples of a thread of this process that reads zeros until there are 50 of them in the kernel.
fn in_system_calls(recorder: &mut Recorder) -> Vec<Sample> {
    let own = std::process::id();
    let mut zeros = (File::open("/dev/zero").unwrap(), vec![1; 1 << 20]);
    recorder.until("samples in system calls", |recorder| {
        for _ in 0..10 {
            zeros.0.read_exact(&mut zeros.1).unwrap();
        }
        recorder.samples.iter().filter(|sample| sample.pid == own && sample.in_kernel).count() >= 50
    });
    recorder.samples.iter().filter(|sample| sample.pid == own && sample.in_kernel).cloned().collect()
}

#[test]
fn a_system_call_has_the_kernels_frames_and_the_callers() {
    let Some(mut recorder) = Recorder::usual() else { return };
    let samples = in_system_calls(&mut recorder);
    for sample in &samples {
        assert!(sample.kernel.iter().all(|address| *address > 1 << 63), "{:x?}", sample.kernel);
        assert!(sample.user.iter().all(|address| *address < 1 << 63), "{:x?}", sample.user);
        assert_eq!(sample.user[0], sample.registers.ip);
    }
    let deep = samples.iter().filter(|sample| sample.kernel.len() > 3).count();
    assert!(deep * 2 > samples.len(), "{deep} of {}", samples.len());
}

#[test]
fn the_kernels_frames_are_left_out_on_demand() {
    let options = Options { rate_hz: RATE_HZ, kernel_stacks: false, ring_bytes: Some(4 << 20) };
    let Some(mut recorder) = Recorder::start(options) else { return };
    let samples = in_system_calls(&mut recorder);
    assert!(samples.iter().all(|sample| sample.kernel.is_empty() && !sample.user.is_empty()));
}
