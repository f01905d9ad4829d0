//! The fuzz target of Go's tables on stable Rust: real programs, and a deterministic stream of mutations of them.
//!
//! Most inputs are mutations of small files: the first functions of those programs, in which a mutation seldom misses what is read. `FUZZ_SECONDS` is the time that it takes, 2 by default; `FUZZ_FROM` where the stream begins, so that several can run side by
//! side. A failure prints the seed that failed; `FUZZ_SEED` tries that one alone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking and says why")]

#[path = "go_symbols/reduce.rs"]
mod reduce;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use profiler_sidecar::elf::File;
use profiler_sidecar::go::BuildInfo;
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

/// Files that are kept in the repository: of versions that cannot be had everywhere, and whatever was found.
fn kept() -> Vec<Seed> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = std::fs::read_dir(tests.join("go_symbols/fixtures")).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "elf")).collect();
    files.sort();
    files.iter().map(|path| Seed::of(std::fs::read(path).unwrap())).collect()
}

/// Which Go 1.X built it.
fn minor_of(seed: &Seed) -> u32 {
    let build = BuildInfo::read(&File::of_bytes(seed.bytes.clone()).unwrap()).unwrap().unwrap();
    build.version.minor.into()
}

const SOURCE: &str = "package main\n\nfunc main() { println(len(\"a\")) }\n";

/// Check that no damage of a program leads the reader of its tables astray: no panic, no endless walk, whatever is said.
#[test]
fn damaged_programs_are_read_in_part_or_refused() {
    let whole = [Seed::build("exe"), Seed::build("pie")];
    let mut small = kept();
    small.extend([48, 8].map(|count| Seed::of(reduce::reduced(&whole[0].bytes, minor_of(&whole[0]), count))));
    for seed in whole.iter().chain(&small) {
        assert!(matches!(fuzz::program(seed.bytes.clone()), Read::Named(64..)), "a whole program is read");
    }
    let variable = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let only = variable("FUZZ_SEED");
    let (start, mut runs, mut named) = (Instant::now(), 0_u64, 0_u64);
    for number in only.map_or(variable("FUZZ_FROM").unwrap_or(0)..u64::MAX, |only| only..only + 1) {
        let mut numbers = Numbers(number);
        let seeds = if numbers.below(WHOLE) == 0 { &whole[..] } else { &small[..] };
        let bytes = seeds[numbers.below(seeds.len())].mutated(&mut numbers);
        let began = Instant::now();
        let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| fuzz::program(bytes))) else {
            panic!("failed with FUZZ_SEED={number}");
        };
        if began.elapsed() > Duration::from_secs(5) {
            eprintln!("FUZZ_SEED={number} took {:?}", began.elapsed());
        }
        runs += 1;
        if runs.is_multiple_of(1_000_000) {
            eprintln!("{runs} inputs in {:?}, up to FUZZ_SEED={number}", start.elapsed());
        }
        named += u64::from(matches!(outcome, Read::Named(_)));
        if start.elapsed() >= time() {
            break;
        }
    }
    eprintln!("programs: {runs} inputs, {named} with names");
    assert!(runs > 0);
}
