//! What is missing is said, with what to do, and the rest is done: no BTF, perf events forbidden, settings that cannot be, processes that are not there.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::http::get;
use crate::process::{Running, agent, go_program, quiet};
use crate::shares::Shares;
use crate::{DEADLINE, decode, folder, is_root, stats};

/// What a command says that fails with this code.
fn refused(arguments: &[&str], code: i32) -> String {
    let ran = agent(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

/// Check that without BTF a Go program is sampled with its names, without its labels, and that this is said.
#[test]
fn without_btf_samples_have_names_and_no_labels() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let mut hidden = Command::new("unshare");
    let script = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
    hidden.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_profiler-sidecar")]);
    hidden.args(["run", "--rate-hz", "499", "--pid", &program.pid().to_string()]);
    quiet(&mut hidden);
    let run = Running::agent(&mut hidden);
    let page = run.address_after("http://");
    let (until, mut shares) = (Instant::now() + DEADLINE, Shares::default());
    while shares.samples < 20 {
        assert!(Instant::now() < until, "{shares:?} {}", run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=1&pid={}", program.pid()));
        if answer.status == 200 {
            shares.add(&decode(&answer.body));
        }
    }
    assert!(shares.has_no_labels(), "{shares:?}");
    assert!(run.log().contains("no offsets of the running kernel (/sys/kernel/btf/vmlinux"), "{}", run.log());
    assert_eq!(run.end(), Some(0));
}

/// Check that where perf events are forbidden the agent says so and goes on without samples, and that `record` ends.
#[test]
fn where_perf_events_are_forbidden_it_says_what_to_do() {
    if !is_root() {
        return;
    }
    let bare = |arguments: &[&str]| {
        let mut bare = Command::new("setpriv");
        bare.args(["--bounding-set=-all,+bpf,+sys_ptrace,+syslog", "--inh-caps=-all", "--no-new-privs"]);
        bare.arg(env!("CARGO_BIN_EXE_profiler-sidecar")).args(arguments);
        quiet(&mut bare);
        bare
    };
    let run = Running::agent(&mut bare(&["run"]));
    let page = run.address_after("http://");
    assert!(run.log().contains("CPU is not sampled") && run.log().contains("CAP_PERFMON"), "{}", run.log());
    assert_eq!(stats(&page)["sampling"], false);
    assert_eq!(run.end(), Some(0));
    let own = std::process::id().to_string();
    let output = folder("forbidden").join("out.pb.gz");
    let ran = bare(&["record", "-d", "1s", "-p", &own, "-o", output.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && said.contains("CAP_PERFMON"), "{said}");
    assert!(!output.exists());
}

/// Check that with too few open files the agent says which limit to raise, instead of losing what it would need later.
#[test]
fn too_few_open_files_are_refused() {
    if !is_root() {
        return;
    }
    for most in ["--nofile=4", "--nofile=8", "--nofile=16"] {
        let mut few = Command::new("prlimit");
        few.args([most, env!("CARGO_BIN_EXE_profiler-sidecar"), "run"]);
        quiet(&mut few);
        let ran = few.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(1) && said.contains("RLIMIT_NOFILE"), "{most}: {said}");
    }
}

/// Check that files that may not grow as large as they are do not end the agent: it says that they cannot be written, and goes on.
#[test]
fn files_that_may_not_grow_are_said_to() {
    if !is_root() {
        return;
    }
    let (program, files) = (go_program("parked"), folder("fsize"));
    let mut little = Command::new("prlimit");
    little.args(["--fsize=1000", env!("CARGO_BIN_EXE_profiler-sidecar"), "run", "--runtime-interval", "1s"]);
    quiet(little.args(["--pid", &program.pid().to_string()]).env("PROFILER_FILES_DIR", &files));
    let run = Running::agent(&mut little);
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    while !run.log().contains("File too large") {
        assert!(Instant::now() < until, "{}", run.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(stats(&page)["sampling"], true);
    assert_eq!(run.end(), Some(0));
    std::fs::remove_dir_all(files).unwrap();
}

/// Check that processes that are not there, and files that cannot be written, are named before anything is recorded.
#[test]
fn what_cannot_be_recorded_is_named() {
    if !is_root() {
        return;
    }
    let said = refused(&["record", "-p", "4194303", "-o", "/tmp/out.pb.gz"], 1);
    assert!(said.contains("process 4194303") && said.contains("`ps`"), "{said}");
    let said = refused(&["record", "-o", "-", "-c", "true"], 2);
    assert!(said.contains("give -o a file"), "{said}");
    let said = refused(&["record", "-p", "1", "-o", "/tmp/out.doc"], 2);
    assert!(said.contains("/tmp/out.doc") && said.contains(".pb.gz"), "{said}");
    let own = std::process::id().to_string();
    // At once: nobody records for an hour what cannot be written.
    let said = refused(&["record", "-d", "1h", "-p", &own, "-o", "/no/such/folder/out.svg"], 1);
    assert!(said.contains("/no/such/folder/out.svg"), "{said}");
    // What is named is nothing that a terminal obeys.
    let said = refused(&["record", "-d", "1h", "-p", &own, "-o", "/no/such/\u{1b}[2J/out.svg"], 1);
    assert!(said.contains("/no/such/\u{fffd}[2J/out.svg") && !said.contains('\u{1b}'), "{said:?}");
}

/// Check that a process that may not be looked at is refused at once, whatever it is to be recorded for, and that a file that is there stays.
#[test]
fn what_may_not_be_recorded_is_refused_at_once() {
    if !is_root() {
        return;
    }
    let file = folder("refused").join("kept.pb.gz");
    std::fs::write(&file, "kept").unwrap();
    let other = Running::program(Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "sleep", "600"]));
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set=-all,+bpf,+perfmon,+syslog", "--inh-caps=-all", "--no-new-privs"]);
    bare.args([env!("CARGO_BIN_EXE_profiler-sidecar"), "record", "-d", "1h", "-p", &other.pid().to_string(), "-o"]);
    quiet(&mut bare);
    let ran = bare.arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be sampled") && said.contains("not permitted"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
}

/// Check that where `/proc` has the numbers of another pid namespace, nobody is looked at under them: what to do is said instead.
#[test]
fn where_proc_is_anothers_nothing_is_looked_at() {
    if !is_root() {
        return;
    }
    for arguments in [&["run"][..], &["goroutines", "1"], &["record", "-p", "1", "-o", "/tmp/out.pb.gz"]] {
        let mut inside = Command::new("unshare");
        inside.args(["--pid", "--fork", env!("CARGO_BIN_EXE_profiler-sidecar")]).args(arguments);
        quiet(&mut inside);
        let ran = inside.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("/proc") && said.contains("mount -t proc"), "{arguments:?}: {said}");
    }
}

/// Check that a log that cannot be written, for the disk is full, or who read it has gone, ends nothing.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    if !is_root() {
        return;
    }
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let gone = || Stdio::from(std::io::pipe().unwrap().1);
    for log in [full(), gone()] {
        let run = Running::program(agent(&["run", "--pid", "1"]).stderr(log));
        run.address_after("ready");
        assert_eq!(run.end(), Some(0));
    }
}

