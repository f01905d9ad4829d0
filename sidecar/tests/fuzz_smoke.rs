//! The fuzz targets of ELF files and of Go's tables without a fuzzer: what coverage-guided runs found (`tests/fuzz/corpus`), real programs, and a deterministic
//! stream of mutations of both.
//!
//! Most inputs are mutations of small files: what was found, and the first functions of those programs, in which a mutation seldom misses what is read.
//! `FUZZ_SECONDS` is the time that each target takes, 2 by default; `FUZZ_FROM` where the stream begins, so that several can run side by
//! side. A failure prints the seed that failed; `FUZZ_SEED` tries that one alone. `FUZZ_WRITE=1` writes the small files to `tests/fuzz/found`, for
//! `tests/fuzz/guided` to begin with.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test fails by panicking and says why")]

#[path = "../../tests/fuzz/corpus.rs"]
mod corpus;
#[path = "go_symbols/reduce.rs"]
mod reduce;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_sidecar::elf::{self, File};
use profiler_sidecar::go::buildinfo;
use profiler_sidecar::go::fuzz::{self, Read};

fn time() -> Duration {
    Duration::from_secs_f64(std::env::var("FUZZ_SECONDS").map_or(2.0, |text| text.parse().unwrap()))
}

/// A deterministic stream of numbers: splitmix64 (Steele, Lea, Flood 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A real program, and where in it that stands which readers stumble over.
struct Seed {
    bytes: Vec<u8>,
    places: Vec<std::ops::Range<usize>>,
}

impl Seed {
    /// The smallest program, stripped, in this form.
    fn build(form: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz_smoke");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("main.go"), SOURCE).unwrap();
        let program = folder.join(form);
        let mut go = Command::new("go");
        go.args(["build", "-ldflags=-s -w", &format!("-buildmode={form}"), "-o"]).arg(&program).arg("main.go");
        go.current_dir(&folder).env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false");
        let output = go.output().unwrap_or_else(|error| panic!("{error}: run `make setup`"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::of(std::fs::read(program).unwrap())
    }

    fn of(bytes: Vec<u8>) -> Self {
        let file = File::of_bytes(bytes.clone()).unwrap();
        let len = bytes.len();
        // File and program headers, section headers, the beginnings of what Go's linker writes.
        let mut places = vec![0..1024, len.saturating_sub(2048)..len];
        for section in file.sections() {
            let start = section.offset as usize;
            if section.name().contains("go") || section.name().starts_with(".dyn") || section.name().contains("rela") {
                places.push(start..(start + 512).min(len));
                places.push(start..(start + section.size as usize).min(len));
            }
        }
        // The table's header with the offsets of its parts, and the parts' beginnings.
        if let Some(table) = file.section(".gopclntab").or_else(|| file.section(".data.rel.ro.gopclntab")) {
            let at = table.offset as usize;
            places.extend([at..at + 72, at..at + 72]);
            for field in (32..72).step_by(8) {
                let part = at + u64::from_le_bytes(bytes[at + field..at + field + 8].try_into().unwrap()) as usize;
                places.push(part..part + 256);
            }
        }
        places.retain(|place| !place.is_empty() && place.end <= len);
        Self { bytes, places }
    }

    /// What a fuzzer made, which may be a file or not: anything may be damaged.
    fn found(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { places: vec![0..len, 0..len.min(64)], bytes }
    }

    /// A damaged copy.
    fn mutated(&self, numbers: &mut Numbers) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if numbers.below(16) == 0 {
            bytes.truncate(numbers.below(bytes.len()));
        }
        for _ in 0..=numbers.below(6) {
            let place = self.places[numbers.below(self.places.len())].clone();
            let at = place.start + numbers.below(place.len());
            let part = bytes.get_mut(at..).unwrap_or_default();
            let width = [1, 1, 4, 8][numbers.below(4)].min(part.len());
            let value = match numbers.below(5) {
                0 => 0,
                1 => u64::MAX,
                2 => numbers.next(),
                3 => numbers.next() >> numbers.below(64),
                _ => u64::MAX >> (1 + numbers.below(40)),
            };
            match numbers.below(3) {
                0 => part.iter_mut().take(1).for_each(|byte| *byte ^= 1 << (value % 8)),
                _ => part[..width].copy_from_slice(&value.to_le_bytes()[..width]),
            }
        }
        // Without section headers the tables are searched for.
        if numbers.below(4) == 0 && bytes.len() > 0x40 {
            bytes[0x28..0x30].fill(0);
            bytes[0x3c..0x40].fill(0);
        }
        bytes
    }
}

/// One of so many inputs is a whole program: each costs as much as a hundred of the others.
const WHOLE: usize = 1000;
/// Of a program's tables, what its first functions seldom look behind.
const TIGHT: reduce::Slack = reduce::Slack { parts: 64, names: 256 };

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

/// Programs that are kept in the repository: of versions that cannot be had everywhere.
fn kept() -> Vec<Seed> {
    let files = files(&repository().join("sidecar/tests/go_symbols/fixtures"));
    let files = files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "elf"));
    files.map(|path| Seed::of(std::fs::read(path).unwrap())).collect()
}

