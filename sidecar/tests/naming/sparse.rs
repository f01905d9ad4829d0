//! Programs whose files are larger than any memory, though there is next to nothing in them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_sidecar::naming::{BuildId, Kind, Location, Namer};
use profiler_sidecar::sample::Sample;

use super::build::{Running, c, go, place, run, versions};

/// More than 32 bits count.
const LENGTH: &str = "5G";
/// More than the names of one function take, many times less than the file.
const MOST: usize = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(60);

/// A program with these bytes and nothing behind them, up to its length. Others write it: who starts a process here would hold it open, and it could not be run.
fn sparse(name: &str, bytes: &[u8]) -> PathBuf {
    let (short, program) = (place(&format!("{name}.short")), place(name));
    std::fs::write(&short, bytes).unwrap();
    run(Command::new("cp").args([&short, &program]));
    run(Command::new("truncate").args(["--size", LENGTH]).arg(&program));
    run(Command::new("chmod").arg("755").arg(&program));
    std::fs::remove_file(short).unwrap();
    program
}

/// What is at an address that the program prints, and how many bytes of names there are then.
fn named(program: &Path, arguments: &[&str]) -> (Arc<Location>, usize) {
    let mut namer = Namer::default();
    let location = named_by(&mut namer, program, arguments);
    (location, namer.bytes())
}

/// The same by a namer that may have named others before.
fn named_by(namer: &mut Namer, program: &Path, arguments: &[&str]) -> Arc<Location> {
    let mut running = Running::start(Command::new(program).args(arguments));
    let (address, process) = (running.address(), running.process());
    let until = Instant::now() + DEADLINE;
    loop {
        let (sample, unanswered) = (Sample { user: vec![address], ..Sample::default() }, namer.stats().unanswered);
        let stack = namer.name(process, &sample, Instant::now());
        // On a busy machine the second that is given to a file may be over before it was read.
        if namer.stats().unanswered == unanswered {
            return stack.frames[0].clone();
        }
        assert!(Instant::now() < until, "{} gives no answer", program.display());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Check that such programs have their names, in little memory, and that one is told apart by its contents that has no build id.
#[test]
fn a_program_of_five_gigabytes_is_named_like_a_small_one() {
    let small = c("subject.c", &["-O1", "-Wl,--build-id=none"]);
    let program = sparse("sparse-c", &std::fs::read(&small).unwrap());
    let (location, bytes) = named(&program, &[]);
    assert!(location.function() == "inner" && bytes < MOST, "{bytes} {location:?}");
    let id = |location: &Location| location.module.as_ref().unwrap().build_ids[0].clone();
    let (other, _) = named(&small, &[]);
    assert_eq!((id(&location).0, id(&other).0), (BuildId::Hash, BuildId::Hash));
    assert_ne!(id(&location).1, id(&other).1);
    std::fs::remove_file(program).unwrap();

    let small = go(versions()[1], &["-ldflags=-s -w"]);
    let program = sparse("sparse-go", &std::fs::read(&small).unwrap());
    let (location, bytes) = named(&program, &["wait"]);
    assert_eq!((location.function(), location.kind), ("main.framed", Kind::Go));
    assert!(bytes < MOST, "{bytes}");
    std::fs::remove_file(program).unwrap();
}

/// Check that a table of symbols which claims four gigabytes of such a file is not read: the function is named by file and address.
#[test]
fn a_table_of_four_gigabytes_is_refused() {
    let mut bytes = std::fs::read(c("subject.c", &["-O1"])).unwrap();
    let header = symbol_table(&bytes);
    bytes[header + SIZE..][..8].copy_from_slice(&(4_u64 << 30).to_le_bytes());
    let program = sparse("sparse-table", &bytes);
    let (location, held) = named(&program, &[]);
    assert!(location.function().starts_with("sparse-table+0x") && held < MOST, "{held} {location:?}");
    std::fs::remove_file(program).unwrap();
}

/// Check that of programs that come one after the other, each with a table of symbols as large as any that is read, the first have their names, not all of them at once,
/// and those with small tables at any time.
#[test]
fn large_tables_of_many_programs_wait_for_each_other() {
    let small = c("subject.c", &["-O1"]);
    let mut bytes = std::fs::read(&small).unwrap();
    let header = symbol_table(&bytes);
    bytes[header + SIZE..][..8].copy_from_slice(&(24_u64 * 4_000_000).to_le_bytes());
    let mut namer = Namer::default();
    let large: Vec<bool> = (0..8)
        .map(|number| {
            let program = sparse(&format!("sparse-large-{number}"), &bytes);
            let location = named_by(&mut namer, &program, &[]);
            std::fs::remove_file(program).unwrap();
            let is_named = location.function() == "inner";
            assert!(is_named || location.function().starts_with("sparse-large-"), "{location:?}");
            is_named
        })
        .collect();
    assert!(large[0] && large[1] && large.contains(&false), "{large:?}");
    assert_eq!(named_by(&mut namer, &small, &[]).function(), "inner");
}

/// Where a section's size stands in its header. Source: elf(5), "Section header (Shdr)".
const SIZE: usize = 0x20;

/// Where the header of `.symtab` is. Source: elf(5), `e_shoff`, `e_shentsize`, `e_shnum`, `SHT_SYMTAB`.
fn symbol_table(elf: &[u8]) -> usize {
    let word = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let headers = (0..half(0x3c)).map(|number| word(0x28) + number * half(0x3a));
    headers.into_iter().find(|header| elf[header + 4..header + 8] == [2, 0, 0, 0]).unwrap()
}
