//! The agent from end to end, on the kernel that runs here, with a real Go program: `run`, with another `run --receive` as its collector, and
//! `record`. Needs root; as another user it says what was not run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking; what was not run is said"
)]

mod beside;
mod budget;
mod degraded;
mod early;
#[path = "../fuse/mod.rs"]
mod fuse;
mod hostile;
mod http;
mod manifests;
#[path = "../map_count/mod.rs"]
mod map_count;
mod matrix;
mod metrics;
mod others;
mod pod;
#[path = "../pretender/mod.rs"]
mod pretender;
mod process;
mod pulls;
mod received;
mod runtimes;
mod sdk;
mod shares;
mod shop;
mod signals;
mod spooled;
mod steal;
mod succession;
mod switches;
mod top;
#[path = "../undivided/mod.rs"]
mod undivided;
mod untouched;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use http::get;
use process::{Running, agent, go_program};
use profiler_proto::model::Value;
use profiler_proto::{Limits, ProfileSet, pprof};
use shares::Shares;

/// Generous: the machine may be busy with other tests.
const DEADLINE: Duration = Duration::from_secs(120);
/// So few samples make a share of 0.75 uncertain by 0.043 in each direction, at four standard errors by 0.13.
const ENOUGH: i64 = 400;

fn is_root() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        println!("NOT RUN: sampling needs root");
    }
    is_root
}

