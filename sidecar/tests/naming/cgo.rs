//! Stacks that go on from C into Go, and those of C's own threads.
//!
//! In: `tests/go/cgo` and `tests/go/thread`, built by the oldest and the newest version of Go, most of whose time is spent in C. Out: whether stacks name who called C, and
//! what is told of a thread that Go did not start. Needs root.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use super::build::{go_program_with, versions};
use super::profile::{RATE_HZ, ours, sampled};

/// Time on the processor in C.
const SECONDS: u64 = 2;
/// The innermost function of C, and what called it in Go, innermost last.
const INNERMOST: &str = "inner_c";
const GO: [&str; 5] = ["runtime.main", "main.main", "main.callsC", "main._Cfunc_outer_c", "runtime.cgocall"];

/// Check that where C is compiled with frame pointers in all functions, every function of C and of Go that called another is there.
#[test]
fn stacks_go_on_from_c_into_go() {
    let whole = |stack: &str| {
        let mut names = stack.split(';');
        GO.iter().chain(&["outer_c", INNERMOST]).all(|wanted| names.any(|name| name == *wanted))
    };
    assert_stacks_in_c(&[("CGO_CFLAGS", "-O0")], whole, 980);
}

/// Check that where C is compiled as cgo does it by itself, without frame pointers, who called it in Go is there all the same, and that it is said that functions of
/// C may be missing between them.
#[test]
fn who_called_c_is_known_without_its_frame_pointers() {
    let called = format!("{};[frames left out];", GO.join(";"));
    assert_stacks_in_c(&[], |stack| stack.starts_with(&called), 999);
}

/// Check that a thread of C's that has called Go and is back in C, to which Go's runtime keeps what it needs for the next call (since 1.21), is one of C: its name, its functions,
/// and nothing of Go below them.
#[test]
fn a_thread_of_c_that_has_called_go_is_one_of_c() {
    if !is_root() {
        return;
    }
    for version in versions() {
        let program = go_program_with("thread", version, &[], &[("CGO_CFLAGS", "-O0")]);
        let (window, _) = sampled(Command::new(&program).arg(SECONDS.to_string()));
        let (mut right, mut other) = (0, Vec::new());
        for entry in window.entries() {
            let names =
                || entry.stack.iter().flat_map(|location| location.lines.iter()).map(|line| &*line.function.name);
            let is_of_c = |name: &str| !name.starts_with("runtime.") && name != "[frames left out]";
            match names().take(2).eq([INNERMOST, "thread_c"]) {
                true if entry.name == "c-thread" && entry.tid != 0 && names().all(is_of_c) => right += entry.count,
                true => other.push((entry.name.to_owned(), names().map(str::to_owned).collect::<Vec<_>>())),
                false => {}
            }
        }
        assert_eq!(other, [], "{version}");
        let due = u64::from(RATE_HZ) * SECONDS;
        assert!(right * 2 > due, "{version}: {right} of {due}");
    }
}

fn is_root() -> bool {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        eprintln!("NOT RUN: eBPF programs can be loaded by root only; run the tests as root");
    }
    is_root
}

/// Checks that of a thousand stacks in the innermost function so many are right, root first, of programs built with these variables.
fn assert_stacks_in_c(variables: &[(&str, &str)], is_right: impl Fn(&str) -> bool, of_thousand: u64) {
    if !is_root() {
        return;
    }
    for version in versions() {
        let program = go_program_with("cgo", version, &[], variables);
        let (window, _) = sampled(Command::new(&program).arg(SECONDS.to_string()));
        let stacks = ours(&window);
        let inner = || stacks.iter().filter(|(stack, _)| stack.rsplit(';').next() == Some(INNERMOST));
        let all: u64 = inner().map(|(_, count)| count).sum();
        let due = u64::from(RATE_HZ) * SECONDS;
        assert!(all * 2 > due, "{version}: {all} of {due}: {stacks:#?}");
        let right: u64 = inner().filter(|(stack, _)| is_right(stack)).map(|(_, count)| count).sum();
        assert!(right * 1000 >= all * of_thousand, "{version}: {right} of {all}: {stacks:#?}");
    }
}
