//! In a pid namespace of its own, as in a pod: these tests run themselves anew in there.

use std::collections::BTreeSet;
use std::process::Command;

use crate::programs::{Talk, deep};
use crate::recorder::{Recorder, alone};

/// Says that a test runs in a namespace of its own.
const INSIDE: &str = "PROFILER_TEST_INSIDE";

/// Runs a test of this binary in a pid namespace of its own, beside a busy program outside; `false` if this is in there already.
fn outside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let Some(_alone) = alone() else { return true };
    let busy = Talk::start(deep(10, 120_000));
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    let output = command.args([test, "--exact", "--nocapture"]).env(INSIDE, "1").output().unwrap();
    drop(busy);
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{complaint}");
    true
}

#[test]
fn a_pod_sees_itself_alone() {
    if outside("namespaces::a_pod_sees_itself_alone") {
        return;
    }
    // Built first: a compiler has processes of its own.
    let Some((mut recorder, program)) = Recorder::usual_with(|| deep(10, 500)) else { return };
    let mut program = Talk::start(program);
    let pid = program.pid();
    recorder.until_exit(pid);
    program.child.wait().unwrap();
    recorder.until("ticks of others", |recorder| recorder.sampler.counters().unwrap().outside > 100);
    let seen: BTreeSet<_> = recorder.samples.iter().map(|sample| sample.pid).collect();
    let ours = [std::process::id(), pid];
    assert!(seen.contains(&pid) && seen.iter().all(|pid| ours.contains(pid)), "{seen:?} beside {ours:?}");
    let samples = recorder.samples_of(pid);
    assert!(samples.len() > 30 && samples.iter().all(|sample| sample.tid == pid), "{}", samples.len());
    assert_eq!(recorder.sampler.counters().unwrap().foreign_pidns, 0);
}

#[test]
fn processes_of_namespaces_below_are_counted() {
    if outside("namespaces::processes_of_namespaces_below_are_counted") {
        return;
    }
    let Some((mut recorder, program)) = Recorder::usual_with(|| deep(10, 500)) else { return };
    let mut below = Command::new("unshare").args(["--pid", "--fork"]).arg(program.get_program()).spawn().unwrap();
    recorder.until("ticks of a process below", |recorder| recorder.sampler.counters().unwrap().foreign_pidns > 100);
    below.wait().unwrap();
    recorder.drain();
    assert!(recorder.samples.iter().all(|sample| sample.comm.text() != "deep-10-500"), "its numbers mean nothing here");
}
