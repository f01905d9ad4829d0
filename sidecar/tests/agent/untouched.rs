//! No signal, no attach, no write into a process: captures by commands and an agent that the kernel would kill for any of these (`untouching.c`), and what the
//! kernel says of their target before and after. A write at a place (`pwrite`, as into `/proc/PID/mem`) and one into memory (`process_vm_writev`) are refused
//! to both. The plain `write` is refused to commands only, but for standard output and error: the agent needs it for its own descriptors.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::process::{Running, go_program_by, quiet};
use crate::{DEADLINE, folder, is_root, stats};

/// A number that no shell's exit code is: `SIGSYS`.
const SIGSYS: i32 = 31;

/// Builds `untouching.c`.
fn untouching() -> PathBuf {
    let program =
        folder(&format!("untouching-{:?}", std::thread::current().id()).replace(['(', ')'], "")).join("untouching");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/untouching.c");
    let built = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// What a command says that can touch nobody, and write to nothing but its standard output and error.
fn run(untouching: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(untouching);
    quiet(command.arg("-w").args(arguments));
    command.output().unwrap()
}

/// Who traces each of the threads, and which signals the process ignores and handles. Those that wait are left aside: Go's runtime sends some to its own
/// threads.
fn watched(pid: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut told: Vec<String> = threads
        .map(|thread| {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let fields = ["Pid:", "TracerPid:", "SigIgn:", "SigCgt:"];
            let of_field = |line: &&str| fields.iter().any(|field| line.starts_with(field));
            status.lines().filter(of_field).collect::<Vec<_>>().join(" ")
        })
        .collect();
    told.sort();
    told
}

/// Check that the filter kills for what it is there for, so that what it lets through has done none of it.
#[test]
fn whoever_touches_a_process_is_killed() {
    let untouching = untouching();
    let file = untouching.with_file_name("written");
    let file = file.to_str().unwrap();
    for shell in ["kill -0 $$", &format!("echo bad | tee {file}; exit $?")] {
        // The second one is killed as a child of the shell, which says so by 128 more.
        let ended = run(&untouching, &["bash", "-o", "pipefail", "-c", shell]).status;
        assert!(ended.signal() == Some(SIGSYS) || ended.code() == Some(128 + SIGSYS), "{shell}: {ended}");
    }
    assert_eq!(run(&untouching, &["echo", "well"]).stdout, b"well\n");
}

/// Check that each command and the agent capture a Go program without a signal, an attach or a write, as the first lines here have it: the kernel, which would kill them, does not; and that
/// nobody traces it and its signals are handled as before. Of the oldest and the newest version, which are read in other ways.
#[test]
fn captures_touch_nobody() {
    if !is_root() {
        return;
    }
    let untouching = untouching();
    for version in ["go1.21.13", "go1.27.0"] {
        is_untouched(&untouching, version);
    }
}

fn is_untouched(untouching: &Path, version: &str) {
    let program = go_program_by(version, "parked", &[]);
    let pid = program.pid().to_string();
    let before = watched(program.pid());
    let binary = env!("CARGO_BIN_EXE_profiler-sidecar");
    for (arguments, shown) in [
        (&["heap", &pid][..], "main.fill"),
        (&["goroutines", &pid], "[chan receive]"),
        (&["goroutines", &pid, "--each"], "created by main.park"),
        (&["goroutines", &pid, "--growth", "100ms"], " goroutines, "),
        (&["contention", &pid], "main.await"),
        (&["contention", &pid, "--mutex"], "main.release"),
    ] {
        let ran = run(untouching, &[&[binary], arguments].concat());
        let (said, why) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() && said.contains(shown), "{version} {arguments:?}: {} {said} {why}", ran.status);
        assert!(said.contains(version), "{arguments:?}: {said}");
    }
    // Its threads wake each other by descriptors of its own, which it writes to.
    let mut bare = Command::new("setpriv");
    quiet(
        bare.args(["--bounding-set=-all,+sys_ptrace", "--inh-caps=-all", "--no-new-privs"]).arg(untouching).arg(binary),
    );
    let run = Running::agent(bare.args(["run", "--runtime-interval", "1s", "--pid", &pid]));
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    while stats(&page)["captures"]["sets"].as_u64() < Some(3) {
        assert!(Instant::now() < until, "{} {}", stats(&page), run.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    // The program may have started threads meanwhile.
    let after = watched(program.pid());
    assert!(before.iter().all(|thread| after.contains(thread)), "{before:?} {after:?}");
    assert!(after.iter().all(|thread| thread.contains("TracerPid:\t0")), "{after:?}");
    assert_eq!(run.end(), Some(0));
}
