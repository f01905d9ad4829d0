//! The agent beside a Rust program with our SDK (`tests/src/bin/scenario`, `tasks`): it leaves CPU samples to it, and, asked for them all the same, gives them
//! the tags, the span and the service that the program publishes.
//!
//! The program works on many numbers, one after the other on each thread. While it works on one it has the number as its tag and in the ids of its span, but for
//! every fourth, which has no span: each sample of the work says by one what must stand in the other. It is built like any debug build, without frame pointers, so
//! what is known of its stacks is where they end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_proto::ProfileSet;
use profiler_proto::model::{Sample, Value};

use crate::http::get;
use crate::process::{Running, agent, quiet};
use crate::shares::service;
use crate::{DEADLINE, assert_balanced, decode, is_root, stats};

/// Samples that are enough.
const SAMPLES: i64 = 500;

/// Builds the program, as cargo builds it in these tests.
fn program() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // All packages, and an example (`tests/as_tests.rs`): so it stands on what the tests of the workspace stand on, which is there.
    build.args(["build", "--locked", "--workspace", "--bin=scenario", "--example=as_tests"]);
    build.arg("--message-format=json");
    // What cargo tells a test of its own package: build scripts that look at it would run again.
    let of_package = |name: &str| ["CARGO_MANIFEST_", "CARGO_PKG_", "OUT_DIR"].iter().any(|own| name.starts_with(own));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        build.env_remove(name);
    }
    let built = build.current_dir(workspace).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).unwrap();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let made = |message: serde_json::Value| Some(PathBuf::from(message["executable"].as_str()?));
    messages.filter_map(made).find(|path| path.ends_with("scenario")).unwrap()
}

/// The program at work, for longer than any test here takes.
fn at_work() -> Running {
    let mut command = Command::new(program());
    quiet(command.args(["tasks", "runtime=threads", "tasks=1000", "steps=8000"]));
    let running = Running::program(command.env_remove("PROFILER_SERVE"));
    let until = Instant::now() + DEADLINE;
    let maps = format!("/proc/{}/maps", running.pid());
    // It publishes itself once its profiler runs.
    while !std::fs::read_to_string(&maps).unwrap().contains("OTEL_CTX") {
        assert!(Instant::now() < until, "{}", running.log());
    }
    running
}

/// What samples of the work say.
#[derive(Debug, Default)]
struct Seen {
    right: i64,
    /// Of these, with a span, and in a scope in another.
    linked: i64,
    nested: i64,
    numbers: BTreeSet<u64>,
    wrong: Vec<String>,
}

impl Seen {
    fn add(&mut self, set: &ProfileSet) {
        let profile = set.profiles.iter().find(|profile| profile.kind.is_cpu(&set.dictionary));
        let samples = profile.iter().flat_map(|profile| &profile.samples);
        samples.filter(|sample| is_at_work(set, sample)).for_each(|sample| self.add_sample(set, sample));
    }

    fn add_sample(&mut self, set: &ProfileSet, sample: &Sample) {
        let label = |key: &str| match set.dictionary.value_of(sample.attributes, key) {
            Some(Value::String(text)) => Some(text.to_string()),
            _ => None,
        };
        let span = set.dictionary.links.get(sample.link).filter(|_| !sample.link.is_zero());
        let span = span.map(|link| (u128::from_be_bytes(link.trace_id), u64::from_be_bytes(link.span_id)));
        let (task, nested) = (label("task"), label("nested"));
        let number = task.as_deref().and_then(|task| task.parse::<u64>().ok());
        let expected = number.filter(|number| !number.is_multiple_of(4)).map(|number| (u128::from(number), number));
        match number {
            Some(number) if span == expected && matches!(nested.as_deref(), None | Some("inner")) => {
                self.right += sample.value;
                self.linked += if span.is_some() { sample.value } else { 0 };
                self.nested += if nested.is_some() { sample.value } else { 0 };
                self.numbers.insert(number);
            }
            _ => self.wrong.push(format!("{task:?} {nested:?} {span:?}")),
        }
    }
}

