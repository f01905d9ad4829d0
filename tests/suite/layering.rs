//! The walls of the house: which crate may use which, which module which, and which files may hold code that the compiler
//! cannot check. Source: DESIGN, "Layout"; `docs/unsafe.md` is the list of those files.
//!
//! In: `cargo metadata` and the source files. Out: a failure that names the file and the edge.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profiler_tests::process::run;
use serde_json::Value;

/// The crates and those of ours that each may use. `None`: any.
const CRATES: &[(&str, Option<&[&str]>)] = &[
    ("profiler-proto", Some(&[])),
    ("profiler-sdk-macros", Some(&[])),
    ("profiler-sdk", Some(&["profiler-proto", "profiler-sdk-macros"])),
    ("profiler-sidecar-ebpf", Some(&[])),
    ("profiler-sidecar", Some(&["profiler-proto", "profiler-sdk", "profiler-sidecar-ebpf"])),
    ("profiler-examples", None),
    ("profiler-tests", None),
    ("profiler-tagged", None),
];

/// The modules of the SDK, each of which may use those before it; see [`LEAVES`] for two that may use less.
const STAGES: &[&str] = &[
    "error",
    "stats",
    "unknown",
    "variables",
    "seldom",
    "watched",
    "others",
    "own_file",
    "fork",
    "engine",
    "export",
    "serve",
    "context",
    "publish",
    "unwind",
    "cpu",
    "heap",
    "aggregate",
    "symbolize",
    "assemble",
    "config",
    "metrics",
    "profiler",
];
/// The modules of the sidecar, each of which may use those before it.
const SIDECAR_STAGES: &[&str] = &[
    "allocator",
    "clock",
    "error",
    "spare",
    "hangup",
    "named_file",
    "oversize",
    "plain",
    "sample",
    "elf",
    "privilege",
    "target",
    "go",
    "discover",
    "bpf",
    "drain",
    "naming",
    "aggregate",
    "assemble",
    "capture",
    "pull",
    "config",
    "budget",
    "pipeline",
    "text",
    "receive",
    "record",
    "inspect",
    "doctor",
    "run",
    "cli",
];
/// Modules that both halves of the project share, and all that they may use: the sidecar has nothing else.
const SHARED: &[&str] = &["export", "serve"];
/// What the shared modules may use.
const LEAVES: &[&str] = &["error", "seldom", "stats", "unknown", "variables", "watched"];

/// The word itself, written so that this file does not count as using it.
const UNSAFE: &str = concat!("un", "safe");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn metadata() -> Value {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(workspace());
    run(&mut command, Duration::from_secs(60)).unwrap().json().unwrap()
}

