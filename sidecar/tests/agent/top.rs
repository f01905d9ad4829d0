//! `top`: a table of one process, or one after the other on a terminal.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::early::build_with;
use crate::process::{Running, agent, go_program, quiet, said};
use crate::{DEADLINE, decode, folder, is_root};

/// Check one table to a pipe: functions with their shares, and the runtime's figures above them.
#[test]
fn a_pipe_gets_one_table() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let pid = program.pid().to_string();
    let until = Instant::now() + DEADLINE;
    loop {
        let table = said(&mut agent(&["top", &pid, "--interval", "1s", "--rate-hz", "499", "--rows", "3"]));
        assert!(table.starts_with(&format!("process {pid} (")) && table.contains("GOMAXPROCS "), "{table}");
        assert!(table.contains("heap: ") && table.contains(" collections, paused "), "{table}");
        assert!(!table.contains('\u{1b}'), "{table}");
        // On a busy machine it may have had no processor for so long.
        if table.contains("main.heavy") {
            assert_eq!(table.matches("     self   self%").count(), 1, "{table}");
            let rows = table.lines().skip_while(|line| !line.contains("self%")).skip(1).count();
            assert!((1..=3).contains(&rows), "{table}");
            return;
        }
        assert!(Instant::now() < until, "{table}");
    }
}

/// Check that an interval is written as a file of each form instead, with what was sampled in it, and that a name that says no form is refused before anything is
/// sampled.
#[test]
fn an_interval_is_written_as_a_file() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let pid = program.pid().to_string();
    let folder = folder("top");
    let until = Instant::now() + DEADLINE;
    for form in ["folded", "svg", "pb.gz"] {
        let file = folder.join("out").with_extension(form);
        loop {
            let told = said(agent(&["top", &pid, "--interval", "1s", "--rate-hz", "499", "-o"]).arg(&file));
            let bytes = std::fs::read(&file).unwrap();
            assert!(told.contains(&format!("; {} bytes in {}", bytes.len(), file.display())), "{told}");
            if has_heavy(form, &bytes) {
                break;
            }
            assert!(Instant::now() < until, "{form}: {told}");
        }
    }
    let refused = agent(&["top", &pid, "-o"]).arg(folder.join("out.txt")).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && told.contains("does not say which form"), "{told}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Whether a file of this form has samples of the function that takes most of the time.
fn has_heavy(form: &str, bytes: &[u8]) -> bool {
    let text = || std::str::from_utf8(bytes).unwrap();
    match form {
        "folded" => text().lines().any(|line| line.contains(";main.heavy")),
        "svg" => {
            assert!(text().starts_with("<svg ") && text().trim_end().ends_with("</svg>"), "{}", text());
            text().contains("main.heavy (")
        }
        _ => {
            let set = decode(bytes);
            let names: Vec<&str> =
                set.profiles.iter().map(|profile| set.dictionary.strings.text(profile.kind.sample_type.kind)).collect();
            assert_eq!(names, ["samples"]);
            let mut functions = set.dictionary.functions.iter();
            functions.any(|function| set.dictionary.strings.text(function.name) == "main.heavy")
        }
    }
}

/// Check that of a process which does nothing nothing is told, whatever others do meanwhile: they are left out, and not counted as lost.
#[test]
fn others_are_left_out() {
    if !is_root() {
        return;
    }
    let (idle, busy) = (go_program("parked"), go_program("shares"));
    let until = Instant::now() + DEADLINE;
    // The runtime wakes now and then, as it did while the program began.
    loop {
        let [of_idle, of_busy] = [&idle, &busy].map(|program| {
            let pid = program.pid().to_string();
            said(&mut agent(&["top", &pid, "--interval", "1s", "--rate-hz", "499", "--no-kernel"]))
        });
        for function in ["main.heavy", "main.light"] {
            assert!(!of_idle.contains(function), "{of_idle}");
        }
        assert!(!of_busy.contains("main.park"), "{of_busy}");
        let has_nothing = of_idle.contains("\n0 samples within ") && of_idle.contains(", 0 lost: it spent no time");
        if has_nothing && of_busy.contains("main.heavy") {
            return;
        }
        assert!(Instant::now() < until, "{of_idle} {of_busy}");
    }
}

