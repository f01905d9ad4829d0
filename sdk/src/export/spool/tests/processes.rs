//! Processes that share a folder, one after the other or not; killed in the midst of writing.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::backlog::Taker;
use super::super::folder::{Bounds, Folder};
use super::super::{Pace, Spool};
use super::{Place, again, body, open, records};

/// How often a writer is killed.
const KILLS: usize = 30;
const BOUNDS: Bounds = Bounds { folder: 64 << 20, segment: 64 << 10 };
const PACE: Pace =
    Pace { sync: Duration::from_millis(5), reopen: Duration::from_millis(5), patience: Duration::from_secs(60) };

/// A random number below `bound`.
fn random(bound: u64) -> u64 {
    RandomState::new().hash_one(0_u8) % bound
}

/// Check that all that a killed writer said to be confirmed, and all that it said to be written, comes back as it was and in order;
/// each writer goes on where the one before was killed.
#[test]
fn a_killed_writer_loses_nothing_that_it_had_written() {
    if let Some(path) = Place::of_child() {
        return write_without_end(path);
    }
    let place = Place::new();
    let (mut all, mut confirmed) = (BTreeMap::new(), 0);
    for _ in 0..KILLS {
        let mut child = start("", "processes::a_killed_writer_loses_nothing_that_it_had_written", &place.0);
        let lines = said(&mut child);
        let (kept, synced) = understood(&lines);
        confirmed += u64::from(synced > all.keys().last().map_or(1, |last| last + 1));
        all.extend(kept);
        let folder = open(&place.0, BOUNDS);
        let found = BTreeMap::from_iter(records(&folder));
        assert!(records(&folder).is_sorted_by_key(|(number, _)| *number));
        for (number, index) in &all {
            assert_eq!(found.get(number), Some(&body(*index)), "record {number}");
        }
        // The number of a record that was to be the first of a segment, and was being written at the kill, is not used again.
        let begun = |number: &u64| folder.segments.get(number).is_some_and(|segment| segment.end == *number);
        let lost: Vec<u64> = (1..synced).filter(|number| !found.contains_key(number) && !begun(number)).collect();
        assert!(lost.is_empty(), "{lost:?} of those below {synced}, which were confirmed");
    }
    // Most writers live for several confirmations: that hardly any saw one would say that nothing was tried.
    assert!(confirmed > KILLS as u64 / 4, "only {confirmed} writers confirmed anything");
}

fn write_without_end(path: std::path::PathBuf) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let taker = Taker { name: "collector".into(), forms: vec![1], reads: |_| true };
    let spool = Spool::start(runtime.handle(), path, (BOUNDS, PACE), vec![taker], Box::new(|gone| panic!("{gone:?}")));
    println!("begins");
    let mut waiting = std::collections::VecDeque::new();
    for index in 0.. {
        waiting.push_back((index, spool.append(1, Box::from([]), Bytes::from(body(index))).unwrap()));
        while let Some((index, receipt)) = waiting.pop_front_if(|(_, receipt)| receipt.is_kept()) {
            println!("kept {} {index}", receipt.number());
        }
        println!("synced {}", spool.figures().synced_below);
        std::thread::sleep(Duration::from_micros(random(300)));
    }
}

fn start(script: &str, name: &str, path: &std::path::Path) -> Child {
    again(script, name, path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What a child says until it is killed, some time after it has begun.
fn said(child: &mut Child) -> String {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.trim().ends_with("begins") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the child has ended");
    }
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    std::thread::sleep(Duration::from_micros(random(80_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap().unwrap()
}

/// The records that were written, with what is in them, and the number below which all was confirmed.
fn understood(lines: &str) -> (Vec<(u64, u64)>, u64) {
    let (mut kept, mut synced) = (Vec::new(), 0);
    // The last line may be half of one.
    let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        match *line.split(' ').collect::<Vec<_>>() {
            ["kept", number, index] => kept.push((number.parse().unwrap(), index.parse().unwrap())),
            ["synced", below] => synced = below.parse().unwrap(),
            _ => panic!("{line:?}"),
        }
    }
    (kept, synced)
}

/// Check that a folder in another process's hands is refused, and is free as soon as that one is killed.
#[test]
fn a_process_that_is_killed_frees_the_folder() {
    if let Some(path) = Place::of_child() {
        let _folder = open(&path, BOUNDS);
        println!("begins");
        let _end = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let place = Place::new();
    let mut child = start("", "processes::a_process_that_is_killed_frees_the_folder", &place.0);
    let stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(stdout.lines().map_while(Result::ok).any(|line| line.ends_with("begins")));
    let refusal = Folder::open(&place.0, BOUNDS).unwrap_err().to_string();
    assert!(refusal.contains("another process") && refusal.contains("a folder of its own"), "{refusal}");
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    open(&place.0, BOUNDS);
    assert!(killed.elapsed() < Duration::from_secs(60));
}
