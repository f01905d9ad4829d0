//! Goroutines of real Go programs: number, function, labels.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use profiler_sidecar::bpf::Go;
use profiler_sidecar::sample::Sample;
use profiler_sidecar::{elf, go};

use crate::programs::{Form, Talk, labelled};
use crate::recorder::{Recorder, assert_complete, undisturbed};
use crate::undivided::{ahead, pinned};

fn offsets(program: &Path) -> Go {
    let elf = elf::File::open(File::open(program).unwrap()).unwrap();
    let program = go::Program::open(Arc::new(elf)).unwrap().expect("a Go program");
    go::offsets::offsets(&program).expect("a known version")
}

/// What a program of this version did, and what was seen of it.
struct Seen {
    samples: Vec<Sample>,
    /// How many of these were taken before the goroutines were ready.
    early: usize,
    used: u64,
    /// Numbers of goroutines, in order.
    goroutines: Vec<u64>,
}

fn record(version: &str, form: Form, pairs: usize, goroutines: usize, milliseconds: u32) -> Option<Seen> {
    let arguments = [pairs.to_string(), goroutines.to_string(), milliseconds.to_string()];
    record_as(version, form, arguments, |command| command)
}

/// The same, of the program as `as_it_is` has it run.
fn record_as(
    version: &str,
    form: Form,
    arguments: [String; 3],
    as_it_is: impl FnOnce(Command) -> Command,
) -> Option<Seen> {
    let goroutines: usize = arguments[1].parse().unwrap();
    let (mut recorder, path) = Recorder::usual_with(|| labelled(version, form))?;
    let mut command = Command::new(&path);
    command.args(arguments);
    let mut program = Talk::start(as_it_is(command));
    let pid = program.pid();
    recorder.sampler.set_go(pid, offsets(&path)).unwrap();
    let mut numbers = HashMap::new();
    loop {
        let line = recorder.line(&program);
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["goroutine", which, number] => numbers.insert(which.parse::<usize>().unwrap(), number.parse().unwrap()),
            _ => break assert_eq!(line, "ready"),
        };
    }
    recorder.drain();
    let early = recorder.samples_of(pid).len();
    program.go();
    recorder.until_exit(pid);
    let used = recorder.line(&program).strip_prefix("used ").unwrap().parse().unwrap();
    program.child.wait().unwrap();
    let samples = recorder.samples_of(pid).into_iter().cloned().collect();
    let goroutines = (0..goroutines).map(|which| numbers[&which]).collect();
    Some(Seen { samples, early, used, goroutines })
}

/// The labels of a goroutine, sorted.
fn labels(pairs: usize, goroutine: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |i| (format!("key-{i}").into_bytes(), format!("value-{i}-of-{goroutine}").into_bytes());
    let mut all: Vec<_> = (0..pairs).map(pair).collect();
    all.sort();
    all
}

/// Nearly every sample of a worker has its labels, none has others, and most samples are a worker's: the others are Go's own, of threads that wake by
/// the clock, so that on a busy machine, where the same work takes longer, there are more of them.
fn assert_labelled(seen: &Seen, pairs: usize) {
    let (mut of_workers, mut bare) = (0, 0);
    let late = &seen.samples[seen.early..];
    for sample in late {
        let Some(worker) = sample.goroutine.and_then(|ran| seen.goroutines.iter().position(|id| *id == ran.id)) else {
            continue;
        };
        let mut found = sample.labels.clone();
        found.sort();
        // After `pprof.Do` a worker has none.
        if found.is_empty() {
            bare += 1;
            continue;
        }
        assert_eq!(found, labels(pairs, worker));
        assert!(!sample.labels_cut);
        of_workers += 1;
    }
    assert!(bare * 100 <= late.len() * 3, "{bare} of {}", late.len());
    assert!(of_workers * 100 >= late.len() * 90, "{of_workers} of {}", late.len());
}

#[test]
fn samples_of_every_version_carry_goroutine_and_labels() {
    let versions = ["go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.11", "go1.26.8", "go1.27.0"];
    for version in versions {
        let Some(seen) = record(version, Form::Normal, 2, 2, 300) else { return };
        assert_labelled(&seen, 2);
    }
}

#[test]
fn programs_linked_in_other_ways_do_too() {
    for version in ["go1.21.13", "go1.26.8"] {
        for form in [Form::Pie, Form::Cgo, Form::CgoPie] {
            let Some(seen) = record(version, form, 2, 2, 300) else { return };
            assert_labelled(&seen, 2);
        }
    }
}

#[test]
fn sixty_four_busy_goroutines_are_told_apart() {
    let Some(seen) = record("go1.27.0", Form::Normal, 2, 64, 3000) else { return };
    assert_labelled(&seen, 2);
    let ran: HashSet<u64> = seen.samples.iter().filter_map(|sample| sample.goroutine).map(|ran| ran.id).collect();
    let missing: Vec<_> = seen.goroutines.iter().filter(|id| !ran.contains(id)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

#[test]
fn a_busy_go_program_has_a_sample_for_each_period_of_its_cpu_time() {
    let alone = |command: Command| ahead(&pinned(&command));
    let arguments = || ["2", "2", "2000"].map(str::to_owned);
    let Some(seen) = undisturbed(|| record_as("go1.26.8", Form::Normal, arguments(), alone)) else { return };
    assert_complete(&seen.samples.iter().collect::<Vec<_>>(), seen.used);
}

#[test]
fn all_32_labels_are_there_in_both_forms() {
    for version in ["go1.23.12", "go1.26.8"] {
        for pairs in [9, 13, 27, 32] {
            let Some(seen) = record(version, Form::Normal, pairs, 1, 200) else { return };
            assert_labelled(&seen, pairs);
        }
    }
}

#[test]
fn more_labels_than_32_are_cut_and_marked() {
    for version in ["go1.23.12", "go1.26.8"] {
        let Some(seen) = record(version, Form::Normal, 40, 1, 200) else { return };
        let late = &seen.samples[seen.early..];
        let cut = late.iter().filter(|sample| sample.labels_cut && sample.labels.len() == 32).count();
        assert!(cut * 100 >= late.len() * 90, "{version}: {cut} of {}", late.len());
    }
}

#[test]
fn stacks_end_at_the_function_of_the_goroutine() {
    let Some(seen) = record("go1.26.8", Form::Normal, 2, 2, 300) else { return };
    let of_workers: Vec<_> = seen
        .samples
        .iter()
        .filter(|sample| sample.goroutine.is_some_and(|ran| seen.goroutines.contains(&ran.id)))
        .collect();
    let start_pc = of_workers[0].goroutine.unwrap().start_pc;
    assert!(of_workers.iter().all(|sample| sample.goroutine.unwrap().start_pc == start_pc), "one `go` statement");
    // The caller before `goexit` returns into that function, which is not large.
    let rooted = of_workers
        .iter()
        .filter(|sample| {
            let root = sample.user.iter().rev().nth(1);
            root.is_some_and(|root| (start_pc..start_pc + 4096).contains(root))
        })
        .count();
    assert!(rooted * 100 >= of_workers.len() * 98, "{rooted} of {}", of_workers.len());
}
