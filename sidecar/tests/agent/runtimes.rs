//! What the agent captures of a Go program's runtime by itself, as its page has it and a collector gets it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::{Profile, ProfileSet};

use crate::http::get;
use crate::process::{self, Running, agent, go_example, go_program, go_program_with};
use crate::pulls::one_served;
use crate::{DEADLINE, decode, folder, is_root};

/// `tests/go/parked` keeps more than this, and so many goroutines wait in it.
const KEPT: i64 = 30_000_000;
const PARKED: i64 = 18;

/// Bytes in use and goroutines of the program, as one set or more tell them: the most that was said.
#[derive(Debug, Default)]
struct Told {
    in_use: i64,
    goroutines: i64,
}

impl Told {
    fn add(&mut self, set: &ProfileSet) {
        for profile in &set.profiles {
            let sum = profile.samples.iter().map(|sample| sample.value).sum::<i64>();
            match set.dictionary.strings.text(profile.kind.sample_type.kind) {
                "inuse_space" => self.in_use = self.in_use.max(sum),
                "goroutine" => self.goroutines = self.goroutines.max(sum),
                _ => {}
            }
        }
    }

    fn of_files(folder: &Path) -> Self {
        let mut told = Self::default();
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        // Files are written under another name and renamed, and the oldest are removed.
        let written = paths.filter(|path| path.extension().is_some_and(|extension| extension == "gz"));
        written.filter_map(|path| std::fs::read(path).ok()).for_each(|bytes| told.add(&decode(&bytes)));
        told
    }

    fn is_whole(&self) -> bool {
        self.in_use > KEPT && self.goroutines >= PARKED
    }
}