/// Check that a program without Go's runtime is told by its path.
#[test]
fn what_is_no_go_program_has_its_path() {
    if !is_root() {
        return;
    }
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let path = std::fs::read_link(format!("/proc/{}/exe", sleeper.id())).unwrap();
    let table = said(&mut agent(&["top", &sleeper.id().to_string(), "--interval", "200ms"]));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let head = format!("process {} ({})\n0 samples within ", sleeper.id(), path.display());
    assert!(table.starts_with(&head), "{table}");
}

/// Check that a terminal gets one table after the other, each in the place of the one before, until the process ends.
#[test]
fn a_terminal_gets_one_table_after_the_other() {
    const REDRAWN: &str = "\u{1b}[H\u{1b}[2J";
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let pid = program.pid();
    let line = format!("{} top {pid} --interval 200ms", env!("CARGO_BIN_EXE_profiler-sidecar"));
    let mut terminal = Command::new("script");
    quiet(terminal.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null()));
    let shown = Running::program(&mut terminal);
    let redrawn = || shown.log().matches(REDRAWN).count();
    let until = Instant::now() + DEADLINE;
    while redrawn() < 3 {
        assert!(Instant::now() < until, "{}", shown.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(program);
    while !shown.log().contains("the process has ended") {
        assert!(Instant::now() < until, "{}", shown.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Check that of a program that cannot be sampled no empty file is written: it says why, and fails.
#[test]
fn what_cannot_be_sampled_is_no_empty_file() {
    if !is_root() {
        return;
    }
    let folder = folder("top-32");
    let program = folder.join("bare");
    build_with("bare", "go1.24.13", &[("GOARCH", "386")], &program);
    let mut running = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
    let file = folder.join("out.folded");
    let ran = agent(&["top", &running.id().to_string(), "--interval", "200ms", "-o"]).arg(&file).output().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && told.contains("its stacks cannot be walked here"), "{told}");
    assert!(!file.exists());
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that where CPU may not be sampled this is said, and heap and goroutines of a Go program are shown; and that of another program there is
/// nothing to show.
#[test]
fn without_ebpf_heap_and_goroutines_are_shown() {
    if !is_root() {
        return;
    }
    let bare = |pid: u32| {
        let mut bare = Command::new("setpriv");
        bare.args(["--bounding-set=-all,+sys_ptrace", "--inh-caps=-all", "--no-new-privs"]);
        bare.arg(env!("CARGO_BIN_EXE_profiler-sidecar")).args(["top", &pid.to_string(), "--interval", "10ms"]);
        quiet(&mut bare);
        bare
    };
    let program = go_program("parked");
    let table = said(&mut bare(program.pid()));
    assert!(table.contains("CPU is not sampled: ") && table.contains(" collections, paused "), "{table}");
    assert!(
        table.contains(" goroutines: ") && table.contains(" chan receive") && table.contains(" main.fresh"),
        "{table}"
    );
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let ran = bare(sleeper.id()).output().unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0));
    let ran = agent(&["top", "4194304"]).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && told.contains("process 4194304"), "{told}");
}

/// Check that where few files may be open it says so, or has enough, from few to many; and takes no process for one that has ended.
#[test]
fn few_files_are_said_to_be_few() {
    if !is_root() {
        return;
    }
    let program = go_program("parked");
    let pid = program.pid().to_string();
    let mut fine = 0;
    for most in [3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 64] {
        let mut few = Command::new("prlimit");
        few.arg(format!("--nofile={most}")).arg(env!("CARGO_BIN_EXE_profiler-sidecar"));
        quiet(few.args(["top", &pid, "--interval", "50ms"]));
        let ran = few.output().unwrap();
        let (told, why) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(!told.contains("has ended"), "{most}: {told}");
        match ran.status.code() {
            Some(0) => fine += usize::from(!told.contains("is not sampled")),
            // What loads the program needs a file, too.
            Some(1 | 127) => {
                assert!(why.contains("RLIMIT_NOFILE") || why.contains("shared libraries"), "{most}: {why}");
            }
            other => panic!("{most}: {other:?}: {why}"),
        }
    }
    assert!(fine > 0);
}
