//! pprof files that real Go programs wrote, of several Go versions, read and written again by our codec.
//!
//! `go tool pprof -raw` shows the original and what came back; the two must say the same. Two things may differ, as they
//! mean nothing: the ids and order of samples, locations and mappings, and what no sample refers to (Go lists all that is
//! mapped). Samples with equal stack and labels, of which Go writes several, are summed before they are compared. The
//! writer is `tests/go/pprof_writer`; other Go versions than the installed one come from the Go module proxy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_proto::model::{Function, Kind, Line, Location, Profile, ProfileSet, Sample, Stack};
use profiler_proto::validate::{Rule, validate};
use profiler_proto::{Limits, otlp, pprof};
use profiler_tests::process::{Finished, Running};

/// The profiles that the writer writes.
const PROFILES: [&str; 7] = ["cpu", "heap", "allocs", "goroutine", "mutex", "block", "threadcreate"];

/// Long enough to fetch a toolchain and build its standard library on a slow machine, where `.ci/tools.sh` has not done it.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs `go` with `arguments` under toolchain `version`; gives what it wrote to standard output.
fn go(version: &str, folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(folder).env("GOTOOLCHAIN", version).env("GOFLAGS", "-mod=mod -buildvcs=false");
    run(command, "go is missing: run `make setup`")
}

fn run(mut command: Command, missing: &str) -> String {
    let running = Running::start(&mut command, LIMIT).unwrap_or_else(|error| panic!("{error} ({missing})"));
    let Finished { status, lines, stderr } = running.finish().unwrap();
    assert!(status.success(), "{command:?}: {status}\n{stderr}");
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

/// The folder with the profiles that a writer built by `version` wrote, and the version that wrote them.
fn written_by(version: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pprof_writer").join(version);
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/pprof_writer");
    let program = folder.join("pprof_writer");
    go(version, &source, &["build", "-o", program.to_str().unwrap(), "."]);
    let mut writer = Command::new(&program);
    writer.arg(&folder);
    run(writer, "the program that was just built");
    (folder, go(version, &source, &["env", "GOVERSION"]).trim().to_owned())
}

/// What `go tool pprof -raw` shows of a file, without ids and order.
///
/// The layout of its lines: github.com/google/pprof, profile/profile.go, `Profile.String` and what it calls.
#[derive(Debug, PartialEq, Eq)]
struct Raw {
    /// Types, period, time, duration, comments.
    head: Vec<String>,
    /// Values by stack (leaf first) and labels.
    samples: BTreeMap<(Vec<Place>, Vec<String>), Vec<i64>>,
}

/// A location: its address and lines, and its mapping.
type Place = (String, String);

impl Raw {
    fn of(file: &Path) -> Self {
        // The installed version's viewer, for all of them; it must not look for symbols by itself.
        let text =
            go("local", file.parent().unwrap(), &["tool", "pprof", "-symbolize=none", "-raw", file.to_str().unwrap()]);
        let (head, rest) = text.split_once("Samples:\n").unwrap();
        let (samples, rest) = rest.split_once("Locations\n").unwrap();
        let (locations, mappings) = rest.split_once("Mappings\n").unwrap();
        let (types, samples) = samples.split_once('\n').unwrap();
        let head = head.lines().chain([types]).map(str::to_owned).collect();
        Self { head, samples: samples_of(samples, &places_of(locations, &mappings_of(mappings))) }
    }
}

/// Mappings by id, but for the one without an extent that the viewer makes up where a file has none.
fn mappings_of(text: &str) -> BTreeMap<&str, &str> {
    let all = text.lines().map(|line| line.split_once(": ").unwrap());
    all.filter(|(_, mapping)| !mapping.starts_with("0x0/0x0/0x0 ")).collect()
}

/// Locations by id: `    12: 0x4e0ebe M=1 main.hash main.go:91:0 s=88`, further lines for what inlined it.
fn places_of(text: &str, mappings: &BTreeMap<&str, &str>) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines() {
        match line.split_once(": 0x") {
            Some((id, place)) if !id.trim().is_empty() && id.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
                let (address, rest) = place.split_once(' ').unwrap();
                let (mapping, rest) = match rest.strip_prefix("M=") {
                    Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
                    None => ("", rest),
                };
                let mapping = mappings.get(mapping).copied().unwrap_or_default();
                last = id.trim().to_owned();
                places.insert(last.clone(), (format!("{address} {}", rest.trim()), mapping.trim().to_owned()));
            }
            _ => places.get_mut(&last).unwrap().0.extend(["\n", line.trim()]),
        }
    }
    places
}

/// Samples: values, `:`, location ids; then lines of labels.
fn samples_of(text: &str, places: &BTreeMap<String, Place>) -> BTreeMap<(Vec<Place>, Vec<String>), Vec<i64>> {
    const LABELS: &str = "                ";
    let mut samples = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (values, ids) = line.split_once(": ").unwrap();
        let values: Vec<i64> = values.split_whitespace().map(|value| value.parse().unwrap()).collect();
        let stack = ids.split_whitespace().map(|id| places[id].clone()).collect();
        let mut labels = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with(LABELS)) {
            labels.push(line.trim().to_owned());
        }
        let sums = samples.entry((stack, labels)).or_insert_with(|| vec![0; values.len()]);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    samples
}

