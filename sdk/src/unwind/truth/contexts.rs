//! Changes of tags and spans in single steps: what a handler reads behind every instruction is the old context or the new one.
//!
//! In: the changes of a thread (`context::changes`), once at full speed, which tells what is read after each, and once in single steps. Out: how
//! often the old and the new one were read. The handler of the trap reads what the handler of SIGPROF would.

use std::cell::Cell;
use std::process::Command;

use super::stepper::Run;
use crate::context::address;
use crate::context::changes::{Changes, Seen};

thread_local! {
    /// What is read after each change; first, before all of them.
    static EXPECTED: Cell<&'static [Seen]> = const { Cell::new(&[]) };
    /// How many changes are behind the thread.
    static CHANGES: Cell<usize> = const { Cell::new(0) };
    /// How often the context before a change was read, the one after it, neither.
    static COUNTS: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
}

/// Behind every instruction.
fn look() {
    let (expected, seen, changes) = (EXPECTED.get(), Seen::here(), CHANGES.get());
    let which = [changes, changes + 1].iter().position(|place| expected.get(*place) == Some(&seen)).unwrap_or(2);
    let mut counts = COUNTS.get();
    counts[which] += 1;
    COUNTS.set(counts);
}

/// Checks that at every instruction of the changes the thread's handler reads the context before one or the one after it.
#[track_caller]
fn assert_seen_whole(changes: &Changes) {
    let expected = &*changes.expected().leak();
    changes.on_thread(|| {
        EXPECTED.set(expected);
        let steps = Run::new().look(look).check_here(|| changes.run(&|| CHANGES.set(CHANGES.get() + 1)));
        let ([old, new, neither], changes) = (COUNTS.get(), CHANGES.get());
        assert_eq!((changes + 1, neither), (expected.len(), 0), "of {steps} instructions");
        assert!(old > 1000 && new > 100, "{old} old, {new} new of {steps} instructions");
    });
}

/// Check that a change is seen whole at every instruction: the first of a thread, scopes left in and out of order, spans with and without tags,
/// tags in the place of others, polls, and the end of the thread with a scope that was never left.
#[test]
fn a_change_is_seen_whole_at_every_instruction() {
    assert_seen_whole(&Changes::of_every_kind());
}

/// Check the same for scopes beyond those that a thread keeps, on the way there and back, and a span within them.
#[test]
fn a_change_beyond_the_bound_is_seen_whole_at_every_instruction() {
    assert_seen_whole(&Changes::beyond_the_bound());
}

/// Check both for a library whose thread-locals the loader put anywhere: there handlers find the record by the word that the thread left.
#[test]
fn a_change_is_seen_whole_where_thread_locals_are_anywhere() {
    const VARIABLE: &str = "PROFILER_TEST_ANYWHERE";
    if std::env::var_os(VARIABLE).is_none() {
        // Nobody beside it whose records are at a known place.
        let name = "unwind::truth::contexts::a_change_is_seen_whole_where_thread_locals_are_anywhere";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let done = child.args(["--exact", name, "--nocapture"]).env(VARIABLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(said.matches("0 stacks wrong").count(), 2, "{said}");
        return;
    }
    address::put_anywhere();
    assert_seen_whole(&Changes::of_every_kind());
    assert_seen_whole(&Changes::beyond_the_bound());
    assert_eq!(address::distance(), None);
}
