//! The commands at a terminal, with a real program.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use profiler_proto::{Limits, pprof};

use crate::running::Running;
use crate::{pretender, programs};

fn sidecar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_profiler-sidecar")).args(arguments).output().unwrap()
}

/// Whether the command may read others' processes: of another user's, or where Yama is, it may read its children only, and these are ours.
pub(crate) fn is_root() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root {
        eprintln!("NOT RUN: the commands read processes that they did not start, which needs root");
    }
    is_root
}

fn shown(arguments: &[&str]) -> String {
    let output = sidecar(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Check tables, the form of a panic, and the files of each command for `go tool pprof`.
#[test]
fn a_program_is_shown_at_the_terminal_and_as_a_file() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[]);
    let pid = &running.pid().to_string();
    let heap = shown(&["heap", pid]);
    assert!(heap.contains("go1.24.13): heap") && heap.contains(" main.fresh\n"), "{heap}");
    let grouped = shown(&["goroutines", pid]);
    assert!(
        grouped.contains("\n3 [chan receive]:\n") && grouped.contains("{endpoint: /orders, tier: gold}"),
        "{grouped}"
    );
    let each = shown(&["goroutines", "--each", pid]);
    // Whoever started another one is named with its number: here, the first one all of them.
    assert!(
        each.contains("\ngoroutine 1 [") && each.contains("created by main.park.func1 in goroutine 1\n\t"),
        "{each}"
    );
    // As a panic leaves out the runtime's own, it does.
    let count = each.matches("\ngoroutine ").count();
    assert!(each.contains(&format!("): {count} goroutines, besides ")) && !each.contains("runtime.bgsweep"), "{each}");
    assert!(shown(&["contention", pid]).contains("sync.(*Mutex).Lock"));
    assert!(shown(&["contention", "--mutex", pid]).contains("main.release"));

    for (arguments, expected) in [
        (&["heap", pid][..], &["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"][..]),
        (&["goroutines", pid], &["goroutine"]),
        (&["contention", pid], &["contentions", "delay"]),
        (&["contention", "--mutex", pid], &["contentions", "delay"]),
    ] {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{pid}-terminal.pb.gz"));
        // There may be a single one by now.
        let said = shown(&[arguments, &["-o", file.to_str().unwrap()]].concat());
        assert!(said.contains(" stack"), "{said}");
        let piped = sidecar(&[arguments, &["-o", "-"]].concat());
        let said = String::from_utf8_lossy(&piped.stderr);
        assert!(piped.status.success() && said.starts_with("standard output: "), "{said}");
        for bytes in [std::fs::read(&file).unwrap(), piped.stdout] {
            let set = pprof::decode(&bytes, &Limits::default()).unwrap();
            let kind = |p: &profiler_proto::Profile| set.dictionary.strings.text(p.kind.sample_type.kind);
            assert_eq!(set.profiles.iter().map(kind).collect::<Vec<_>>(), expected, "{arguments:?}");
            assert!(set.profiles.iter().all(|profile| !profile.samples.is_empty()), "{arguments:?}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}

/// Check that each goroutine is shown as Go's own `debug=2` shows it at the same moment, of the oldest version, one between and the newest: state, thread, functions, lines,
/// who made it.
#[test]
fn each_goroutine_is_shown_as_a_panic_shows_it() {
    if !is_root() {
        return;
    }
    for version in ["go1.21.13", "go1.24.13", "go1.27.0"] {
        let program = programs::build("parked", version, &["-ldflags=-s -w"], "amd64");
        let mut running = Running::start(&program, &[]);
        let folder = program.with_extension(format!("{}.each", running.pid()));
        std::fs::create_dir_all(&folder).unwrap();
        running.ask("finalize", "finalizes");
        running.ask(&format!("write {}", folder.display()), "written");
        let theirs = by_number(&std::fs::read_to_string(folder.join("goroutines.txt")).unwrap());
        let ours = by_number(&shown(&["goroutines", "--each", &running.pid().to_string()]));
        std::fs::remove_dir_all(&folder).unwrap();
        let has = |end: &str| theirs.values().flatten().any(|told| told.ends_with(end));
        assert!(theirs.len() > 15 && has(", locked to thread") && has("panic"), "{theirs:?}");
        assert!(has("main.(*box[...]).wait") && has("main.finalize.func1"), "{theirs:?}");
        for (number, told) in theirs {
            assert_eq!(ours.get(&number), Some(&told), "{version}: goroutine {number}");
        }
    }
}

/// What is told of each goroutine but the one that wrote it, line by line: without arguments of functions, which Go alone shows, labels, which newer versions show, and
/// distances from the begin of a function.
fn by_number(text: &str) -> BTreeMap<u64, Vec<String>> {
    let told = text.split("\n\n").filter_map(|told| told.trim_start().strip_prefix("goroutine "));
    let told = told.filter_map(|told| {
        let (head, rest) = told.split_once('\n')?;
        let (number, state) = head.split_once(' ')?;
        let state = state.split_once(']')?.0.to_owned();
        let lines = rest.trim_end().lines().map(|line| match line.split_once(" +0x") {
            Some((place, _)) => place.to_owned(),
            None if line.ends_with(')') => line.rsplit_once('(').unwrap().0.to_owned(),
            None => line.to_owned(),
        });
        Some((number.parse().ok()?, [state].into_iter().chain(lines).collect()))
    });
    told.filter(|(number, _)| *number != 1).collect()
}

/// Check that of a heap that is read in part what was read is shown, and what is left out is said.
#[test]
fn a_heap_that_is_read_in_part_is_shown() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let mut running = Running::start(&program, &[]);
    collect(&program, &mut running);
    let heap = shown(&["heap", &running.pid().to_string(), "--max-buckets", "4"]);
    assert!(heap.contains("\nin use: ") && heap.contains(" stacks left out, as there are more"), "{heap}");
    assert!(heap.lines().skip_while(|line| !line.ends_with("  function")).nth(1).is_some(), "{heap}");
}

/// Check the form for other tools, of each command: a line for each stack, root first, with its value behind it; all of them are what the program keeps, and how many
/// goroutines it has.
#[test]
fn captures_are_written_as_folded_stacks() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let mut running = Running::start(&program, &[]);
    collect(&program, &mut running);
    let pid = running.pid().to_string();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{pid}.folded"));
    let folded = |arguments: &[&str]| {
        let said = shown(&[arguments, &[&pid, "-o", file.to_str().unwrap()]].concat());
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let lines: Vec<(String, i64)> = text
            .lines()
            .map(|line| {
                let (stack, value) = line.rsplit_once(' ').unwrap();
                (stack.to_owned(), value.parse().unwrap())
            })
            .collect();
        assert!(said.trim_end().ends_with(&format!(" stacks, {} bytes", text.len())), "{said} {text}");
        lines
    };
    let sum = |lines: &[(String, i64)], path: &str| {
        let with = lines.iter().filter(|(stack, _)| stack.contains(path));
        with.map(|(_, value)| value).sum::<i64>()
    };
    // 300 x 20,000 and 50 x 700,000 bytes, each size rounded up by the runtime: 41.4 million, sampled with a standard error of 0.2.
    let kept = sum(&folded(&["heap"]), "runtime.main;main.main;main.fill;main.keep;main.fresh");
    assert!((40_000_000..43_000_000).contains(&kept), "{kept}");
    let goroutines = folded(&["goroutines"]);
    assert_eq!(sum(&goroutines, "main.receive;runtime.chanrecv1;runtime.chanrecv;runtime.gopark"), 3, "{goroutines:?}");
    // Five times three milliseconds at least, in nanoseconds.
    let waited = sum(&folded(&["contention"]), "main.contend;main.await;runtime.chanrecv1");
    let held = sum(&folded(&["contention", "--mutex"]), "main.contend;main.release;sync.(*Mutex).Unlock");
    assert!(waited > 0 && held >= 10_000_000, "{waited} {held}");
}

/// Has the program collect its garbage, by which the runtime comes to know what is in use, and since when goroutines wait.
fn collect(program: &Path, running: &mut Running) {
    let folder = program.with_extension(format!("{}.collected", running.pid()));
    std::fs::create_dir_all(&folder).unwrap();
    running.ask(&format!("write {}", folder.display()), "written");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that what keeps a file from being the whole truth is said on standard error, which a pipe does not get: what is left out, and why there is nothing.
#[test]
fn what_a_file_lacks_is_said_beside_it() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let (running, off) = (Running::start(&program, &[]), Running::start(&program, &["off"]));
    let file = program.with_extension(format!("{}.lacks.folded", running.pid()));
    let (pid, bare) = (running.pid().to_string(), off.pid().to_string());
    for (arguments, remark) in [
        (&["heap", &pid, "--max-buckets", "2"][..], " stacks left out, as there are more than asked for\n"),
        (
            &["goroutines", &pid, "--max-goroutines", "2"],
            " goroutines left out, as there are more than asked for, or than a capture may look at\n",
        ),
        (&["contention", &pid, "--max-buckets", "1"], " stacks left out, as there are more than asked for\n"),
    ] {
        let output = sidecar(&[arguments, &["-o", file.to_str().unwrap()]].concat());
        let (said, remarks) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains(" bytes") && !said.contains(remark), "{arguments:?}: {said}");
        assert!(remarks.contains(remark), "{arguments:?}: {remarks}");
    }
    let whole = sidecar(&["goroutines", &pid, "-o", file.to_str().unwrap()]);
    let remarks = String::from_utf8_lossy(&whole.stderr);
    assert!(whole.status.success() && !remarks.contains("left out") && !remarks.contains(" is off"), "{remarks}");
    std::fs::remove_file(&file).unwrap();
    // In which nothing can be is not written.
    let unlinked = Running::start(&programs::build("bare", "go1.24.13", &["-ldflags=-s -w"], "amd64"), &[]);
    for (arguments, why) in [
        (&["contention", &bare][..], "block profiling is off: "),
        (&["contention", &bare, "--mutex"], "mutex profiling is off: "),
        (&["heap", &unlinked.pid().to_string()], "heap profiling is not in the program: "),
    ] {
        let output = sidecar(&[arguments, &["-o", file.to_str().unwrap()]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && output.stdout.is_empty() && said.contains(why),
            "{arguments:?}: {said}"
        );
        assert!(said.trim_end().ends_with("; no file was written") && !file.exists(), "{arguments:?}: {said}");
    }
}

/// Check that a leak of goroutines is shown by its stack and who started it, and that those that merely stand are not.
#[test]
fn what_grows_is_shown_and_nothing_else() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &[], "amd64");
    let mut running = Running::start(&program, &[]);
    let pid = running.pid().to_string();
    let calm = shown(&["goroutines", &pid, "--growth", "10ms"]);
    assert!(calm.contains("no stack has more goroutines than before"), "{calm}");
    running.ask("leak", "leaks");
    let grown = shown(&["goroutines", &pid, "--growth", "3s"]);
    assert!(grown.contains("\nmain.leaked\n") && grown.contains("created by main.main.func1\n"), "{grown}");
    assert!(!grown.contains("main.receive") && !grown.contains("no stack has more"), "{grown}");
}