/// Our own file of `set`, seen through the viewer.
fn again(set: &ProfileSet, file: &Path) -> Raw {
    std::fs::write(file, pprof::encode(set)).unwrap();
    Raw::of(file)
}

/// Checks one file: there and back, and there and back by way of OTLP.
fn check(name: &str, folder: &Path) {
    let bytes = std::fs::read(folder.join(name).with_extension("pb.gz")).unwrap();
    let set = pprof::decode(&bytes, &Limits::default()).unwrap();
    let original = Raw::of(&folder.join(name).with_extension("pb.gz"));
    let file = folder.join(format!("{name}.again.pb.gz"));
    similar(&again(&set, &file), &original, &file);
    let request = otlp::encode(&set);
    // A profile of what is, not of what happened, has no duration in Go; its linker made no build id before 1.24; and
    // the threads that it has no stack for are under a function without a name.
    let of_go = [Rule::Duration, Rule::MappingBuildId, Rule::FrameUnnamed];
    let findings: Vec<_> = validate(&request).into_iter().filter(|finding| !of_go.contains(&finding.rule)).collect();
    assert_eq!(findings, [], "{}", file.display());
    let mut sets = otlp::decode(request, &Limits::default()).unwrap();
    similar(&again(&sets.remove(0), &file), &original, &file);
}

fn similar(ours: &Raw, original: &Raw, file: &Path) {
    assert_eq!(ours.head, original.head, "{}", file.display());
    for (sample, values) in &original.samples {
        assert_eq!(ours.samples.get(sample), Some(values), "{}: {sample:#?}", file.display());
    }
    assert_eq!(ours.samples.len(), original.samples.len(), "{}", file.display());
}

/// Checks that all profiles of a Go version come back, and that they held what the writer did.
fn come_back(version: &str) {
    let (folder, actual) = written_by(version);
    assert!(version == "local" || version == actual, "{version} was asked for, {actual} was used");
    PROFILES.iter().for_each(|name| check(name, &folder));
    let read = |name: &str| {
        let bytes = std::fs::read(folder.join(name).with_extension("pb.gz")).unwrap();
        pprof::decode(&bytes, &Limits::default()).unwrap()
    };
    let cpu = read("cpu");
    assert_eq!(cpu.profiles.len(), 1, "samples, of which the nanoseconds follow");
    assert!(cpu.profiles[0].kind.is_cpu(&cpu.dictionary));
    assert!(cpu.profiles[0].samples.iter().any(|sample| !sample.link.is_zero()), "trace_id and span_id are a link");
    let values: Vec<_> = cpu.dictionary.attributes.iter().filter_map(|attribute| attribute.value.as_str()).collect();
    assert!(["/orders", "/search", "GET"].iter().all(|value| values.contains(value)), "{values:?}");
    let heap = read("heap");
    let types = heap.profiles.iter().map(|profile| heap.dictionary.strings.text(profile.kind.sample_type.kind));
    assert_eq!(types.collect::<Vec<_>>(), ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
}

/// Check that profiles of the installed Go come back.
#[test]
fn profiles_of_the_installed_go_come_back() {
    come_back("local");
}

/// Check that profiles of Go 1.22 come back.
#[test]
fn profiles_of_go_1_22_come_back() {
    come_back("go1.22.12");
}

/// Check that profiles of Go 1.24 come back.
#[test]
fn profiles_of_go_1_24_come_back() {
    come_back("go1.24.13");
}

/// Check that the viewer, which looks for the linker's names by itself, shows names of Rust as they are: with what is in brackets.
#[test]
fn names_of_rust_are_shown_whole() {
    const NAME: &str = "<alloc::vec::Vec<(u64, shop::Item)> as shop::Sum<u8>>::total";
    let mut set = ProfileSet::default();
    let dictionary = &mut set.dictionary;
    let kind = Kind::cpu(dictionary, 10_000_000);
    let name = dictionary.strings.intern_str(NAME);
    let function = dictionary.functions.intern(Function { name, ..Function::default() });
    let lines = Box::new([Line { function, ..Line::default() }]);
    let locations = Box::new([dictionary.locations.intern(Location { address: 0x1000, lines, ..Location::default() })]);
    let stack = dictionary.stacks.intern(Stack { locations });
    let samples = vec![Sample { stack, value: 100, ..Sample::default() }];
    set.profiles.push(Profile { kind, duration_nanos: 1_000_000_000, samples, ..Profile::default() });
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names_of_rust.pb.gz");
    std::fs::write(&file, pprof::encode(&set)).unwrap();
    let folder = file.parent().unwrap();
    let top = go("local", folder, &["tool", "pprof", "-top", file.to_str().unwrap()]);
    assert!(top.lines().any(|line| line.ends_with(&format!("  {NAME}"))), "{top}");
}
