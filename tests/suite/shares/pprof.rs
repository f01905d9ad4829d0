//! Reads the shares with `go tool pprof`.
//!
//! In: the address of a profiled process. Out: cumulative sums of `-top` and those of `-tags`, over all the files that the tool
//! fetched from `/debug/pprof/profile`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_proto::loss::STACKS;
use profiler_tests::process::run;
use profiler_tests::tally::is_named;
use profiler_tests::workload::PARTS;

use super::{Reading, SAMPLES};

/// How long the tool looks each time, in seconds.
const SECONDS: u32 = 5;

/// What the tool says, once it has fetched enough samples.
pub(super) fn read(address: &str) -> Reading {
    let files = fetched(address);
    let stacks = files.iter().map(|file| stacks_in(file)).sum::<u64>() as f64;
    Reading { way: "go tool pprof", functions: functions(&files), tags: tags(&files), stacks }
}

/// What `go tool pprof` got from the server, as files of its own making, until they hold enough samples.
fn fetched(address: &str) -> Vec<PathBuf> {
    // From a source tree, Go builds the tool when it is first used: not while the profile waits.
    pprof(&["-h"]);
    let url = format!("http://{address}/debug/pprof/profile?seconds={SECONDS}");
    let (mut files, mut stacks) = (Vec::new(), 0);
    while (stacks as f64) < SAMPLES {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("shares-{}.pb.gz", files.len()));
        // Unless told otherwise it waits for half as long again as it asked for: too short on a busy machine.
        pprof(&["-timeout=60", "-proto", &format!("-output={}", file.display()), &url]);
        stacks += stacks_in(&file);
        files.push(file);
    }
    files
}

/// The stacks that a pprof file says it stands for: the profiler's counts are among its comments.
fn stacks_in(file: &Path) -> u64 {
    let comments = pprof(&["-comments", &file.display().to_string()]);
    let count =
        comments.lines().find_map(|line| line.strip_prefix(STACKS)?.strip_prefix('=')).expect("how many stacks?");
    count.parse().unwrap()
}

/// The weight below each part, by `-top` with cumulative sums.
fn functions(files: &[PathBuf]) -> Vec<f64> {
    let text = merged(files, &["-top", "-cum", "-sample_index=samples", "-nodecount=10000", "-nodefraction=0"]);
    // flat flat% sum% cum cum% name…
    let rows = text.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        Some((columns.get(3)?.parse::<f64>().ok()?, columns.get(5..)?.join(" ")))
    });
    let rows: Vec<_> = rows.collect();
    let of = |function: &str| rows.iter().filter(|(_, name)| is_named(name, function)).map(|(cum, _)| cum).sum::<f64>();
    PARTS.iter().map(|part| of(part.function)).collect()
}

/// The weight under each part's tag, by `-tags`.
fn tags(files: &[PathBuf]) -> Vec<f64> {
    let text = merged(files, &["-tags", "-sample_index=samples"]);
    // value (share%): tag
    let of = |tag: &str| {
        let line = text.lines().find(|line| line.trim().ends_with(&format!(": {tag}")));
        let line = line.unwrap_or_else(|| panic!("go tool pprof -tags does not list {tag}:\n{text}"));
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    PARTS.iter().map(|part| of(part.tag)).collect()
}

/// What `go tool pprof` prints of all files together.
fn merged(files: &[PathBuf], arguments: &[&str]) -> String {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let files = files.iter().map(String::as_str);
    pprof(&arguments.iter().copied().chain(files).collect::<Vec<_>>())
}

/// What `go tool pprof` prints.
fn pprof(arguments: &[&str]) -> String {
    let mut command = Command::new("go");
    // It keeps a copy of whatever it fetches, in the home directory unless told otherwise.
    command.args(["tool", "pprof"]).args(arguments).env("PPROF_TMPDIR", env!("CARGO_TARGET_TMPDIR"));
    let finished = run(&mut command, Duration::from_secs(120)).unwrap();
    let help = arguments == ["-h"];
    assert!(finished.status.success() || help, "go tool pprof {arguments:?}: {}", finished.stderr);
    finished.lines.join("\n")
}
