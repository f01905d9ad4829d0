//! Stacks that go on from C into Go, and those of C's own threads.
//!
//! In: `tests/go/cgo`, `tests/go/thread` and `tests/go/nested`, built by the oldest and the newest version of Go, most of whose time is spent in C. Out: whether stacks name who called C, and
//! what is told of a thread that Go did not start. Needs root.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use profiler_sidecar::naming::Granularity;

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
/// and nothing of Go below them, and no labels of that call, which is over.
#[test]
fn a_thread_of_c_that_has_called_go_is_one_of_c() {
    if !is_root() {
        return;
    }
    for version in versions() {
        let program = go_program_with("thread", version, &[], &[("CGO_CFLAGS", "-O0")]);
        let (window, _) = sampled(Command::new(&program).arg(SECONDS.to_string()));
        let (mut right, mut other) = (0, Vec::new());
        for entry in window.entries(Granularity::Addresses) {
            let names =
                || entry.stack.iter().flat_map(|location| location.lines.iter()).map(|line| &*line.function.name);
            let is_of_c = |name: &str| !name.starts_with("runtime.") && name != "[frames left out]";
            match names().take(2).eq([INNERMOST, "thread_c"]) {
                true if entry.name == "c-thread"
                    && entry.tid != 0
                    && names().all(is_of_c)
                    && entry.tags == Some(&[]) =>
                {
                    right += entry.count;
                }
                true => other.push((entry.name.to_owned(), names().map(str::to_owned).collect::<Vec<_>>())),
                false => {}
            }
        }
        assert_eq!(other, [], "{version}");
        let due = u64::from(RATE_HZ) * SECONDS;
        assert!(right * 2 > due, "{version}: {right} of {due}");
    }
}

/// What is left out where C has no frame pointers.
const LEFT_OUT: &str = "[frames left out]";
/// What called C that calls Go, innermost last.
const CALLS_BACK: [&str; 5] =
    ["runtime.main", "main.main", "main.callsBack", "main._Cfunc_calls_go", "runtime.cgocall"];
/// Of Go that C has called.
const BACK: [&str; 5] =
    ["runtime.cgocallback", "runtime.cgocallbackg", "runtime.cgocallbackg1", "main.goWorks", "main.spin"];

/// Check Go that calls C, C that calls Go, and a thread of C's that calls Go, where C is compiled as cgo does it by itself and keeps nothing in the register of the frame pointer,
/// or what it was called with: all of Go is there, and it is said where functions of C may be missing. The walk by frame pointers knows of none.
#[test]
fn all_of_go_is_known_around_c_without_frame_pointers() {
    let (to_c, back) =
        ([&GO[..], &[LEFT_OUT, INNERMOST]].concat(), [&CALLS_BACK[..], &[LEFT_OUT, "crosscall2"], &BACK].concat());
    let thread = ["[stack incomplete]", "crosscall2"];
    assert_nested(&[], &to_c, &back, &[&thread[..], &BACK].concat());
}

/// Check that with frame pointers in C all of C is there, too.
#[test]
fn all_is_known_around_c_with_frame_pointers() {
    let to_c = [&GO[..], &["runtime.asmcgocall", "outer_c", INNERMOST]].concat();
    let back = [&CALLS_BACK[..], &["runtime.asmcgocall", "calls_go", "goWorks", "crosscall2"], &BACK].concat();
    let thread = ["thread_c", "calls_go", "goWorks", "crosscall2"];
    assert_nested(&[("CGO_CFLAGS", "-O0")], &to_c, &back, &[&thread[..], &BACK].concat());
}

/// Checks that nearly all stacks of `nested` in the innermost function of C, and in the one of Go that C calls, by way of Go and in a thread, are these, root first, but for what
/// cgo puts between them by itself.
fn assert_nested(variables: &[(&str, &str)], to_c: &[&str], back: &[&str], thread: &[&str]) {
    if !is_root() {
        return;
    }
    for version in versions() {
        let program = go_program_with("nested", version, &[], variables);
        let (window, stats) = sampled(Command::new(&program).arg("1"));
        let stacks = ours(&window);
        let named = |stack: &str| -> Vec<String> {
            // Called with a zero, which ends the walk, the function of cgo's that calls Go is not seen.
            let others = ["start_thread", "clone3", "__clone3", if variables.is_empty() { "goWorks" } else { "" }];
            let is_ours = |name: &&str| !name.starts_with("_cgo") && !others.contains(name);
            stack.split(';').filter(is_ours).map(str::to_owned).collect()
        };
        let (mut whole, due) = (0, u64::from(RATE_HZ));
        for (what, wanted) in [("to C", to_c), ("and back", back), ("in a thread", thread)] {
            let is_way = |names: &[String]| match what {
                "to C" => names.last().is_some_and(|name| name == INNERMOST),
                _ => {
                    names.last().is_some_and(|name| name == "main.spin")
                        && names.iter().any(|name| name == "runtime.main") == (what == "and back")
                }
            };
            let of_way = stacks.iter().map(|(stack, count)| (named(stack), *count)).filter(|(names, _)| is_way(names));
            let (right, other): (Vec<_>, Vec<_>) = of_way.partition(|(names, _)| names == wanted);
            let sum = |of: &[(Vec<String>, u64)]| of.iter().map(|(_, count)| count).sum::<u64>();
            // Each way has a second, of which other tests may take most.
            assert!(
                sum(&right) * 10 > due && sum(&other) * 100 <= sum(&right),
                "{version} {what}: {} of {due}, not {other:#?}",
                sum(&right)
            );
            whole += if wanted.iter().any(|name| name.starts_with('[')) { 0 } else { sum(&right) };
        }
        // What lacks frames is not counted as whole, and nothing else. There is little but these three.
        assert!(stats.whole.abs_diff(whole) * 10 < stats.stacks, "{version}: {whole} {stats:?}");
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
