//! Labels of a program that changes them as fast as it can, and collects those before (`tests/go/relabels`).
//!
//! Each set of the program says the same number twice and who made it, and whoever has it runs that one's function: so a set that was read while it was
//! replaced, or of which the memory was used for another one meanwhile, can be told from what the program set.

use crate::running::Running;
use crate::{is_torture, programs};
use profiler_sidecar::capture::{Bounds, Goroutine, Source};
use profiler_sidecar::go::Call;

/// Check both forms of sets, maps and slices: no goroutine has labels that it never had.
#[test]
fn no_labels_are_shown_that_a_goroutine_never_had() {
    for version in ["go1.21.13", "go1.27.0"] {
        relabel(version, if is_torture() { 5_000 } else { 300 });
    }
}

fn relabel(version: &str, captures: usize) {
    let running = Running::start(&programs::build("relabels", version, &[], "amd64"), &[]);
    let source = Source::find(running.pid()).unwrap();
    let (mut labelled, mut changed, mut wrong) = (0, 0, Vec::new());
    for _ in 0..captures {
        let goroutines = source.goroutines(Bounds::default()).unwrap();
        changed += goroutines.labels_changed;
        for goroutine in goroutines.list.iter().filter(|goroutine| !goroutine.labels.is_empty()) {
            labelled += 1;
            if !is_right(&source, goroutine) {
                wrong.push(format!("{:?} of {}", goroutine.labels, function(&source, goroutine)));
            }
        }
    }
    assert!(wrong.is_empty(), "{version}: {} of {labelled} sets are wrong: {:#?}", wrong.len(), wrong.first());
    eprintln!("{version}: {captures} captures: {labelled} sets of labels, {changed} changed while they were read");
    assert!(labelled > captures / 20, "{version}: {labelled} sets of labels in {captures} captures");
}

/// Whether a set is one that the goroutine's function makes or inherits.
fn is_right(source: &Source, goroutine: &Goroutine) -> bool {
    let labels: Vec<(&str, &str)> = goroutine.labels.iter().collect();
    let [("first", first), ("second", second), ("who", who)] = labels[..] else { return false };
    let function = function(source, goroutine);
    let is_of = |name| function.strip_prefix(name).is_some_and(|digit| digit.repeat(11) == who);
    first == second
        && first.len() == 11
        && first.get(..1) == who.get(..1)
        && (is_of("main.worker") || is_of("main.child"))
}

/// The function that the goroutine began with.
fn function(source: &Source, goroutine: &Goroutine) -> String {
    let frames = source.loaded().frames(goroutine.start_pc, Call::Interrupted);
    frames.last().map(|frame| frame.function.to_string()).unwrap_or_default()
}