fn decode(bytes: &[u8]) -> ProfileSet {
    pprof::decode(bytes, &Limits::default()).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agent").join(format!("{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Check names, inlined calls, labels and shares as `/debug/pprof/profile` gives them, and the same as a collector gets them over gRPC; that
/// the account is exact; and that SIGTERM ends both agents with success.
#[test]
fn a_go_program_is_profiled_and_its_profiles_arrive() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let pid = program.pid();
    let files = folder("received");
    let collector =
        Running::agent(agent(&["run", "--pid", "1", "--receive", "127.0.0.1:0"]).env("PROFILER_FILES_DIR", &files));
    let endpoint = format!("http://{}", collector.address_after("OTLP profiles are taken at "));
    let mut run = agent(&["run", "--pid", &pid.to_string(), "--rate-hz", "499", "--interval", "1s"]);
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let run = Running::agent(&mut run);
    let page = run.address_after("http://");

    let until = Instant::now() + DEADLINE;
    let (mut early, mut pulled) = (Shares::default(), Shares::default());
    while pulled.samples < ENOUGH {
        assert!(Instant::now() < until, "{pulled:?} {}", run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=2&pid={pid}"));
        // The process may not have been seen yet.
        if answer.status == 200 {
            // In the first with samples some may have been taken before the kernel side was told where labels are.
            let into = if early.samples == 0 { &mut early } else { &mut pulled };
            into.add(&decode(&answer.body));
        }
    }
    pulled.assert_as_built(0.99);

    assert_balanced(&stats_with_exports(&page, &run));
    assert_nearly_all_whole(&page, pid, pulled.samples);
    assert_eq!(run.end(), Some(0));
    assert_eq!(collector.end(), Some(0));
    let received = Shares::of_files(&files);
    assert!(received.samples >= pulled.samples / 2, "{received:?} of {pulled:?}");
    received.assert_as_built(0.99);
    assert_eq!(received.services, ["shares"]);
    std::fs::remove_dir_all(files).unwrap();
}

fn stats(page: &str) -> serde_json::Value {
    serde_json::from_slice(&get(page, "/stats").body).unwrap()
}

/// What `/stats` says once a profile has arrived.
fn stats_with_exports(page: &str, run: &Running) -> serde_json::Value {
    let until = Instant::now() + DEADLINE;
    loop {
        let stats = stats(page);
        if stats["exported"].as_u64().is_some_and(|exported| exported > 0) {
            return stats;
        }
        assert!(Instant::now() < until, "nothing was exported: {stats} {}", run.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Check what `/stats` says of the stacks of one process, once it is of so many: nearly all of them are whole.
fn assert_nearly_all_whole(page: &str, pid: u32, samples: i64) {
    let until = Instant::now() + DEADLINE;
    // Figures are published each second.
    let section = loop {
        let section = stats(page)[format!("stacks_{pid}")].clone();
        if section["stacks"].as_i64().is_some_and(|stacks| stacks >= samples) {
            break section;
        }
        assert!(Instant::now() < until, "{samples} {section}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let [stacks, whole, share] = ["stacks", "whole", "whole_share"].map(|figure| section[figure].as_f64().unwrap());
    assert_eq!((section["service.name"].as_str(), section["process.pid"].as_u64()), (Some("shares"), Some(pid.into())));
    // What JSON is read as may differ from what was written by the last bit.
    assert!((share - whole / stacks).abs() < 1e-12 && (0.95..=1.0).contains(&share), "{section}");
}

fn assert_balanced(stats: &serde_json::Value) {
    let number = |path: &str| {
        stats.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{path}: {stats}"))
    };
    let lost: u64 = stats["lost"].as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(number("/taken"), number("/exported") + number("/pending") + lost, "{stats}");
}

/// Check that a process is recorded as it is built, into a file and a table.
#[test]
fn a_process_is_recorded() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let output = folder("record").join("out.pb.gz");
    let mut shares = Shares::default();
    let until = Instant::now() + DEADLINE;
    while shares.samples < ENOUGH {
        assert!(Instant::now() < until, "{shares:?}");
        let mut record = agent(&["record", "--rate-hz", "499", "-d", "2s", "-p", &program.pid().to_string(), "-o"]);
        let ran = record.arg(&output).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains("main.mix"), "{said}");
        shares.add(&decode(&std::fs::read(&output).unwrap()));
    }
    shares.assert_as_built(0.95);
}

/// Checks that Go's own pprof shows the processor as a label: of the first one, which is 0, too.
fn shows_processors(file: &Path, last: &str) {
    let shown = || {
        let mut pprof = Command::new("go");
        let ran = pprof.args(["tool", "pprof", "-tags"]).arg(file).output().expect("go: run `make setup`");
        String::from_utf8(ran.stdout).unwrap()
    };
    let is_shown =
        |text: &str, number: &str| text.lines().any(|line| line.trim_end().ends_with(&format!("%): {number}")));
    assert!(is_shown(&shown(), last), "{last}: {}", shown());
    let mut set = decode(&std::fs::read(file).unwrap());
    let zero = set.dictionary.attribute("cpu.logical_number", 0);
    let zero = set.dictionary.attribute_set([zero]);
    set.profiles[0].samples.iter_mut().for_each(|sample| sample.attributes = zero);
    std::fs::write(file, pprof::encode(&set)).unwrap();
    assert!(is_shown(&shown(), "0"), "{}", shown());
}

/// Check that a recording says, if asked, which processor each sample was taken on, and else does not.
#[test]
fn a_recording_tells_processors_if_asked() {
    if !is_root() {
        return;
    }
    let output = folder("processors").join("out.pb.gz");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let last = allowed.rsplit([',', '-']).next().unwrap();
    let processors = |more: &[&str]| {
        let count = "i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done";
        let mut record = agent(&["record", "--rate-hz", "499"]);
        record.args(more).arg("-o").arg(&output).args(["-c", "taskset", "-c", last, "sh", "-c", count]);
        let ran = record.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let (set, mut seen) = (decode(&std::fs::read(&output).unwrap()), BTreeMap::new());
        for sample in set.profiles.iter().flat_map(|profile| &profile.samples) {
            let number = set.dictionary.value_of(sample.attributes, "cpu.logical_number");
            *seen.entry(number.and_then(Value::as_int)).or_insert(0) += sample.value;
        }
        seen
    };
    let told = processors(&["--processors"]);
    shows_processors(&output, last);
    let (all, there) = (told.values().sum::<i64>(), told.get(&last.parse().ok()).copied().unwrap_or(0));
    // What comes before it is bound runs anywhere.
    assert!(all > 20 && there * 10 > all * 8 && !told.contains_key(&None), "{last}: {told:?}");
    assert_eq!(processors(&[]).into_keys().collect::<Vec<_>>(), [None]);
}

/// Check that a command is recorded with what it starts, from its beginning to its end, and that one that cannot be started is named.
#[test]
fn a_command_is_recorded_with_what_it_starts() {
    if !is_root() {
        return;
    }
    let output = folder("command").join("out.folded");
    // Long enough to be at work still when sampling begins on a busy machine.
    let count = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
    let script = &format!("{count}; ({count}); exit 0");
    let ran =
        agent(&["record", "--rate-hz", "499", "-o"]).arg(&output).args(["-c", "sh", "-c", script]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("of 2 processes"), "{said}");
    // From its first sample on: what is counted is in the file.
    let counted = said.lines().find_map(|line| line.split_once(" samples of ")).unwrap().0;
    let folded = std::fs::read_to_string(&output).unwrap();
    let written: u64 = folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert!(written > 0 && written.to_string() == counted, "{written} are written: {said}");
    let ran = agent(&["record", "-o"]).arg(&output).args(["-c", "sh", "-c", "exit 7"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("the command failed: exit status: 7"), "{said}");
    let ran = agent(&["record", "-o"]).arg(&output).args(["-c", "/no/such/program"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("/no/such/program").count(), 1, "{said}");
}

/// Check that a recorded command has the recorder's standard input, and that nobody but the recorder lets it begin.
#[test]
fn a_command_begins_when_its_recorder_says_so() {
    if !is_root() {
        return;
    }
    let folder = folder("threshold");
    let mut record = agent(&["record", "-o"]);
    record.arg(folder.join("out.folded")).args(["-c", "sh", "-c", "cat > \"$0\""]).arg(folder.join("read"));
    let mut child = record.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    let name = SocketAddr::from_abstract_name(format!("profiler-sidecar-{}", child.id())).unwrap();
    let mut strangers = Vec::new();
    let status = loop {
        strangers.extend(UnixStream::connect_addr(&name));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success() && strangers.is_empty(), "{status} {strangers:?}");
    assert_eq!(std::fs::read_to_string(folder.join("read")).unwrap(), "a line\n");
    let alone = agent(&["hold-and-exec", "true"]).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&alone.stderr);
    assert!(alone.status.code() == Some(1) && told.contains("for `record -c` alone"), "{told}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A recording under way of a process, at a point from which on a signal ends it early.
fn recording(pid: u32, output: &Path) -> Running {
    let record = Running::agent(agent(&["record", "-d", "10m", "-p", &pid.to_string(), "-o"]).arg(output));
    let until = Instant::now() + DEADLINE;
    let catches_hangup = |status: &str| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 != 0
    };
    while !catches_hangup(&std::fs::read_to_string(format!("/proc/{}/status", record.pid())).unwrap()) {
        assert!(Instant::now() < until, "{}", record.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    record
}

/// Check that a terminal that goes away ends a recording, which is kept.
#[test]
fn a_recording_outlives_its_terminal() {
    if !is_root() {
        return;
    }
    let (program, folder) = (go_program("parked"), folder("hangup"));
    let record = recording(program.pid(), &folder.join("out.pb"));
    // The second one finds it ended, or is no reason to hurry.
    record.signal("-HUP");
    record.signal("-TERM");
    assert_eq!(record.ended(), Some(0));
    assert_eq!(decode(&std::fs::read(folder.join("out.pb")).unwrap()).profiles.len(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that the recording of a process is over when it has ended, though nobody has asked how, and that without a sample the file can be read.
#[test]
fn a_recording_ends_with_its_process() {
    if !is_root() {
        return;
    }
    let (sleeper, folder) = (Running::program(Command::new("sleep").arg("600")), folder("ended"));
    let record = recording(sleeper.pid(), &folder.join("out.pb.gz"));
    sleeper.signal("-KILL");
    assert_eq!(record.ended(), Some(0));
    assert_eq!(decode(&std::fs::read(folder.join("out.pb.gz")).unwrap()).profiles.len(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Check that without privilege the agent runs, says what is missing, and receives.
#[test]
fn without_privilege_it_says_what_is_missing_and_goes_on() {
    if !is_root() {
        return;
    }
    let binary = env!("CARGO_BIN_EXE_profiler-sidecar");
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", binary, "run", "--receive", "127.0.0.1:0"]);
    process::quiet(&mut bare);
    let run = Running::agent(&mut bare);
    let page = run.address_after("http://");
    let stats = stats(&page);
    assert_eq!(stats["self"]["privilege"], "none", "{stats}");
    for name in ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_SYSLOG"] {
        assert!(run.log().contains(&format!("{name} is missing")), "{}", run.log());
    }
    assert_eq!(run.end(), Some(0));
}

/// Check that the capabilities that the manifests grant are enough, under `no_new_privs`, and that once it runs nothing is in effect but
/// `CAP_SYS_PTRACE`, and nothing else permitted but, to the thread that samples, `CAP_PERFMON`.
#[test]
fn with_the_capabilities_of_the_manifests_it_samples_and_drops_them() {
    if !is_root() {
        return;
    }
    let program = go_program("shares");
    let binary = env!("CARGO_BIN_EXE_profiler-sidecar");
    let mut bare = Command::new("setpriv");
    bare.args(["--bounding-set=-all,+bpf,+perfmon,+sys_ptrace,+syslog", "--inh-caps=-all", "--no-new-privs", binary]);
    bare.args(["run", "--pid", &program.pid().to_string()]);
    process::quiet(&mut bare);
    let run = Running::agent(&mut bare);
    let page = run.address_after("http://");
    let pull = format!("/debug/pprof/profile?seconds=1&pid={}", program.pid());
    let until = Instant::now() + DEADLINE;
    let mut shares = Shares::default();
    while shares.samples == 0 {
        assert!(Instant::now() < until, "{}", run.log());
        let answer = get(&page, &pull);
        if answer.status == 200 {
            shares.add(&decode(&answer.body));
        }
    }
    // A thread that was just made has its maker's name and capabilities until it runs.
    while let Err(status) = capabilities_are_dropped(run.pid()) {
        assert!(Instant::now() < until, "{status}");
    }
    assert_eq!(run.end(), Some(0));
}

/// Whether one thread is called as the one that samples, and all others have no capability but `CAP_SYS_PTRACE`.
fn capabilities_are_dropped(pid: u32) -> Result<(), String> {
    const PTRACE: u64 = 1 << 19;
    const PERFMON: u64 = 1 << 38;
    let mut samplers = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // Threads come and go.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let set = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let samples = status.starts_with("Name:\tsampling\n");
        samplers += u32::from(samples);
        let clock = if samples { PERFMON } else { 0 };
        if (set("CapEff:"), set("CapPrm:")) != (PTRACE, PTRACE | clock) {
            return Err(status);
        }
    }
    if samplers == 1 { Ok(()) } else { Err(format!("{samplers} threads that sample")) }
}
