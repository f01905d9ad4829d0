//! Programs for aarch64: their tables against what Go's own tools read from the same files, and, where there is an emulator for them
//! (`qemu-aarch64`, of Debian's `qemu-user`), against what their own runtime says.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use profiler_sidecar::elf::Machine;
use profiler_sidecar::go::{Call, Program};

use super::build::{self, Form, Version, run};
use super::{VERSIONS, open, oracle};

/// Check that functions are where `go tool nm` says, and that addresses in all of them have the function, file and line that
/// `go tool addr2line` says.
#[test]
fn every_function_for_aarch64_is_what_gos_tools_say() {
    for version in VERSIONS {
        for form in [Form::Normal, Form::Pie] {
            let path = build::for_processor(version, form, Some("arm64")).whole;
            let program = open(&path);
            assert_eq!(program.elf().machine(), Machine::Aarch64);
            let functions = functions(version, &path, &program);
            assert!(functions.len() > 1000, "{version:?} {form:?}: {} functions", functions.len());
            let addresses: Vec<u64> = functions.keys().flat_map(|entry| [*entry, entry + 8]).collect();
            for (address, (function, place)) in addresses.iter().zip(lines(version, &path, &addresses)) {
                let frames = program.frames(*address, Call::Interrupted);
                let (inner, outer) = (frames.first().unwrap(), frames.last().unwrap());
                let ours = (outer.function.to_string(), format!("{}:{}", inner.file, inner.line));
                assert_eq!(ours, (function, place), "{version:?} {form:?} {address:#x}");
            }
        }
    }
}

/// Check every address as those of this processor are, where such programs can run.
#[test]
fn every_address_for_aarch64_is_what_the_emulated_runtime_says() {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let emulators = ["qemu-aarch64", "qemu-aarch64-static"];
    let emulator = std::env::split_paths(&paths).flat_map(|folder| emulators.map(|name| folder.join(name)));
    let Some(emulator) = emulator.into_iter().find(|path| path.is_file()) else {
        eprintln!("not run: no qemu-aarch64 here");
        return;
    };
    for version in VERSIONS {
        let path = build::for_processor(version, Form::Stripped, Some("arm64")).whole;
        let runner: [&Path; 2] = [&emulator, &path];
        assert!(oracle::compare(&runner, &open(&path), 44) > 10_000, "{version:?}");
    }
}

/// Functions of Go by their entry, each compared with ours.
fn functions(version: Version, path: &Path, program: &Program) -> BTreeMap<u64, String> {
    let listed = String::from_utf8(run(build::go(version).args(["tool", "nm"]).arg(path))).unwrap();
    let mut functions = BTreeMap::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some("T" | "t"), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let address = u64::from_str_radix(address, 16).unwrap();
        let Some(function) = program.function(address).filter(|function| function.entry == address) else {
            // Marks at the ends of the text are no functions.
            assert!(matches!(name, "runtime.etext" | "runtime.text" | "_etext"), "{name} at {address:#x} is not found");
            continue;
        };
        // Marks of the linker, such as `go:textfipsstart`, are told differently by Go's own tools.
        if function.end > address + 8 && !name.starts_with("go:") {
            functions.insert(address, name.to_owned());
        }
    }
    functions
}

/// Function and line of each address.
fn lines(version: Version, path: &Path, addresses: &[u64]) -> Vec<(String, String)> {
    let mut tool = build::go(version);
    tool.args(["tool", "addr2line"]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = tool.spawn().unwrap();
    let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 2 * addresses.len());
    lines.as_chunks::<2>().0.iter().map(|[function, line]| ((*function).to_owned(), (*line).to_owned())).collect()
}
