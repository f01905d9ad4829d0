//! The main claim: CPU time burnt 60/30/10 in three functions under three tags comes out as that, by function and by tag,
//! whichever way the profile is read.
//!
//! Every share is compared with what the functions really used, within 4 standard errors of a share of as many samples as
//! there were (`profiler_tests::statistics`). Two threads at 250 Hz: the finest period that a kernel with a tick of 4 ms
//! can keep without merging expiries.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use profiler_tests::process::{Running, run};
use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::statistics::{STANDARD_ERRORS, deviation};
use profiler_tests::tally::is_named;
use profiler_tests::workload::PARTS;

use crate::scenario::{assert_lawful, command, sending, start, turn};

/// How long `go tool pprof` looks, in seconds: at 2 × 250 Hz, enough for 4,000 samples on a machine that is half busy.
const SECONDS: u32 = 16;
/// The least number of samples that a comparison is made with.
const SAMPLES: f64 = 4000.0;

/// Checks one share against the true one.
#[track_caller]
fn assert_share(way: &str, name: &str, part: f64, whole: f64, expected: f64, samples: f64) {
    assert!(samples >= SAMPLES, "{way}: {samples} samples are too few");
    let off = deviation(part, whole, expected, samples);
    let share = part / whole;
    assert!(off.abs() <= STANDARD_ERRORS, "{way}: {name} has {share:.4}, not {expected:.4}: {off:.1} standard errors");
}

/// Check the shares in the OTLP requests and in what `go tool pprof` reads from `/debug/pprof/profile`.
#[test]
fn shares_are_right_in_otlp_and_in_pprof() {
    let _turn = turn();
    let receiver = Receiver::start().unwrap();
    let mut child = start(sending(&mut command("shares", &["threads=2", "rate=250"]), &receiver, Protocol::Grpc));
    let address = child.json().unwrap()["serve"].as_str().unwrap().to_owned();
    let file = fetched(&address);
    let outcome = finished(child);
    let used: Vec<f64> = outcome["used"].as_array().unwrap().iter().map(|used| used.as_f64().unwrap()).collect();
    let truth: Vec<f64> = used.iter().map(|part| part / used.iter().sum::<f64>()).collect();

    assert_lawful(&receiver);
    let tally = receiver.accepted();
    let below: Vec<f64> = PARTS.iter().map(|part| tally.below(part.function) as f64).collect();
    let tagged: Vec<f64> = PARTS.iter().map(|part| tally.tagged("endpoint", part.tag) as f64).collect();
    for (index, part) in PARTS.iter().enumerate() {
        let samples = tally.stacks as f64;
        assert_share("OTLP", part.function, below[index], below.iter().sum(), truth[index], samples);
        assert_share("OTLP", part.tag, tagged[index], tagged.iter().sum(), truth[index], samples);
    }

    let (functions, tags) = (pprof_functions(&file), pprof_tags(&file));
    for (index, part) in PARTS.iter().enumerate() {
        let (samples, whole) = (functions.iter().sum(), tags.iter().sum());
        assert_share("go tool pprof -top", part.function, functions[index], samples, truth[index], samples);
        assert_share("go tool pprof -tags", part.tag, tags[index], whole, truth[index], whole);
    }
}

/// Tells the scenario that it is enough.
fn finished(mut child: Running) -> serde_json::Value {
    child.say("enough").unwrap();
    child.finish().unwrap().json().unwrap()
}

/// What `go tool pprof` got from the server, as a file of its own making.
fn fetched(address: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shares.pb.gz");
    let url = format!("http://{address}/debug/pprof/profile?seconds={SECONDS}");
    pprof(&["-proto", &format!("-output={}", file.display()), &url]);
    file
}

/// The samples below each part, by `-top` with cumulative sums.
fn pprof_functions(file: &std::path::Path) -> Vec<f64> {
    let text = pprof(&[
        "-top",
        "-cum",
        "-sample_index=samples",
        "-nodecount=10000",
        "-nodefraction=0",
        &file.display().to_string(),
    ]);
    // flat flat% sum% cum cum% name…
    let rows = text.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        Some((columns.get(3)?.parse::<f64>().ok()?, columns.get(5..)?.join(" ")))
    });
    let rows: Vec<_> = rows.collect();
    let of = |function: &str| rows.iter().filter(|(_, name)| is_named(name, function)).map(|(cum, _)| cum).sum::<f64>();
    PARTS.iter().map(|part| of(part.function)).collect()
}

/// The samples under each part's tag, by `-tags`.
fn pprof_tags(file: &std::path::Path) -> Vec<f64> {
    let text = pprof(&["-tags", "-sample_index=samples", &file.display().to_string()]);
    // value (share%): tag
    let of = |tag: &str| {
        let line = text.lines().find(|line| line.trim().ends_with(&format!(": {tag}")));
        let line = line.unwrap_or_else(|| panic!("go tool pprof -tags does not list {tag}:\n{text}"));
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    PARTS.iter().map(|part| of(part.tag)).collect()
}

/// What `go tool pprof` prints.
fn pprof(arguments: &[&str]) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof"]).args(arguments);
    let finished = run(&mut command, Duration::from_secs(60 + u64::from(SECONDS))).unwrap();
    assert!(finished.status.success(), "go tool pprof {arguments:?}: {}", finished.stderr);
    finished.lines.join("\n")
}