/// Check that where standard output takes nothing each command fails and says so, whether it writes all at once or piece by piece; and that a reader who goes is no failure.
#[test]
fn an_output_that_takes_nothing_is_a_failure() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[]);
    let pid = running.pid().to_string();
    for arguments in
        [&["heap"][..], &["goroutines"], &["goroutines", "--each"], &["contention"], &["contention", "--mutex"]]
    {
        let to = |out: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_profiler-sidecar"));
            command.args(arguments).arg(&pid).stdout(out).stderr(Stdio::piped()).spawn().unwrap()
        };
        let full = to(File::options().write(true).open("/dev/full").unwrap().into()).wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&full.stderr);
        assert!(
            full.status.code() == Some(1) && told.contains("standard output: No space left"),
            "{arguments:?}: {told}"
        );
        let mut gone = to(Stdio::piped());
        drop(gone.stdout.take());
        let gone = gone.wait_with_output().unwrap();
        assert!(
            gone.status.success() && gone.stderr.is_empty(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&gone.stderr)
        );
    }
}

/// Check that a capture is drawn as a flame graph.
#[test]
fn a_capture_is_drawn() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let running = Running::start(&program, &[]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.svg", running.pid()));
    let pid = running.pid().to_string();
    for (arguments, function) in [
        (&["heap", &pid][..], "main.fresh"),
        (&["goroutines", &pid], "main.receive"),
        (&["contention", &pid], "main.await"),
        (&["contention", "--mutex", &pid], "main.release"),
    ] {
        shown(&[arguments, &["-o", file.to_str().unwrap()]].concat());
        let drawn = std::fs::read_to_string(&file).unwrap();
        assert!(drawn.contains(&format!("<title>{function} (")), "{arguments:?}");
    }
    std::fs::remove_file(&file).unwrap();
}

