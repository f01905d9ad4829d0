//! Files and processes that give no answer: the thread that samples goes on.

use std::process::Command;
use std::time::{Duration, Instant};

use profiler_sidecar::naming::{Location, Namer};
use profiler_sidecar::sample::Sample;
use profiler_sidecar::target::Process;

use super::build::{Running, c, library, place};
use super::fuse::{Disk, FLUSH};

fn at(namer: &mut Namer, process: Process, address: u64) -> std::sync::Arc<Location> {
    let sample = Sample { user: vec![address], ..Sample::default() };
    std::sync::Arc::clone(&namer.name(process, &sample, Instant::now()).frames[0])
}

/// Check that code of a library on a disk that hangs is named by file and address, that everything else has its names as ever, that however many
/// ask, one thread waits, and that the names are there once the disk answers.
#[test]
fn a_library_on_a_disk_that_hangs_stops_nothing() {
    let place = place("disk");
    std::fs::create_dir_all(&place).unwrap();
    let Some(disk) = Disk::mount(&place, std::fs::read(library("hanging")).unwrap()) else {
        return println!("left out: mounts are not permitted here");
    };
    let program = c("subject.c", &["-O1"]);
    let mut both = [(); 2].map(|()| {
        let mut running = Running::start(Command::new(&program).arg(disk.file()));
        let [inner, ..] = [(); 5].map(|()| running.address());
        running.write("\n");
        let work = running.address();
        (running, inner, work)
    });
    disk.hang(|_| true);
    let mut namer = Namer::default();
    for (running, inner, work) in &mut both {
        let process = running.process();
        let samples = [*work, *inner].map(|address| Sample { user: vec![address], ..Sample::default() });
        namer.learn(process, &samples.iter().collect::<Vec<_>>(), Instant::now());
        for _ in 0..100 {
            let in_library = at(&mut namer, process, *work);
            assert!(in_library.function().starts_with("file+0x"), "{in_library:?}");
            assert_eq!(in_library.module.as_ref().unwrap().path.as_ref(), disk.file().to_str().unwrap());
            assert_eq!(at(&mut namer, process, *inner).function(), "inner");
        }
        assert_eq!(namer.away(), 1);
    }
    assert!(namer.stats().unanswered >= 200, "{:?}", namer.stats());
    disk.go_on();
    let until = Instant::now() + Duration::from_secs(60);
    for (running, _, work) in &mut both {
        while at(&mut namer, running.process(), *work).function() != "hanging" {
            assert!(Instant::now() < until, "no name came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // The processes end before the disk does.
    drop(both);
    assert_eq!(namer.away(), 0);
}

/// Check that a library on a disk that hangs is closed by no thread that waits for another disk, when more binaries come than are kept open.
#[test]
fn what_hangs_when_it_is_closed_stops_nothing() {
    let (place, copies) = (place("closing"), place("copies"));
    [&place, &copies].iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    let Some(disk) = Disk::mount(&place, std::fs::read(library("closing")).unwrap()) else {
        return println!("left out: mounts are not permitted here");
    };
    let program = c("subject.c", &["-O1"]);
    let start = |program: &std::path::Path| {
        let mut running = Running::start(Command::new(program).arg(disk.file()));
        let [inner, ..] = [(); 5].map(|()| running.address());
        running.write("\n");
        let work = running.address();
        (running, inner, work)
    };
    let mut all: Vec<_> = (0..40)
        .map(|number| {
            let copy = copies.join(number.to_string());
            std::fs::copy(&program, &copy).unwrap();
            start(&copy)
        })
        .collect();
    let mut namer = Namer::default();
    let (first, _, work) = &all[0];
    assert_eq!(at(&mut namer, first.process(), *work).function(), "closing");
    disk.hang(|_| true);
    for (running, inner, _) in &all {
        assert_eq!(at(&mut namer, running.process(), *inner).function(), "inner");
    }
    assert_eq!((namer.stats().unanswered, namer.away()), (0, 1), "one thread closes it");
    disk.go_on();
    let until = Instant::now() + Duration::from_secs(60);
    while namer.away() > 0 {
        assert!(Instant::now() < until, "it is not closed");
        std::thread::sleep(Duration::from_millis(1));
    }
    all.clear();
}

/// Check that who waits to close a file names all others on its disk meanwhile: the last one who closes a file that was deleted waits until the disk has taken back its room.
#[test]
fn what_is_slow_to_close_lets_no_other_wait() {
    const FILES: u64 = 40;
    let place = place("slow");
    std::fs::create_dir_all(&place).unwrap();
    let Some(disk) = Disk::mount(&place, std::fs::read(library("slow")).unwrap()) else {
        return println!("left out: mounts are not permitted here");
    };
    let program = c("subject.c", &["-O1"]);
    let all: Vec<_> = (1..=FILES)
        .map(|number| {
            let mut running =
                Running::start(Command::new(&program).arg(disk.file().with_file_name(format!("file{number}"))));
            let [_, ..] = [(); 5].map(|()| running.address());
            running.write("\n");
            let work = running.address();
            (running, work)
        })
        .collect();
    let mut namer = Namer::default();
    disk.hang(|request| request == FLUSH);
    for (running, work) in &all {
        assert_eq!(at(&mut namer, running.process(), *work).function(), "slow");
    }
    assert_eq!((namer.stats().unanswered, namer.away()), (0, 1), "one thread closes");
    disk.go_on();
    let until = Instant::now() + Duration::from_secs(60);
    while namer.away() > 0 {
        assert!(Instant::now() < until, "it is not closed");
        std::thread::sleep(Duration::from_millis(1));
    }
}
