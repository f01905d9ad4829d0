//! The fuzz targets without a fuzzer: each entry point, over its seeds, what coverage-guided runs found (`tests/fuzz/corpus`), and a deterministic stream of
//! mutations of both.
//!
//! `FUZZ_SECONDS` is the time that the mutations take, 2 by default. A failure prints the input, in hexadecimal, that failed.

#![expect(clippy::unwrap_used, clippy::print_stderr, clippy::panic, reason = "a test fails by panicking and says why")]

#[path = "../../tests/fuzz/corpus.rs"]
mod corpus;
#[path = "suite/sample.rs"]
mod sample;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use profiler_proto::folded::{self, Tags};
use profiler_proto::{fuzz, otlp, pprof};

/// How long the mutations may take altogether.
fn time() -> Duration {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(2.0, |text| text.parse().unwrap());
    Duration::from_secs_f64(seconds)
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

/// Changes `input` in one of the ways that lead parsers astray.
fn mutate(input: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let position = numbers.below(input.len());
    match numbers.below(8) {
        0 if !input.is_empty() => input[position] ^= 1 << numbers.below(8),
        1 if !input.is_empty() => input[position] = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5)],
        2 if !input.is_empty() => _ = input.remove(position),
        3 => input.insert(position, numbers.next() as u8),
        4 => input.truncate(position),
        5 => {
            let end = position + numbers.below(input.len() - position);
            let copy = input[position..end].to_vec();
            let target = numbers.below(input.len());
            input.splice(target..target, copy);
        }
        6 => {
            let from = numbers.below(other.len());
            input.splice(position.., other[from..].iter().copied());
        }
        _ => input.extend_from_slice(&[0x0a, 0x00]),
    }
    input.truncate(1 << 14);
}

fn smoke(name: &str, entry: fn(&[u8]), seeds: &[Vec<u8>]) {
    let found = corpus::of(name).into_iter().map(|(_, input)| input);
    let seeds: Vec<_> = seeds.iter().cloned().chain(found).collect();
    let (mut numbers, mut runs) = (Numbers(1), 0_u64);
    let run = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| entry(input))).is_err() {
            panic!("{name} failed on {}", input.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
    };
    seeds.iter().for_each(|seed| run(seed));
    let start = Instant::now();
    while start.elapsed() < time() / 4 {
        let mut input = seeds[numbers.below(seeds.len())].clone();
        let other = &seeds[numbers.below(seeds.len())];
        for _ in 0..=numbers.below(6) {
            mutate(&mut input, other, &mut numbers);
        }
        run(&input);
        runs += 1;
    }
    eprintln!("{name}: {runs} inputs");
    assert!(runs > 0);
}

/// Check that no mutation of a request leads the OTLP decoder astray.
#[test]
fn otlp_holds() {
    let set = sample::checkout();
    let parts = pprof::captures(&set).into_iter().map(|part| otlp::encode_to_vec(&part));
    smoke("otlp", fuzz::otlp, &parts.chain([otlp::encode_to_vec(&set)]).collect::<Vec<_>>());
}

/// Check that no mutation of a file, before or after gzip, leads the pprof decoder astray.
#[test]
fn pprof_holds() {
    let captures = pprof::captures(&sample::checkout());
    let plain = captures.iter().map(pprof::encode_uncompressed);
    smoke("pprof", fuzz::pprof, &plain.chain([pprof::encode(&captures[0])]).collect::<Vec<_>>());
}

/// Check that no mutation of folded stacks leads their decoder astray.
#[test]
fn folded_holds() {
    let set = sample::checkout();
    let text = |tags| folded::encode(&set.profiles[0], &set.dictionary, tags).into_bytes();
    smoke("folded", fuzz::folded, &[text(Tags::Kept), text(Tags::Left), b"{a=\\x2c};\\x3b;b 1\n".to_vec()]);
}

/// Check that no mutation of a dump leads its decoder astray.
#[test]
fn heap_v2_holds() {
    smoke("heap_v2", fuzz::heap_v2, &[include_bytes!("golden/prof_dump.heap").to_vec()]);
}

/// Check that no mutation of a function's name gives one without bounds, or takes for ever.
#[cfg(feature = "demangle")]
#[test]
fn names_hold() {
    let seeds = ["_ZN3Foo3barEv", "_RNvC6_123foo3bar", "malloc"].map(|name| name.as_bytes().to_vec());
    let entry = |bytes: &[u8]| {
        let begun = Instant::now();
        fuzz::names(bytes, || begun.elapsed());
    };
    smoke("names", entry, &seeds);
}