/// Whether a sample was taken in the work itself: it begins with tags and span in force, and ends before these do.
fn is_at_work(set: &ProfileSet, sample: &Sample) -> bool {
    let name = || {
        let stack = set.dictionary.stacks.get(sample.stack)?;
        let leaf = set.dictionary.locations.get(*stack.locations.first()?)?;
        let function = set.dictionary.functions.get(leaf.lines.first()?.function)?;
        Some(set.dictionary.strings.text(function.name))
    };
    name().is_some_and(|name| name.starts_with("profiler_tests::workload::"))
}

/// Check that a program that samples itself has no CPU samples from outside, that this is counted in the kernel, and that `doctor` says why and what to do.
#[test]
fn a_program_with_the_sdk_is_left_to_it() {
    if !is_root() {
        return;
    }
    let program = at_work();
    let run = Running::agent(&mut agent(&["run", "--pid", &program.pid().to_string(), "--rate-hz", "499"]));
    let page = run.address_after("http://");
    let until = Instant::now() + DEADLINE;
    let taken_once_excluded_are = |count: u64| loop {
        let stats = stats(&page);
        if stats["kernel"]["excluded"].as_u64().unwrap() >= count {
            assert_eq!(stats["processes"]["sampled"], 0, "{stats}");
            return stats["taken"].as_u64().unwrap();
        }
        assert!(Instant::now() < until, "{stats}");
        std::thread::sleep(Duration::from_millis(50));
    };
    // Until it said that it samples itself it may have been taken for one that does not; from then on there is none.
    let [before, after] = [1, 2].map(|times| taken_once_excluded_are(times * SAMPLES as u64));
    assert_eq!(before, after, "{}", stats(&page));
    let answer = get(&page, &format!("/debug/pprof/profile?seconds=1&pid={}", program.pid()));
    assert_ne!(answer.status, 200, "{}", stats(&page));
    let doctor = agent(&["doctor", "--json"]).env("PROFILER_RATEHZ", "9").output().unwrap();
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let settings = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "settings").unwrap();
    assert_eq!(settings["found"], "PROFILER_RATEHZ has no effect: no setting has this name");
    let row = doctor["processes"].as_array().unwrap().iter().find(|row| row["pid"] == program.pid()).unwrap();
    assert_eq!((&row["service"], &row["profiled"]), (&"tasks".into(), &false.into()), "{row}");
    let why = row["why_not"].as_str().unwrap_or_default();
    assert!(why.contains("profiles itself with the SDK") && why.contains("--profile-sdk"), "{row}");
    assert_eq!(run.end(), Some(0));
}

/// Check that under `--profile-sdk` each sample has the tags and the span that were in force, and none where there was none, and that the service is the one that is
/// published; and that its stacks have names.
#[test]
fn a_program_with_the_sdk_is_sampled_with_what_it_publishes_if_asked() {
    if !is_root() {
        return;
    }
    let program = at_work();
    let pid = program.pid().to_string();
    let run = Running::agent(&mut agent(&["run", "--pid", &pid, "--profile-sdk", "--rate-hz", "499"]));
    let page = run.address_after("http://");
    let (until, mut seen, mut early) = (Instant::now() + DEADLINE, Seen::default(), true);
    while seen.linked < SAMPLES || seen.linked == seen.right || seen.nested == 0 || seen.numbers.len() < 8 {
        assert!(Instant::now() < until, "{seen:?} {}", run.log());
        let answer = get(&page, &format!("/debug/pprof/profile?seconds=2&pid={pid}"));
        if answer.status != 200 {
            continue;
        }
        let set = decode(&answer.body);
        assert_eq!(service(&set), "tasks");
        // In the first some may have been taken before the kernel side was told where contexts are, and the user side what their keys are called.
        if !std::mem::take(&mut early) {
            seen.add(&set);
        }
    }
    assert!(seen.wrong.is_empty(), "{seen:?}");
    eprintln!("{} samples of {} numbers, {} with a span", seen.right, seen.numbers.len(), seen.linked);
    assert_balanced(&stats(&page));
    assert_eq!(run.end(), Some(0));
}
