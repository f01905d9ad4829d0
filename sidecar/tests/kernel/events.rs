//! What happens to processes reaches user space.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use profiler_sidecar::drain::Event;
use profiler_sidecar_ebpf::Executable;

use crate::programs::Talk;
use crate::recorder::Recorder;

#[test]
fn a_process_is_told_of_from_fork_to_exit() {
    let Some(mut recorder) = Recorder::usual() else { return };
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = child.id();
    recorder.until_exit(pid);
    child.wait().unwrap();
    let of_it: Vec<_> = recorder
        .events
        .iter()
        .filter(|event| match event {
            Event::Fork { child, .. } => *child == pid,
            Event::Exec { pid: of, .. } | Event::Exit { pid: of } => *of == pid,
            Event::Sample(_) => false,
        })
        .collect();
    let own = std::process::id();
    let [fork, Event::Exec { started, .. }, exit] = of_it[..] else { panic!("{of_it:?}") };
    assert_eq!([fork, exit], [&Event::Fork { pid: own, child: pid }, &Event::Exit { pid }]);
    let file = std::fs::metadata("/bin/true").unwrap();
    let changed = (file.ctime() * 1_000_000_000 + file.ctime_nsec()).cast_unsigned();
    let Executable { inode, size, changed_nanos, .. } = started.executable;
    assert_eq!((inode, size, changed_nanos), (file.ino(), file.len(), changed));
}

#[test]
fn threads_are_no_processes() {
    let Some(mut recorder) = Recorder::usual() else { return };
    // "PID/task/TID".
    let thread = std::thread::spawn(|| std::fs::read_link("/proc/thread-self").unwrap()).join().unwrap();
    let thread: u32 = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    recorder.until_exit(child.id());
    child.wait().unwrap();
    let (own, child) = (std::process::id(), child.id());
    assert!(!recorder.events.contains(&Event::Exit { pid: own }), "{:?}", recorder.events);
    let ours =
        |event: &&Event| matches!(event, Event::Fork { child: started, .. } if [child, thread].contains(started));
    let forks: Vec<_> = recorder.events.iter().filter(ours).collect();
    assert_eq!(forks, [&Event::Fork { pid: own, child }], "{thread}: {:?}", recorder.events);
}

/// Check that a process has the same number as long as it runs the same program, and another one with the next.
#[test]
fn each_program_of_a_process_has_a_number_of_its_own() {
    let Some(mut recorder) = Recorder::usual() else { return };
    let mut programs = recorder.sampler.programs().unwrap();
    let mut number = |pid: u32| programs.of(pid).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready; read line; exec cat"]);
    let mut shell = Talk::start(shell);
    let pid = shell.pid();
    assert_eq!(recorder.line(&shell), "ready");
    let first = number(pid);
    assert_eq!(number(pid), first);
    let execs = |all: &Recorder| {
        all.events.iter().filter(|event| matches!(event, Event::Exec { pid: of, .. } if *of == pid)).count()
    };
    assert_eq!(execs(&recorder), 1);
    shell.go();
    recorder.until("the second exec", |all| execs(all) == 2);
    let second = number(pid);
    assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
    // Of one that was there before the programs were loaded, too.
    let own = number(std::process::id());
    assert!(own.is_some() && own != second && number(std::process::id()) == own, "{own:?}");
}
