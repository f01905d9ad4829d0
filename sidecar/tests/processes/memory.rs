//! Memory of others: exact to the byte, in any number of pieces, and of processes with more mappings than is good for them.

use profiler_sidecar::target::{Fault, Mappings, Piece, Process};

use crate::map_count::{Raised, allowed};
use crate::subject::Subject;

/// Check that what a process says to lie at an address is read there.
#[test]
fn what_lies_there_is_read() {
    let subject = Subject::go(&[]);
    let process = Process::find(subject.pid()).unwrap();
    let address: u64 = subject.said.parse().unwrap();
    let mut bytes = [0; 25];
    process.memory().read_exact(address, &mut bytes).unwrap();
    assert_eq!(&bytes, b"what is known to lie here");
    assert_eq!(process.memory().read_u64(address).unwrap(), u64::from_ne_bytes(*b"what is "));
}

/// Check that of what is not all there the part that is there is read and told exactly: at the end of a mapping, at none, at the end of
/// all addresses, one among hundreds.
#[test]
fn partial_reads_are_told_to_the_byte() {
    let subject = Subject::go(&[]);
    let process = Process::find(subject.pid()).unwrap();
    let maps = String::from_utf8(process.folder().unwrap().read("maps", 1 << 20).unwrap().0).unwrap();
    let ranges: Vec<(u64, u64, bool)> = maps
        .lines()
        .map(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            (hex(start), hex(end), rest.starts_with('r') && !rest.contains("[v"))
        })
        .collect();
    let lonely = ranges.windows(2).find(|pair| pair[0].2 && pair[0].1 < pair[1].0).unwrap();
    let (start, end, _) = lonely[0];
    let memory = process.memory();
    let mut buffer = vec![0; 3 << 20];
    let there = buffer.len().min(usize::try_from(end - start).unwrap()).min(100);
    assert_eq!(memory.read(end - there as u64, &mut buffer).unwrap(), there);
    for nowhere in [end, 0, 8, u64::MAX, u64::MAX - 7, 1 << 63] {
        assert_eq!(memory.read(nowhere, &mut buffer[..16]).unwrap(), 0, "{nowhere:#x}");
        assert!(memory.read_u64(nowhere).is_err());
    }
    assert_eq!(memory.read(start, &mut []).unwrap(), 0);
    let mut buffers = vec![[0_u8; 64]; 400];
    let at = |number: usize| {
        if number % 7 == 3 {
            end + 4096 * number as u64
        } else if number % 7 == 5 {
            end - 10
        } else {
            start
        }
    };
    let mut pieces: Vec<_> = buffers
        .iter_mut()
        .enumerate()
        .map(|(number, buffer)| Piece::new(if number % 7 == 3 { 16 } else { at(number) }, &mut buffer[..]))
        .collect();
    memory.read_many(&mut pieces).unwrap();
    for (number, piece) in pieces.iter().enumerate() {
        let expected = match number % 7 {
            3 => 0,
            5 => 10,
            _ => 64,
        };
        assert_eq!(piece.read, expected, "piece {number}");
    }
}

/// Check that more than one system call's worth is read in one go, and is what the process has.
#[test]
fn large_reads_are_whole() {
    let subject = Subject::go(&[]);
    let process = Process::find(subject.pid()).unwrap();
    let mappings = process.mappings().unwrap();
    let code = mappings.list().iter().find(|mapping| mapping.executable && mapping.is_file()).unwrap();
    let mut read = vec![0; usize::try_from(code.end - code.start).unwrap()];
    process.memory().read_exact(code.start, &mut read).unwrap();
    let file = std::fs::read(crate::subject::go_program()).unwrap();
    let from = usize::try_from(code.offset).unwrap();
    let length = read.len().min(file.len() - from);
    assert!(read[..length] == file[from..from + length]);
}

/// Check that a process with a hundred thousand mappings is read whole, and that of one with more than anybody keeps those that are kept are bounded, which is said.
#[test]
fn a_hundred_thousand_mappings_are_read() {
    // Of the anonymous ones those that can be run are kept, each by itself.
    const WHOLE: usize = 100_000;
    const BEYOND: usize = 280_000;
    const KEPT: usize = 1 << 17;
    let raised = Raised::to(BEYOND + 1000);
    let asked = WHOLE.min(allowed().saturating_sub(530));
    let read = |count: usize| {
        let subject = Subject::go(&["maps", &count.to_string()]);
        Process::find(subject.pid()).unwrap().mappings().unwrap()
    };
    let mappings = read(asked);
    let scan = mappings.scan();
    assert!(scan.lines >= asked && !scan.is_cut && scan.unclear == 0, "{scan:?}");
    assert!(mappings.list().len() >= asked / 2, "{}", mappings.list().len());
    if raised.is_some() {
        let mappings = read(BEYOND);
        assert_eq!((mappings.list().len(), mappings.scan().is_cut), (KEPT, true), "{:?}", mappings.scan());
    }
}

/// Check that a process that dies while its mappings are read, at any of them, is read as far as it was there, and is gone then.
#[test]
fn a_process_that_dies_while_it_is_read_is_gone() {
    for at in [1, 100, 5000] {
        let mut subject = Some(Subject::go(&["maps", "20000"]));
        let process = Process::find(subject.as_ref().unwrap().pid()).unwrap();
        let (folder, mut seen) = (process.folder().unwrap(), 0);
        let scan = Mappings::each(&folder, |line| {
            assert!(line.start < line.end);
            seen += 1;
            if seen == at {
                subject.take().unwrap().end();
            }
            true
        });
        // What the kernel had written before is there to be read.
        assert!(scan.as_ref().map_or_else(Fault::is_gone, |scan| scan.lines == seen), "{scan:?} {seen}");
        assert!((at..at + 2000).contains(&seen), "{seen} of {at}");
        assert!(process.mappings().unwrap_err().is_gone() && !process.is_alive());
        assert!(process.memory().read(0x1000, &mut [0]).unwrap_err().is_gone());
    }
}