/// Asks until `told` is whole.
fn wait(run: &Running, mut told: impl FnMut() -> Told) {
    let until = Instant::now() + DEADLINE;
    loop {
        let told = told();
        if told.is_whole() {
            return;
        }
        assert!(Instant::now() < until, "{told:?} {}", run.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The program, with its garbage collected, by which the runtime comes to know what is in use.
fn parked() -> Running {
    let mut program = go_program("parked");
    let folder = folder(&format!("parked-{}", program.pid()));
    program.ask(&format!("write {}", folder.display()), "written");
    std::fs::remove_dir_all(folder).unwrap();
    program
}

/// Read now, because it is asked for.
fn pulled(page: &str, pid: u32) -> Told {
    asked(page, ["heap", "goroutine"].map(|of| format!("/debug/pprof/{of}?pid={pid}")))
}

/// Kept from what was captured before.
fn stored(page: &str, pid: u32) -> Told {
    asked(page, ["inuse_space", "goroutine"].map(|of| format!("/api/profile?type={of}&pid={pid}&format=pprof")))
}

fn asked(page: &str, paths: [String; 2]) -> Told {
    let mut told = Told::default();
    for path in paths {
        let answer = get(page, &path);
        // The process may not have been seen yet.
        if answer.status == 200 {
            told.add(&decode(&answer.body));
        }
    }
    told
}

fn captured(page: &str) -> serde_json::Value {
    let stats: serde_json::Value = serde_json::from_slice(&get(page, "/stats").body).unwrap();
    stats["captures"].clone()
}

/// Starts the agent, as `command` has it, for one process with a collector; what the collector gets, the page must have.
fn arrives(name: &str, command: &mut Command, pid: u32) -> Running {
    let files = folder(name);
    let collector = Running::agent(
        agent(&["run", "--pid", "1", "--runtime-interval", "off", "--receive", "127.0.0.1:0"])
            .env("PROFILER_FILES_DIR", &files),
    );
    let endpoint = format!("http://{}", collector.address_after("OTLP profiles are taken at "));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let run = Running::agent(command.args(["run", "--runtime-interval", "1s", "--pid", &pid.to_string()]));
    let page = run.address_after("http://");
    wait(&run, || pulled(&page, pid));
    wait(&run, || stored(&page, pid));
    wait(&run, || Told::of_files(&files));
    let figures = captured(&page);
    assert!(figures["sets"].as_u64().unwrap() > 0, "{figures}");
    assert_eq!(collector.end(), Some(0));
    std::fs::remove_dir_all(files).unwrap();
    run
}

/// Check that heap and goroutines of a Go program are pulled, and captured without being asked for; and that the agent ends by SIGTERM.
#[test]
fn runtimes_are_captured_each_interval() {
    if !is_root() {
        return;
    }
    let program = parked();
    let run = arrives("runtimes", &mut agent(&[]), program.pid());
    // As Go's own file it shows what was allocated, where that is asked for.
    let page = run.address_after("http://");
    for (of, first) in [("heap", None), ("allocs", Some("alloc_space"))] {
        let answer = get(&page, &format!("/debug/pprof/{of}?pid={}", program.pid()));
        let set = decode(&answer.body);
        let shown = set.dictionary.value_of(set.profiles[0].attributes, "profiler.pprof.default_sample_type");
        assert_eq!(shown.map(ToString::to_string).as_deref(), first, "{of}");
    }
    assert_eq!(run.end(), Some(0));
}

/// Check that what is left out of captures, as there is more than is asked for, is counted and said of each kind.
#[test]
fn what_is_left_out_of_captures_is_said() {
    if !is_root() {
        return;
    }
    let program = parked();
    let bounds = ["--runtime-interval", "1s", "--max-goroutines", "8", "--max-buckets", "1"];
    let run = Running::agent(agent(&["run", "--pid", &program.pid().to_string()]).args(bounds));
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    let is_said = |of: &str| run.log().contains(&format!("{of} is captured in part: "));
    while !(is_said("heap")
        && is_said("goroutine")
        && is_said("block")
        && captured(&page)["partial"].as_u64() > Some(2))
    {
        assert!(Instant::now() < until, "{} {}", captured(&page), run.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(run.log().contains(" left out, as there are more than asked for"), "{}", run.log());
    assert_eq!(run.log().matches("heap is captured in part").count(), 1, "{}", run.log());
    assert_eq!(run.end(), Some(0));
}

/// Check that this needs no eBPF.
#[test]
fn runtimes_are_captured_without_ebpf() {
    if !is_root() {
        return;
    }
    let program = parked();
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set=-all,+sys_ptrace", "--inh-caps=-all", "--no-new-privs"]);
    process::quiet(bare.arg(env!("CARGO_BIN_EXE_profiler-sidecar")));
    let run = arrives("runtimes-bare", &mut bare, program.pid());
    let page = run.address_after("http://");
    let stats: serde_json::Value = serde_json::from_slice(&get(&page, "/stats").body).unwrap();
    assert_eq!(stats["self"]["privilege"], "no eBPF", "{stats}");
    let figures = &stats[format!("go_{}", program.pid())];
    let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {stats}"));
    assert!(number("go.goroutine.count") >= PARKED as f64 && number("process.thread.count") > 0.0, "{figures}");
    assert!(number("go.memory.gc.live") > KEPT as f64 && number("go.memory.used") > KEPT as f64, "{figures}");
    assert!(number("go.memory.gc.cycles") >= 2.0 && number("go.memory.gc.pause.total") > 0.0, "{figures}");
    assert_eq!((figures["service.name"].as_str(), number("process.pid")), (Some("parked"), f64::from(program.pid())));
    assert_eq!(run.end(), Some(0));
}

/// Check that why a profile is empty is shown and logged: heap profiles that the linker left out, block and mutex profiles that are off.
#[test]
fn what_is_off_is_said_by_the_agent() {
    if !is_root() {
        return;
    }
    let program = go_program("bare");
    let run = Running::agent(&mut agent(&["run", "--runtime-interval", "1s", "--pid", &program.pid().to_string()]));
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    for (of, why) in
        [("heap", "net/http/pprof"), ("block", "SetBlockProfileRate"), ("mutex", "SetMutexProfileFraction")]
    {
        let is_said = || {
            let stats: serde_json::Value = serde_json::from_slice(&get(&page, "/stats").body).unwrap();
            let said = stats[format!("go_{}", program.pid())][of].as_str().unwrap_or_default().to_owned();
            said.contains(why) && run.log().contains(&format!("{of}: {said}"))
        };
        while !is_said() {
            assert!(Instant::now() < until, "{of}: {}", run.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        // Nor is there an empty profile for who asks.
        let reply = get(&page, &format!("/debug/pprof/{of}?pid={}", program.pid()));
        let told = String::from_utf8_lossy(&reply.body);
        assert!(reply.status == 404 && told.contains("/stats says at go_PID why"), "{of}: {} {told}", reply.status);
    }
    assert_eq!(run.end(), Some(0));
}

/// Check that what is asked for at the page keeps to the bounds of the settings: of heap and contention a sample of the only stack that may be read, of goroutines
/// some of eight, for the runtime's own are of them and not told; and that it is said that there are more.
#[test]
fn what_is_asked_for_keeps_to_the_bounds() {
    if !is_root() {
        return;
    }
    let program = parked();
    let pid = program.pid();
    let bounds = ["--runtime-interval", "off", "--max-goroutines", "8", "--max-buckets", "1"];
    let run = Running::agent(agent(&["run", "--pid", &pid.to_string()]).args(bounds));
    let page = run.address_after("http://");
    for (of, kind) in
        [("goroutine", "goroutine"), ("heap", "alloc_space"), ("block", "contentions"), ("mutex", "contentions")]
    {
        let set = within_bounds(&run, &page, of, pid);
        let has_kind = |profile: &&Profile| set.dictionary.strings.text(profile.kind.sample_type.kind) == kind;
        let profile = set.profiles.iter().find(has_kind).unwrap_or_else(|| panic!("{of}: no {kind}"));
        let sum = profile.samples.iter().map(|sample| sample.value).sum::<i64>();
        // The one bucket of the heap may have nothing as of the last collection.
        let is_told = if of == "goroutine" { (1..=8).contains(&sum) } else { of == "heap" || sum > 0 };
        assert!(is_told, "{of}: {sum}");
        assert!(of == "goroutine" || profile.samples.len() <= 1, "{of}: {:?}", profile.samples);
        let comments = set.dictionary.value_of(profile.attributes, "pprof.profile.comment");
        let is_said = comments.is_some_and(|texts| texts.to_string().contains("profiler.capture.beyond="));
        // There may be one place only at which the program let others wait.
        assert!(is_said || of == "mutex", "{of}: {comments:?}");
    }
    assert_eq!(run.end(), Some(0));
}

/// Check that nothing is read of processes that are left out, by pattern or because others were named: not when they are asked for by number, and not among
/// all, though the same is there of the one beside them.
#[test]
fn what_is_left_out_is_not_read_when_it_is_asked_for() {
    if !is_root() {
        return;
    }
    let _one = one_served();
    let (wanted, other) = (parked(), go_program_with("served", &[]));
    let [number, beside] = [wanted.pid(), other.pid()].map(|pid| pid.to_string());
    for filter in [&["--exclude", "*/served"][..], &["--include", "*/parked"], &["--pid", &number]] {
        // Of other programs on the machine nobody knows what they are doing.
        let mut run = agent(&["run", "--runtime-interval", "off"]);
        let run = Running::agent(run.args(filter));
        let page = run.address_after("http://");
        within_bounds(&run, &page, "goroutine", wanted.pid());
        for of in ["goroutine", "heap", "block", "mutex"] {
            let refused = get(&page, &format!("/debug/pprof/{of}?pid={beside}"));
            let told = String::from_utf8_lossy(&refused.body).into_owned();
            assert_eq!(refused.status, 404, "{filter:?} {of}: {told}");
            assert!(told.contains("no process of this name or pid is profiled"), "{filter:?} {of}: {told}");
            let all = get(&page, &format!("/debug/pprof/{of}"));
            assert_eq!(all.status, 200, "{filter:?} {of}");
            let set = decode(&all.body);
            let files = set.dictionary.functions.iter().map(|function| set.dictionary.strings.text(function.filename));
            let files: Vec<&str> = files.collect();
            let is_of = |program: &str| files.iter().any(|file| file.ends_with(&format!("/go/{program}/main.go")));
            assert!(is_of("parked") && !is_of("served"), "{filter:?} {of}");
        }
        assert_eq!(run.end(), Some(0));
    }
}

/// What is asked for, as soon as the process was seen.
fn within_bounds(run: &Running, page: &str, of: &str, pid: u32) -> ProfileSet {
    let until = Instant::now() + DEADLINE;
    loop {
        let answer = get(page, &format!("/debug/pprof/{of}?pid={pid}"));
        if answer.status == 200 {
            return decode(&answer.body);
        }
        assert!(Instant::now() < until, "{of}: {} {}", answer.status, run.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Check that each of the four bugs of `examples/go/troubles` is what stands out where its type is chosen on the page, and its growth where it has one: in
/// two clicks.
#[test]
fn each_bug_stands_out_where_its_type_is_chosen() {
    if !is_root() {
        return;
    }
    let program = go_example("troubles", &["-until-eof"]);
    let run = Running::agent(&mut agent(&["run", "--runtime-interval", "1s", "--pid", &program.pid().to_string()]));
    let page = run.address_after("http://");
    let bugs = [
        ("inuse_space&growth=1", "main.newSession"),
        ("goroutine&growth=1", "main.send"),
        ("mutex_delay", "main.(*counters).count"),
        ("block_delay", "main.(*queue).enqueue"),
    ];
    let until = Instant::now() + DEADLINE;
    for (of, bug) in bugs {
        loop {
            let answer = get(&page, &format!("/api/profile?type={of}&format=folded&pid={}", program.pid()));
            let stacks = String::from_utf8(answer.body).unwrap();
            // How long the queue is waited for beside the lock is a matter of parts of a millisecond.
            let most = if of == "block_delay" { 2 } else { 1 };
            if answer.status == 200 && largest(&stacks).into_iter().take(most).any(|function| function == bug) {
                break;
            }
            assert!(Instant::now() < until, "{of}: {stacks} {}", run.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    assert_eq!(run.end(), Some(0));
}

/// The functions of the program, those first that have most of their own, the library's and the runtime's that they call included.
fn largest(stacks: &str) -> Vec<&str> {
    let mut functions = BTreeMap::<&str, i64>::new();
    for (stack, value) in stacks.lines().filter_map(|line| line.rsplit_once(' ')) {
        if let Some(function) = stack.rsplit(';').find(|frame| frame.starts_with("main.")) {
            *functions.entry(function).or_default() += value.parse::<i64>().unwrap();
        }
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(_, value)| Reverse(*value));
    functions.into_iter().map(|(function, _)| function).collect()
}
