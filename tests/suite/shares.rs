//! The main claim: CPU time burnt 60/30/10 in three functions under three tags comes out as that, by function and by tag,
//! whichever way the profile is read.
//!
//! Every share is compared with what the functions really used, within 4 standard errors of a share of as many samples as
//! there were (`profiler_tests::statistics`). Two threads at 250 Hz: the finest period that a kernel with a tick of 4 ms
//! can keep. The work goes on until every reader has seen 4,000 samples, however busy the machine is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_proto::loss::STACKS;
use profiler_tests::browser::Browser;
use profiler_tests::fetch;
use profiler_tests::process::{Running, run};
use profiler_tests::receiver::{Protocol, Receiver};
use profiler_tests::statistics::{STANDARD_ERRORS, deviation};
use profiler_tests::tally::is_named;
use profiler_tests::workload::PARTS;

use crate::scenario::{assert_lawful, command, sending, start, turn};

/// How long `go tool pprof` looks each time, in seconds.
const SECONDS: u32 = 5;
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

/// Check the shares in the OTLP requests, in what `go tool pprof` reads from `/debug/pprof/profile`, and in the page's table.
#[test]
fn shares_are_right_whichever_way_they_are_read() {
    let _turn = turn();
    let receiver = Receiver::start().unwrap();
    let mut child = start(sending(&mut command("shares", &["threads=2", "rate=250"]), &receiver, Protocol::Grpc));
    let address = child.json().unwrap()["serve"].as_str().unwrap().to_owned();
    let files = fetched(&address);
    let page = Page::read(&address);
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

    let (functions, tags) = (pprof_functions(&files), pprof_tags(&files));
    let samples = files.iter().map(|file| stacks_in(file)).sum::<u64>() as f64;
    for (index, part) in PARTS.iter().enumerate() {
        let of = |weights: &[f64]| (weights[index], weights.iter().sum());
        let ((below, all), (tagged, all_tagged)) = (of(&functions), of(&tags));
        assert_share("go tool pprof -top", part.function, below, all, truth[index], samples);
        assert_share("go tool pprof -tags", part.tag, tagged, all_tagged, truth[index], samples);
    }

    for (index, part) in PARTS.iter().enumerate() {
        let whole = |weights: &[f64]| weights.iter().sum();
        let (functions, tags) = (&page.functions, &page.tags);
        assert_share("page", part.function, functions[index], whole(functions), truth[index], page.stacks);
        assert_share("page", part.tag, tags[index], whole(tags), truth[index], page.stacks);
    }
}

/// What the page shows in a browser.
struct Page {
    /// The total of each part in the table, in samples.
    functions: Vec<f64>,
    /// Samples in the header with a filter for each part's tag.
    tags: Vec<f64>,
    /// Stacks that the server had when the page was first opened.
    stacks: f64,
}

impl Page {
    fn read(address: &str) -> Self {
        let stacks = fetch::json(address.parse().unwrap(), "/stats").unwrap()["exported"].as_f64().unwrap();
        let mut browser = Browser::start(1280, 800).unwrap();
        // The window's end is fixed, for what goes on meanwhile would be in one answer and not in the next.
        let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let functions = PARTS.iter().map(|part| Self::total(&mut browser, address, until, part.function)).collect();
        let tags = PARTS.iter().map(|part| Self::tagged(&mut browser, address, until, part.tag)).collect();
        Self { functions, tags, stacks }
    }

    /// The sum of the totals of the functions of this name: the build may have several copies of one.
    fn total(browser: &mut Browser, address: &str, until: u64, name: &str) -> f64 {
        Self::open(browser, address, until, "view=table");
        let rows = browser.evaluate("profilerPage.table().map(({ name, total }) => [name, total])").unwrap();
        let rows = rows.as_array().unwrap().iter();
        let own = rows.filter(|row| row[0].as_str().is_some_and(|function| is_named(function, name)));
        own.map(|row| row[1].as_f64().unwrap()).sum()
    }

    fn tagged(browser: &mut Browser, address: &str, until: u64, tag: &str) -> f64 {
        Self::open(browser, address, until, &format!("tag=endpoint%3D{tag}"));
        browser.evaluate("profilerPage.state().samples").unwrap().as_f64().unwrap()
    }

    fn open(browser: &mut Browser, address: &str, until: u64, query: &str) {
        browser.open(&format!("http://{address}/?from={}&to={until}&{query}", until - 600)).unwrap();
        browser.wait_until("profilerPage.state().answers > 0").unwrap();
    }
}

/// Tells the scenario that it is enough.
fn finished(mut child: Running) -> serde_json::Value {
    child.say("enough").unwrap();
    child.finish().unwrap().json().unwrap()
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
fn pprof_functions(files: &[PathBuf]) -> Vec<f64> {
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
fn pprof_tags(files: &[PathBuf]) -> Vec<f64> {
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
