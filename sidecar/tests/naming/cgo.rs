//! Stacks that go on from C into Go.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use super::build::{go_program_with, versions};
use super::profile::{RATE_HZ, ours, sampled};

/// Time on the processor in C.
const SECONDS: u64 = 2;

/// Check that where C is compiled with frame pointers in all functions, every function of C and of Go that called another is there.
#[test]
fn stacks_go_on_from_c_into_go() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("NOT RUN: eBPF programs can be loaded by root only; run the tests as root");
        return;
    }
    let go = ["runtime.cgocall", "main._Cfunc_outer_c", "main.callsC", "main.main", "runtime.main"];
    let c = ["inner_c", "outer_c"];
    for version in versions() {
        let program = go_program_with("cgo", version, &[], &[("CGO_CFLAGS", "-O0")]);
        let (window, _) = sampled(Command::new(&program).arg(SECONDS.to_string()));
        let stacks = ours(&window);
        let in_inner = |stack: &str| stack.rsplit(';').next() == Some("inner_c");
        let inner: u64 = stacks.iter().filter(|(stack, _)| in_inner(stack)).map(|(_, count)| count).sum();
        let due = u64::from(RATE_HZ) * SECONDS;
        assert!(inner * 2 > due, "{version}: {inner} of {due}: {stacks:#?}");
        let expected: Vec<&str> = go.iter().rev().chain(c.iter().rev()).copied().collect();
        let whole = |stack: &str| {
            let mut names = stack.split(';');
            expected.iter().all(|wanted| names.any(|name| name == *wanted))
        };
        let whole: u64 =
            stacks.iter().filter(|(stack, _)| in_inner(stack) && whole(stack)).map(|(_, count)| count).sum();
        assert!(whole * 100 >= inner * 98, "{version}: {whole} of {inner}: {stacks:#?}");
    }
}

/// Check that where C is compiled as cgo does it by itself, without frame pointers, who called it in Go is there all the same, and that it is said that functions of
/// C may be missing between them.
#[test]
fn who_called_c_is_known_without_its_frame_pointers() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("NOT RUN: eBPF programs can be loaded by root only; run the tests as root");
        return;
    }
    let go = ["runtime.main", "main.main", "main.callsC", "main._Cfunc_outer_c", "runtime.cgocall"];
    for version in versions() {
        let program = go_program_with("cgo", version, &[], &[]);
        let (window, _) = sampled(Command::new(&program).arg(SECONDS.to_string()));
        let stacks = ours(&window);
        let in_inner = |stack: &str| stack.rsplit(';').next() == Some("inner_c");
        let inner: u64 = stacks.iter().filter(|(stack, _)| in_inner(stack)).map(|(_, count)| count).sum();
        let due = u64::from(RATE_HZ) * SECONDS;
        assert!(inner * 2 > due, "{version}: {inner} of {due}: {stacks:#?}");
        let called = format!("{};[frames left out];", go.join(";"));
        let known: u64 = stacks
            .iter()
            .filter(|(stack, _)| in_inner(stack) && stack.starts_with(&called))
            .map(|(_, count)| count)
            .sum();
        assert!(known * 1000 >= inner * 999, "{version}: {known} of {inner}: {stacks:#?}");
    }
}