/// Check that the agent ends as asked where its terminal goes away, and by SIGQUIT, but not with a terminal that it is to outlive.
#[test]
fn it_ends_with_its_terminal() {
    if !is_root() {
        return;
    }
    for signal in ["-HUP", "-QUIT"] {
        // Who runs the tests may have it ignored.
        let mut ends = Command::new("env");
        quiet(ends.args(["--default-signal=HUP,QUIT", env!("CARGO_BIN_EXE_profiler-sidecar"), "run", "--pid", "1"]));
        let run = Running::program(&mut ends);
        run.address_after("ready");
        run.signal(signal);
        assert_eq!(run.ended(), Some(0), "{signal}");
    }
    let mut outlives = Command::new("nohup");
    quiet(outlives.args([env!("CARGO_BIN_EXE_profiler-sidecar"), "run", "--pid", "1"]));
    let run = Running::program(&mut outlives);
    let page = run.address_after("profiles http://").trim_end_matches('/').to_owned();
    run.signal("-HUP");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(get(&page, "/stats").status, 200);
    assert_eq!(run.end(), Some(0));
}

/// Check that the log says at start which privilege there is, as `/stats` does, and which process is not there.
#[test]
fn the_start_is_told() {
    let mut command = agent(&["run", "--pid", "4194303"]);
    let run = Running::agent(&mut command);
    let page = run.address_after("http://");
    let privilege = stats(&page)["self"]["privilege"].as_str().unwrap().to_owned();
    let log = run.log();
    assert!(log.contains(&format!("privilege `{privilege}`")), "{log}");
    assert!(log.contains("there is no process 4194303"), "{log}");
    assert_eq!(run.end(), Some(0));
}

