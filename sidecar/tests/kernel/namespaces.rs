//! In a pid namespace of its own, as in a pod: these tests run themselves anew in there.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use profiler_sidecar::drain::Event;
use profiler_sidecar::sample::Sample;

use crate::programs::{Talk, deep};
use crate::recorder::{Recorder, alone};

/// Says that a test runs in a namespace of its own.
const INSIDE: &str = "PROFILER_TEST_INSIDE";

/// Runs a test of this binary in a pid namespace of its own, once `first` is done there, beside a busy program outside; `false` if this is in there already.
fn outside(test: &str, first: &str) -> bool {
    outside_with(test, first, |_| {})
}

/// The same; `beside` is done outside, again and again, with the number of whose children are in there.
fn outside_with(test: &str, first: &str, beside: impl Fn(u32)) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let Some(_alone) = alone() else { return true };
    let busy = Talk::start(deep(10, 120_000));
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", &format!("{first} && exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture"]);
    let mut inside = command.env(INSIDE, "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while inside.try_wait().unwrap().is_none() {
        beside(inside.id());
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = inside.wait_with_output().unwrap();
    drop(busy);
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{complaint}");
    true
}

#[test]
fn a_pod_sees_itself_alone() {
    if outside("namespaces::a_pod_sees_itself_alone", "true") {
        return;
    }
    let beside = Beside::start();
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
    beside.assert_seen(&recorder.samples_of(std::process::id()));
}

/// Check that without the kernel's offsets, where the helper alone says whose a thread is, a pod sees itself alone, too.
#[test]
fn a_pod_without_offsets_sees_itself_alone() {
    if outside("namespaces::a_pod_without_offsets_sees_itself_alone", "mount -t tmpfs none /sys/kernel/btf") {
        return;
    }
    let beside = Beside::start();
    let Some((mut recorder, program)) = Recorder::lacking("no offsets of the running kernel", || deep(10, 500)) else {
        return;
    };
    let mut program = Talk::start(program);
    let pid = program.pid();
    recorder.until_exit(pid);
    program.child.wait().unwrap();
    recorder.until("ticks of others", |recorder| recorder.sampler.counters().unwrap().outside > 100);
    let (own, samples) = (std::process::id(), recorder.samples_of(pid));
    assert!(samples.len() > 30 && samples.iter().all(|sample| sample.tid == pid), "{}", samples.len());
    assert!(recorder.samples.iter().all(|sample| [own, pid].contains(&sample.pid)));
    beside.assert_seen(&recorder.samples_of(own));
}

/// A busy thread of this process.
struct Beside {
    tid: u32,
    ended: Arc<AtomicBool>,
}

impl Beside {
    const NAME: &str = "beside";

    fn start() -> Self {
        let (sender, receiver) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let spin = move || {
            // PID/task/TID, as the namespace of this `/proc` numbers them.
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            sender.send(own.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            while !until.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        std::thread::Builder::new().name(Self::NAME.to_owned()).spawn(spin).unwrap();
        Self { tid: receiver.recv().unwrap(), ended }
    }

    /// Fails unless some of these are of the thread, by its number and its name.
    fn assert_seen(&self, samples: &[&Sample]) {
        assert_ne!(self.tid, std::process::id());
        let seen = samples.iter().filter(|sample| sample.tid == self.tid);
        assert!(seen.clone().count() > 30, "{} of {}", seen.count(), samples.len());
        assert!(seen.clone().all(|sample| sample.comm.text() == Self::NAME));
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[test]
fn processes_of_namespaces_below_are_counted() {
    if outside("namespaces::processes_of_namespaces_below_are_counted", "true") {
        return;
    }
    let Some((mut recorder, program)) = Recorder::usual_with(|| deep(10, 500)) else { return };
    let mut below = Command::new("unshare").args(["--pid", "--fork"]).arg(program.get_program()).spawn().unwrap();
    recorder.until("ticks of a process below", |recorder| recorder.sampler.counters().unwrap().foreign_pidns > 100);
    below.wait().unwrap();
    recorder.drain();
    assert!(recorder.samples.iter().all(|sample| sample.comm.text() != "deep-10-500"), "its numbers mean nothing here");
}

/// Check that the birth of a process that comes from outside, as by `kubectl exec`, is told, so that it is not taken for whoever had its number before.
#[test]
fn who_comes_from_outside_is_told_of() {
    let comes = |unshare: u32| {
        let namespace = format!("--pid=/proc/{unshare}/ns/pid_for_children");
        // Before there is a first process in it nobody can come.
        drop(Command::new("nsenter").args([&namespace, "true"]).stderr(Stdio::null()).status());
    };
    if outside_with("namespaces::who_comes_from_outside_is_told_of", "true", comes) {
        return;
    }
    let Some(mut recorder) = Recorder::usual() else { return };
    recorder.until("one that comes from outside", |recorder| {
        let began =
            |pid: u32| recorder.events.iter().any(|event| matches!(event, Event::Exec { pid: of, .. } if *of == pid));
        recorder.events.iter().any(|event| matches!(event, Event::Fork { pid: 0, child } if began(*child)))
    });
}
