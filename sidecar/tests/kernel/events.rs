//! What happens to processes reaches user space.

use std::process::Command;

use profiler_sidecar::drain::Event;

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
            Event::Exec { pid: of } | Event::Exit { pid: of } => *of == pid,
            Event::Sample(_) => false,
        })
        .collect();
    let own = std::process::id();
    assert_eq!(of_it, [&Event::Fork { pid: own, child: pid }, &Event::Exec { pid }, &Event::Exit { pid }]);
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