/// Check that a process that spends no time has a profile without samples, which can be read, and that where nobody can be sampled there is none.
#[test]
fn where_there_are_no_samples_there_is_a_profile_of_none() {
    if !is_root() {
        return;
    }
    let mut sleeping = Command::new("sleep").arg("600").spawn().unwrap();
    let until = Instant::now() + DEADLINE;
    for (pid, expected) in [(sleeping.id(), 200), (4_194_303, 404)] {
        let run = Running::agent(&mut agent(&["run", "--pid", &pid.to_string()]));
        let page = run.address_after("http://");
        let answer = loop {
            let answer = get(&page, "/debug/pprof/profile?seconds=1");
            // It may not have been seen yet.
            if answer.status == expected {
                break answer;
            }
            assert!(Instant::now() < until, "{pid}: {} {}", answer.status, run.log());
        };
        if expected == 200 {
            let set = decode(&answer.body);
            let [profile] = &set.profiles[..] else { panic!("{} profiles", set.profiles.len()) };
            assert!(profile.kind.is_cpu(&set.dictionary) && profile.samples.is_empty(), "{profile:?}");
        }
        assert_eq!(run.end(), Some(0));
    }
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
}

/// Check that a file that may not grow (RLIMIT_FSIZE) is an error that names it, and that nothing is left of it.
#[test]
fn a_file_that_may_not_grow_is_named() {
    if !is_root() {
        return;
    }
    let folder = folder("oversize");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 0 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_profiler-sidecar"), "record", "-o"]);
    limited.arg(folder.join("out.svg")).args(["-c", "sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"]);
    let ran = limited.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("out.svg") && said.contains("File too large"), "{said}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

/// Check that a command that outlives its recording is named.
#[test]
fn a_command_that_goes_on_is_named() {
    if !is_root() {
        return;
    }
    let output = folder("outlives").join("out.folded");
    let mut record = agent(&["record", "-d", "200ms", "-o", output.to_str().unwrap()]);
    let ran = record.args(["-c", "sh", "-c", "trap '' TERM; sleep 3"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("goes on: process "), "{said}");
}

/// Check that settings that cannot be end `run` and `--check-config` with 2 and name the place.
#[test]
fn settings_that_cannot_be_name_their_place() {
    let file = folder("settings").join("wrong.toml");
    for (text, words) in [
        ("rate_hz = 99\nrat = 7\n", ["wrong.toml:2", "rat"]),
        ("[targets]\ninclude = [\"service=[\"]\n", ["wrong.toml:2", "["]),
        ("[targets]\ninclude = [\"*/a\"]\nexclude = [\"*/a\"]\n", ["*/a", "exclude"]),
        ("interval = \"soon\"\n", ["wrong.toml:1", "interval"]),
        ("rate_hz = 0\n", ["wrong.toml:1", "rate_hz"]),
    ] {
        std::fs::write(&file, text).unwrap();
        // First what ends in any case.
        for check in [&["--check-config"][..], &[]] {
            let arguments = [&["run", "--config", file.to_str().unwrap()][..], check].concat();
            let said = refused(&arguments, 2);
            assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    // A folder may come later: `run` goes on.
    std::fs::write(&file, "[[export]]\nto = \"files\"\nfolder = \"/no/such\"\n").unwrap();
    let said = refused(&["run", "--check-config", "--config", file.to_str().unwrap()], 2);
    assert!(said.contains("wrong.toml:1") && said.contains("/no/such"), "{said}");
    std::fs::write(&file, "rate_hz = 19\n").unwrap();
    let mut command = agent(&["run", "--check-config", "--config", file.to_str().unwrap()]);
    let ran = command.env("PROFILER_RATE", "29").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("19 Hz"), "{said}");
    assert!(said.contains("without effect: PROFILER_RATE, for no setting has this name\n"), "{said}");
}
