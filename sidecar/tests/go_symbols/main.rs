//! The reader of Go's tables against what the runtime of real Go programs says of its own text, address by address.
//!
//! The programs are built from `tests/go/symbols` by several versions of Go, in every form in which programs come. Versions other than the
//! installed one come from the Go module proxy. `PROFILER_TEST_GO=all` tries all versions, not three, and
//! all addresses, not every 23rd.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking and says why")]

mod arm64;
mod build;
mod fixtures;
mod oracle;
mod reduce;

use std::sync::Arc;

use build::{Form, Version};
use profiler_sidecar::elf;
use profiler_sidecar::go::Program;

/// The oldest that the proxy has, one in the middle, the newest.
const VERSIONS: [Version; 3] = [Version("go1.21.13"), Version("go1.24.13"), Version("go1.27.0")];
const MORE: [Version; 4] = [Version("go1.22.12"), Version("go1.23.12"), Version("go1.25.11"), Version("go1.26.8")];

/// Whether everything is tried, or what a minute has room for.
fn all() -> bool {
    std::env::var("PROFILER_TEST_GO").is_ok_and(|which| which == "all")
}

fn versions() -> Vec<Version> {
    VERSIONS.into_iter().chain(MORE.into_iter().filter(|_| all())).collect()
}

fn open(path: &std::path::Path) -> Program {
    let elf = elf::File::open(std::fs::File::open(path).unwrap()).unwrap();
    Program::open(Arc::new(elf)).unwrap().unwrap()
}

/// Check for each version that in a program of this form every address has the functions, files, lines and depth of stack that the
/// program's own runtime says.
fn every_address_is_what_the_runtime_says(form: Form) {
    for version in versions() {
        let built = build::program(version, form);
        let program = open(&built.stripped);
        assert_eq!(program.version().text, version.0);
        assert_as_said(&built, &program);
    }
}

fn assert_as_said(built: &build::Built, program: &Program) {
    assert!(program.knows_inlined_calls(), "{:?}", built.stripped);
    // It has no common divisor with what functions and instructions are aligned to.
    let step = if all() { 1 } else { 23 };
    let compared = oracle::compare(&[&built.whole], program, step);
    assert!(compared > 400_000 / step, "{:?}: {compared} addresses", built.stripped);
    assert_eq!(program.damaged(), 0, "{:?}", built.stripped);
}

#[test]
fn of_a_normal_program() {
    every_address_is_what_the_runtime_says(Form::Normal);
}

#[test]
fn of_a_stripped_program() {
    every_address_is_what_the_runtime_says(Form::Stripped);
}

#[test]
fn of_a_position_independent_program() {
    every_address_is_what_the_runtime_says(Form::Pie);
}

#[test]
fn of_a_program_with_c() {
    every_address_is_what_the_runtime_says(Form::Cgo);
}

#[test]
fn of_a_position_independent_program_with_c() {
    every_address_is_what_the_runtime_says(Form::CgoPie);
}

#[test]
fn of_a_program_without_section_headers() {
    every_address_is_what_the_runtime_says(Form::Headless);
}

#[test]
fn of_a_position_independent_program_with_c_without_section_headers() {
    every_address_is_what_the_runtime_says(Form::HeadlessCgoPie);
}

#[test]
fn of_a_program_whose_addresses_are_in_its_relocations_only() {
    every_address_is_what_the_runtime_says(Form::Unrelocated);
}

#[test]
fn of_a_program_without_the_paths_of_its_sources() {
    every_address_is_what_the_runtime_says(Form::Trimmed);
}

/// Check that the tables are read that garble leaves, of a program that says neither that it is Go's nor of which version.
#[test]
fn of_a_garbled_program() {
    let built = build::program(VERSIONS[2], Form::Garbled);
    let program = open(&built.stripped);
    assert!(!program.version().is_known());
    assert_as_said(&built, &program);
}

#[test]
fn functions_are_found_by_their_names() {
    let program = open(&build::program(VERSIONS[1], Form::Stripped).stripped);
    let names = ["main.main", "main.recurse", "no.such", "runtime.goexit"];
    let found = program.find_all(&names);
    for (name, entry) in names.into_iter().zip(found) {
        assert_eq!(entry, program.find(name));
        let Some(entry) = entry else {
            assert_eq!(name, "no.such");
            continue;
        };
        let function = program.function(entry).unwrap();
        assert_eq!((&*function.name, function.entry), (name, entry));
        assert_eq!(program.stack_depth(entry), Some(0), "{name}");
    }
    let goexit = program.function(program.find("runtime.goexit").unwrap()).unwrap();
    assert_eq!(goexit.flags & profiler_sidecar::go::Function::TOP_FRAME, 1);
}

/// Check that without section headers a program's own table is told from that of a program which it holds as data.
#[test]
fn a_program_that_holds_another_one_is_read_by_its_own_table() {
    let inner = build::program(VERSIONS[0], Form::Stripped).whole;
    let program = open(&build::holding(VERSIONS[2], &inner));
    assert!(program.knows_inlined_calls());
    let main = program.function(program.find("main.main").unwrap()).unwrap();
    assert_eq!((main.start_line, program.find("main.recurse")), (9, None));
    assert_eq!(program.version().text, VERSIONS[2].0);
}

#[test]
fn a_program_of_another_language_is_not_one_of_go() {
    let elf = elf::File::open(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
    assert!(Program::open(Arc::new(elf)).unwrap().is_none());
}