/// The source files of a directory, as paths from the workspace with their text.
fn sources(directory: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![workspace().join(directory)];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // Cargo marks what it builds to, whatever that is called.
            let is_built = path.join("CACHEDIR.TAG").exists();
            if path.is_dir() && !is_built && name != "fixtures" {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(workspace()).unwrap().to_str().unwrap().to_owned();
                found.insert(relative, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

fn all_sources() -> BTreeMap<String, String> {
    let packages = metadata()["packages"].as_array().unwrap().clone();
    let directory = |package: &Value| {
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
        manifest.parent().unwrap().strip_prefix(workspace()).unwrap().to_str().unwrap().to_owned()
    };
    packages.iter().flat_map(|package| sources(&directory(package))).collect()
}

/// The code of a line: without a comment behind it.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// Check that no crate uses another one of ours than it may, and that every crate is on the list.
#[test]
fn crates_point_downwards() {
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let (_, allowed) =
            CRATES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("what may {name} use?"));
        let Some(allowed) = allowed else { continue };
        // What only its tests use does not reach those who use it: what the macros write is tried with the SDK.
        let shipped = package["dependencies"].as_array().unwrap().iter().filter(|used| used["kind"] != "dev");
        let uses = shipped.map(|used| used["name"].as_str().unwrap());
        let wrong: Vec<_> = uses.filter(|used| used.starts_with("profiler-") && !allowed.contains(used)).collect();
        assert!(wrong.is_empty(), "{name} must not use {wrong:?}");
    }
}

/// Those of `stages` that a file's code names.
fn modules_named(text: &str, stages: &[&str]) -> BTreeSet<String> {
    let paths = text.lines().flat_map(|line| code(line).split("crate::").skip(1));
    let first = |path: &str| path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned();
    paths.map(first).filter(|name| stages.contains(&name.as_str())).collect()
}

/// The module that a source file belongs to, and those of `stages` before it. `None`: the root of the crate, which has them all.
fn module_and_those_before<'a>(file: &str, stages: &'a [&'a str]) -> Option<(String, &'a [&'a str])> {
    let module = file.split("/src/").nth(1).unwrap().split(['/', '.']).next().unwrap();
    if ["lib", "main"].contains(&module) {
        return None;
    }
    let level = stages.iter().position(|stage| *stage == module);
    let level = level.unwrap_or_else(|| panic!("{file}: which modules may `{module}` use?"));
    Some((module.to_owned(), &stages[..level]))
}

/// Check that the SDK's modules point downwards only, and that `export` and `serve` stand on the leaves alone.
#[test]
fn modules_point_downwards() {
    for (file, text) in sources("sdk/src") {
        let Some((module, before)) = module_and_those_before(&file, STAGES) else { continue };
        let allowed = if SHARED.contains(&module.as_str()) { LEAVES } else { before };
        for used in modules_named(&text, STAGES).iter().filter(|used| **used != module) {
            assert!(allowed.contains(&used.as_str()), "{file} must not use crate::{used}");
        }
    }
}

/// Check that the sidecar's modules point downwards only.
#[test]
fn modules_of_the_sidecar_point_downwards() {
    for (file, text) in sources("sidecar/src") {
        let Some((module, before)) = module_and_those_before(&file, SIDECAR_STAGES) else { continue };
        for used in modules_named(&text, SIDECAR_STAGES).iter().filter(|used| **used != module) {
            assert!(before.contains(&used.as_str()), "{file} must not use crate::{used}");
        }
    }
}

/// Check that `proto` does no input or output, reads no clock, makes no threads and holds nothing unchecked.
#[test]
fn proto_is_pure() {
    let sources = sources("proto/src");
    let forbidden = ["std::fs", "std::net", "std::thread", "std::env", "std::process", "Instant", "SystemTime"];
    for (file, text) in &sources {
        let wrong = forbidden.iter().find(|word| text.lines().any(|line| code(line).contains(**word)));
        assert_eq!(wrong, None, "{file} must not use it");
    }
    assert!(sources["proto/src/lib.rs"].contains(&format!("#![forbid({UNSAFE}_code)]")));
}

/// Check that every file says first what it is.
#[test]
fn every_file_has_a_header() {
    let bare: Vec<_> =
        all_sources().into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(file, _)| file).collect();
    assert!(bare.is_empty(), "these files do not say what they are: {bare:?}");
}

/// Check that code that the compiler cannot check is in the files of the list, and in no other.
#[test]
fn unchecked_code_is_where_the_list_says() {
    let list = std::fs::read_to_string(workspace().join("docs/unsafe.md")).unwrap();
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<String> = rows.map(str::to_owned).collect();
    let marks = [" {", " fn", " impl", " extern", " trait", "("].map(|behind| format!("{UNSAFE}{behind}"));
    let holds = |text: &str| text.lines().any(|line| marks.iter().any(|mark| code(line).contains(mark)));
    let holding: BTreeSet<String> =
        all_sources().into_iter().filter(|(_, text)| holds(text)).map(|(file, _)| file).collect();
    let unlisted: Vec<_> = holding.difference(&listed).collect();
    let idle: Vec<_> = listed.difference(&holding).collect();
    assert!(unlisted.is_empty() && idle.is_empty(), "not on the list: {unlisted:?}; on it for nothing: {idle:?}");
}