/// Check that each command needs `CAP_SYS_PTRACE` alone, of a process that is another user's, and says so where it lacks.
#[test]
fn one_capability_is_enough() {
    if !is_root() {
        return;
    }
    let program = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    // Where others can run it.
    let place = std::env::temp_dir().join(format!("profiler-parked-{}", std::process::id()));
    std::fs::copy(&program, &place).unwrap();
    let other = ["--reuid=65534", "--regid=65534", "--clear-groups", place.to_str().unwrap()];
    let running = Running::start(Path::new("setpriv"), &other);
    let pid = running.pid().to_string();
    let with = |capabilities: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([capabilities, "--inh-caps=-all", "--no-new-privs", env!("CARGO_BIN_EXE_profiler-sidecar")]);
        command.args(arguments).output().unwrap()
    };
    for (arguments, expected) in [
        (&["heap", &pid][..], " main.fresh\n"),
        (&["goroutines", &pid], "\n3 [chan receive]:\n"),
        (&["goroutines", "--each", &pid], "created by main.park"),
        (&["contention", &pid], "sync.(*Mutex).Lock"),
        (&["contention", "--mutex", &pid], "main.release"),
    ] {
        let done = with("--bounding-set=-all,+sys_ptrace", arguments);
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && told.contains(expected), "{arguments:?}: {told} {done:?}");
        let refused = with("--bounding-set=-all", arguments);
        let why = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{arguments:?}: {why}");
        assert!(why.contains("CAP_SYS_PTRACE"), "{arguments:?}: {why}");
    }
    std::fs::remove_file(&place).unwrap();
}

/// Check that a program of C that pretends to be one of Go, with the tables and build information of a real one, is refused by name.
#[test]
fn who_pretends_to_be_go_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let go = programs::build("parked", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pretends-{}", std::process::id()));
    let pretends = pretender::make(&go, &folder);
    let mut sleeping = Command::new(&pretends).arg("600").spawn().unwrap();
    let pid = sleeping.id().to_string();
    let told = [&["heap", &pid][..], &["goroutines", &pid], &["contention", &pid]].map(sidecar);
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    for output in told {
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        assert!(why.lines().count() == 1 && why.contains(&format!("process {pid}")), "{why}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that what cannot be is said, with what to do.
#[test]
fn what_is_no_go_program_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let us = std::process::id().to_string();
    for (arguments, told) in
        [(["heap", &us], "not built by Go"), (["goroutines", "4194304"], "there is no process 4194304")]
    {
        let output = sidecar(&arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    }
}