/// What was found for a target; each of it holds.
fn corpus(target: &str, run: fn(Vec<u8>) -> u64) -> Vec<Seed> {
    let held = |(name, bytes): (String, Vec<u8>)| {
        let held = catch_unwind(AssertUnwindSafe(|| run(bytes.clone())));
        assert!(held.is_ok(), "{target} failed on {name}");
        Seed::found(bytes)
    };
    corpus::of(target).into_iter().map(held).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Writes seeds for a coverage-guided run, if that was asked for.
fn are_written(target: &str, seeds: &[Seed]) -> bool {
    let is_asked = std::env::var_os("FUZZ_WRITE").is_some();
    if is_asked {
        let folder = repository().join("tests/fuzz/found").join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), &seed.bytes).unwrap();
        }
    }
    is_asked
}

/// Which Go 1.X built it.
fn minor_of(seed: &Seed) -> u32 {
    let version = buildinfo::version(&File::of_bytes(seed.bytes.clone()).unwrap()).unwrap().unwrap();
    version.minor.into()
}

const SOURCE: &str = "package main\n\nfunc main() { println(len(\"a\")) }\n";

/// A reduced program as if it could be loaded anywhere: addresses in its module data stand in relocations alone.
fn relocated(reduced: &[u8]) -> Vec<u8> {
    let elf = File::of_bytes(reduced.to_vec()).unwrap();
    let (module, loaded) = (elf.section(".noptrdata").unwrap(), elf.loaded().last().unwrap());
    let mut bytes = reduced.to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let (table, at) = (bytes.len(), module.offset as usize);
    for word in (at..at + module.size as usize).step_by(8) {
        let value = u64::from_le_bytes(bytes[word..word + 8].try_into().unwrap());
        if value >= 1 << 16 {
            bytes[word..word + 8].fill(0);
            let address = module.address + (word - at) as u64;
            bytes.extend([address, 8, value].into_iter().flat_map(u64::to_le_bytes));
        }
    }
    let (dynamic, size) = (bytes.len(), (bytes.len() - table) as u64);
    bytes.extend([7, loaded.address + table as u64, 8, size, 0, 0].into_iter().flat_map(u64::to_le_bytes));
    // It may lie anywhere; the first program header, which is of text without bytes, becomes the dynamic table's.
    bytes[0x10] = 3;
    bytes[64] = 2;
    let len = bytes.len() as u64;
    for (field, value) in [(64 + 8, dynamic as u64), (64 + 32, 48), (120 + 32, len), (120 + 40, len)] {
        bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A few functions, variables and notes, in forms that linkers have, as small as they come.
fn natives() -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz_smoke");
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("native.c");
    std::fs::write(&source, NATIVE).unwrap();
    let forms: [&[&str]; 4] = [&["-static"], &["-static", "-s"], &["-shared", "-fPIC"], &["-static-pie", "-fPIE"]];
    let build = |(number, form): (usize, &&[&str])| {
        let program = folder.join(format!("native-{number}"));
        let mut cc = Command::new("cc");
        cc.args(["-nostdlib", "-O1", "-fno-asynchronous-unwind-tables", "-Wl,--build-id", "-Wl,-z,noseparate-code"]);
        let built = cc.args(*form).arg("-o").arg(&program).arg(&source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Seed::of(std::fs::read(program).unwrap())
    };
    forms.iter().enumerate().map(build).collect()
}

const NATIVE: &str = r#"
__attribute__((section(".gnu_debuglink"))) const char link[] = "native.debug\0\0\0\0abc";
__attribute__((noinline)) int one(int n) { return n * 3; }
__attribute__((noinline)) static int two(int n) { return one(n) + 7; }
int (*table[])(int) = {one, two, one};
void _start(void) { for (;;) table[two(1) % 3](5); }
"#;

/// Tries seeds and their mutations for as long as is asked: how many, and how many of them said more than nothing.
fn tried(target: &str, whole: &[Seed], small: &[Seed], run: fn(Vec<u8>) -> u64) {
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let only = variable("FUZZ_SEED");
    let (start, mut runs, mut read) = (Instant::now(), 0_u64, 0_u64);
    for number in only.map_or(variable("FUZZ_FROM").unwrap_or(0)..u64::MAX, |only| only..only + 1) {
        let mut numbers = Numbers(number);
        let is_whole = numbers.below(WHOLE) == 0 && !whole.is_empty();
        let seeds = if is_whole { whole } else { small };
        let bytes = seeds[numbers.below(seeds.len())].mutated(&mut numbers);
        let began = Instant::now();
        let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(bytes))) else {
            panic!("{target} failed with FUZZ_SEED={number}");
        };
        if began.elapsed() > Duration::from_secs(5) {
            eprintln!("{target}: FUZZ_SEED={number} took {:?}", began.elapsed());
        }
        runs += 1;
        if runs.is_multiple_of(1_000_000) {
            eprintln!("{target}: {runs} inputs in {:?}, up to FUZZ_SEED={number}", start.elapsed());
        }
        read += u64::from(outcome > 0);
        if start.elapsed() >= time() {
            break;
        }
    }
    eprintln!("{target}: {runs} inputs, of {read} something was read");
    assert!(runs > 0);
}

