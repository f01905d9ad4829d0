//! The commands at a terminal, with a real program.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output};

use profiler_proto::{Limits, pprof};

use crate::programs;
use crate::running::Running;

fn sidecar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_profiler-sidecar")).args(arguments).output().unwrap()
}

/// Whether the command may read others' processes: of another user's, or where Yama is, it may read its children only, and these are ours.
pub(crate) fn is_root() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root {
        eprintln!("NOT RUN: the commands read processes that they did not start, which needs root");
    }
    is_root
}

fn shown(arguments: &[&str]) -> String {
    let output = sidecar(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Check tables, the form of a panic, and files.
#[test]
fn a_program_is_shown_at_the_terminal_and_as_a_file() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[]);
    let pid = &running.pid().to_string();
    let heap = shown(&["heap", pid]);
    assert!(heap.contains("go1.24.13): heap") && heap.contains(" main.fresh\n"), "{heap}");
    let grouped = shown(&["goroutines", pid]);
    assert!(
        grouped.contains("\n3 [chan receive]:\n") && grouped.contains("{endpoint: /orders, tier: gold}"),
        "{grouped}"
    );
    let each = shown(&["goroutines", "--each", pid]);
    assert!(each.contains("\ngoroutine 1 [") && each.contains("created by main.park"), "{each}");
    assert!(shown(&["contention", pid]).contains("sync.(*Mutex).Lock"));
    assert!(shown(&["contention", "--mutex", pid]).contains("main.release"));

    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{pid}.pb.gz"));
    assert!(shown(&["heap", pid, "-o", file.to_str().unwrap()]).contains(" stacks, "));
    let set = pprof::decode(&std::fs::read(&file).unwrap(), &Limits::default()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let kinds: Vec<_> = set.profiles.iter().map(|p| set.dictionary.strings.text(p.kind.sample_type.kind)).collect();
    assert_eq!(kinds, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
}

/// Check that a leak of goroutines is shown by its stack and who started it, and that those that merely stand are not.
#[test]
fn what_grows_is_shown_and_nothing_else() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &[], "amd64");
    let mut running = Running::start(&program, &[]);
    let pid = running.pid().to_string();
    let calm = shown(&["goroutines", &pid, "--growth", "10ms"]);
    assert!(calm.contains("no stack has more goroutines than before"), "{calm}");
    running.ask("leak", "leaks");
    let grown = shown(&["goroutines", &pid, "--growth", "3s"]);
    assert!(grown.contains("\nmain.leaked\n") && grown.contains("created by main.main.func1\n"), "{grown}");
    assert!(!grown.contains("main.receive") && !grown.contains("no stack has more"), "{grown}");
}

/// Check that a capture is drawn as a flame graph.
#[test]
fn a_capture_is_drawn() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.svg", running.pid()));
    let output = sidecar(&["heap", &running.pid().to_string(), "-o", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("<title>main.fresh ("));
    std::fs::remove_file(&file).unwrap();
}

/// Check that what cannot be is said, with what to do.
#[test]
fn what_is_no_go_program_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let us = std::process::id().to_string();
    for (arguments, told) in [(["heap", &us], "not built by Go"), (["goroutines", "4194304"], "is gone")] {
        let output = sidecar(&arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    }
}
