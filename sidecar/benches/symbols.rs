//! How fast, and in how much memory, Go's tables of a program are read: what the row `sidecar-symbols` of `make measure` runs.
//!
//! In: the path of a Go program. Out: a line of JSON. *Ready* is from opening the file until its first function has a name; then every address that
//! is asked for is new, then the same ones are asked for again and again. One thread.

#![expect(clippy::print_stdout, reason = "it is what this program is for")]

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_sidecar::elf;
use profiler_sidecar::go::{Call, Program};

/// So many addresses are asked for: more than there are in profiles of a large service.
const ADDRESSES: u64 = 20_000;
/// Those that are asked for again and again: the places of a few hundred stacks.
const REPEATED: usize = 2048;
const LONG_ENOUGH: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    // Tools that run all benches of a package name no file.
    let Some(path) = std::env::args_os().nth(1).filter(|path| !path.to_string_lossy().starts_with("--")) else {
        println!("usage: symbols PROGRAM");
        return Ok(());
    };
    let (before, began) = (resident()?, Instant::now());
    let elf = Arc::new(elf::File::open(File::open(path)?)?);
    let program = Program::open(elf)?.ok_or("it is no Go program")?;
    let text = program.text();
    let step = (text.end - text.start) / ADDRESSES;
    let first = program.frames(text.start + step * ADDRESSES / 2, Call::Interrupted);
    let ready = began.elapsed();
    let ready_bytes = resident()?.saturating_sub(before);
    if first.is_empty() {
        return Err("an address in the middle of the text has no name".into());
    }
    let addresses: Vec<u64> = (0..ADDRESSES).map(|number| text.start + step * number).collect();
    let began = Instant::now();
    let named = addresses.iter().filter(|pc| !program.frames(**pc, Call::Interrupted).is_empty()).count();
    let new = addresses.len() as f64 / began.elapsed().as_secs_f64();
    let all_bytes = resident()?.saturating_sub(before);
    let often: Vec<u64> = addresses.iter().copied().step_by(8).take(REPEATED).collect();
    println!(
        "{{\"ready_ms\": {}, \"ready_bytes\": {ready_bytes}, \"named\": {named}, \"new\": {new}, \"repeated\": {}, \"all_bytes\": {all_bytes}}}",
        ready.as_secs_f64() * 1e3,
        repeated(&program, &often),
    );
    Ok(())
}

/// Look-ups a second of addresses that were asked for before.
fn repeated(program: &Program, addresses: &[u64]) -> f64 {
    let ask = || addresses.iter().for_each(|pc| drop(black_box(program.frames(*pc, Call::Interrupted))));
    ask();
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < LONG_ENOUGH {
        ask();
        rounds += 1;
    }
    f64::from(rounds) * addresses.len() as f64 / began.elapsed().as_secs_f64()
}

/// `VmRSS` (proc_pid_status(5)).
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the status has no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