/// Check that no damage of a program leads the reader of its tables astray: no panic, no endless walk, whatever is said.
#[test]
fn damaged_programs_are_read_in_part_or_refused() {
    let whole = [Seed::build("exe"), Seed::build("pie")];
    let (program, minor) = (&whole[0].bytes, minor_of(&whole[0]));
    let mut small = kept();
    let reduced = |count, slack| reduce::reduced(program, minor, count, slack);
    small.extend([48, 8].map(|count| Seed::of(reduced(count, reduce::AMPLE))));
    for seed in whole.iter().chain(&small) {
        assert!(matches!(fuzz::program(seed.bytes.clone()), Read::Named(64..)), "a whole program is read");
    }
    let mut tight: Vec<_> = [12, 4].map(|count| reduced(count, TIGHT)).into();
    tight.extend(kept().iter().map(|seed| reduce::reduced(&seed.bytes, minor_of(seed), 3, TIGHT)));
    tight.push(relocated(&tight[1]));
    let tight: Vec<_> = tight.into_iter().map(Seed::of).collect();
    for seed in &tight {
        assert!(matches!(fuzz::program(seed.bytes.clone()), Read::Named(32..)), "{} bytes", seed.bytes.len());
    }
    if are_written("go_tables", &tight) {
        return;
    }
    let run = |bytes| if let Read::Named(frames) = fuzz::program(bytes) { frames } else { 0 };
    small.extend(tight.into_iter().chain(corpus("go_tables", run)));
    tried("programs", &whole, &small, run);
}

/// Check that no damage of an ELF file leads those astray who ask it for names.
#[test]
fn damaged_files_are_read_in_part_or_refused() {
    let mut small = natives();
    let run = |bytes| u64::from(elf::fuzz::file(bytes));
    assert!(small.iter().all(|seed| run(seed.bytes.clone()) > 0), "whole files are read");
    if are_written("elf", &small) {
        return;
    }
    small.extend(corpus("elf", run));
    tried("files", &[], &small, run);
}
