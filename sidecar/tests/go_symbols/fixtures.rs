//! Versions of Go that are too old to be had everywhere: their first functions, kept here with what their own runtime said of them.
//!
//! `PROFILER_WRITE_FIXTURES=1 cargo test -p profiler-sidecar --test go_symbols fixtures` makes them anew, by toolchains from the Go module proxy.

use std::path::{Path, PathBuf};

use super::build::{self, Form, Version};
use super::{open, oracle, reduce};

const OLD: [(Version, u32); 3] = [(Version("go1.18.10"), 18), (Version("go1.19.13"), 19), (Version("go1.20.14"), 20)];
/// Functions of each.
const COUNT: usize = 200;
/// As in the other tests.
const STEP: u64 = 23;

fn paths(version: Version) -> [PathBuf; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go_symbols/fixtures");
    ["elf", "txt"].map(|kind| folder.join(format!("{}.{kind}", version.0)))
}

/// Check that functions, files, lines, inlined calls and depths of stacks of Go 1.18 to 1.20 are those that their runtimes said.
#[test]
fn versions_of_earlier_years_are_what_their_runtimes_said() {
    for (version, minor) in OLD {
        let [file, said] = paths(version);
        if std::env::var_os("PROFILER_WRITE_FIXTURES").is_some() {
            write(version, minor);
        }
        let program = open(&file);
        assert_eq!((program.version().text.as_str(), program.knows_inlined_calls()), (version.0, true));
        let theirs = oracle::read(&std::fs::read_to_string(said).unwrap());
        assert_eq!(theirs.len(), oracle::compare_with(&theirs, &program, STEP), "{version:?}");
        assert!(theirs.len() > COUNT / 2, "{version:?}: {} functions", theirs.len());
        let inlined = (0..program.text().end - program.text().start).step_by(64);
        let frames = |at| program.frames(program.text().start + at, profiler_sidecar::go::Call::Interrupted);
        assert!(inlined.filter(|at| frames(*at).len() > 1).count() > 20, "{version:?}: calls are inlined");
        let start_lines = program.frames(program.text().start, profiler_sidecar::go::Call::Interrupted)[0].start_line;
        assert_eq!(start_lines > 0, minor >= 20, "{version:?}");
        assert_eq!(program.damaged(), 0, "{version:?}");
    }
}

fn write(version: Version, minor: u32) {
    let [file, said] = paths(version);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let built = build::program(version, Form::Normal);
    let reduced = reduce::reduced(&std::fs::read(&built.whole).unwrap(), minor, COUNT, reduce::AMPLE);
    std::fs::write(&file, reduced).unwrap();
    let text =
        String::from_utf8(build::run(std::process::Command::new(&built.whole).args(["-every", &STEP.to_string()])));
    let program = open(&file);
    let length = program.text().end - program.text().start;
    let is_kept = |line: &&str| line.split(' ').next().unwrap().parse::<u64>().unwrap() < length;
    let kept: String = text.unwrap().lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect();
    std::fs::write(said, kept).unwrap();
}
