//! What is done with records, with processes that run here.

use super::*;
use crate::naming::Granularity;
use crate::naming::Kernel;

/// Check that the last sample of a process that is not meant, which comes behind the news of its end, leaves nothing in the kernel side's table; until its
/// number is another one's.
#[test]
fn a_stranger_that_ended_is_not_left_out_again() {
    let numbers = Numbers { pids: vec![1], family: None };
    let table = Table::new(discover::Options::default());
    let mut desk = Desk::new(table, Namer::new(Kernel::default()), numbers, Arc::default());
    let (pid, now) = (77, Instant::now());
    let mut told = |event: Option<Event>| {
        event.iter().for_each(|event| desk.happened(event, now));
        desk.sample(Box::new(Sample { pid, ..Sample::default() }), now);
        (desk.ended(), desk.left_out())
    };
    assert_eq!([told(None), told(None)], [(vec![], vec![pid]), (vec![], vec![])]);
    assert_eq!([told(Some(Event::Exit { pid })), told(None)], [(vec![pid], vec![]), (vec![], vec![])]);
    assert_eq!(told(Some(Event::Fork { pid: 5, child: pid })), (vec![], vec![pid]));
    assert_eq!(desk.figures().left_out, 5);
}

/// Check that samples of a process that come after it was found to have ended have names all the same, until the end of the interval that follows; then nothing of
/// it is kept.
#[test]
fn the_last_samples_of_a_process_have_names() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let (pid, now) = (child.id(), Instant::now());
    let process = Process::find(pid).unwrap();
    let is_program = |mapping: &crate::target::Mapping| mapping.executable && mapping.is_file();
    // Until exec it is a copy of this one.
    let code = loop {
        let mappings = process.mappings().unwrap();
        let program = mappings.list().iter().find(|mapping| is_program(mapping));
        let is_sleep = |mapping: &&crate::target::Mapping| mapping.path().0.ends_with("sleep");
        if let Some(mapping) = program.filter(is_sleep) {
            break mapping.start;
        }
    };
    let numbers = Numbers { pids: vec![pid], family: None };
    let table = Table::new(discover::Options::default());
    let mut desk = Desk::new(table, Namer::new(Kernel::default()), numbers, Arc::default());
    desk.look_around(now);
    let files = |desk: &mut Desk, address: u64| {
        desk.sample(Box::new(Sample { pid, user: vec![address], ..Sample::default() }), now);
        desk.name(now);
        let windows = desk.end(Moment::now());
        let entries = windows[0].0.entries(Granularity::Addresses);
        entries[0].stack[0].module.as_ref().map(|module| module.path.to_string())
    };
    let file = files(&mut desk, code).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    desk.sweep(usize::MAX, now);
    assert!(desk.vanished.contains(&process));
    assert_eq!([files(&mut desk, code + 8), files(&mut desk, code + 16)], [Some(file.clone()), Some(file)]);
    assert_eq!(files(&mut desk, code + 24), None);
}

/// Check that a process of a family whose birth was not told, and which was left out by then, is left out no more once that is made good.
#[test]
fn a_birth_that_was_missed_is_made_good() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let (pid, now, family) = (child.id(), Instant::now(), Family::of(std::process::id()));
    let takes = family.clone();
    let choose = Box::new(move |candidate: &discover::Candidate<'_>| takes.takes(candidate.pid));
    let table = Table::new(discover::Options { choose, ..discover::Options::default() });
    let numbers = Numbers { pids: Vec::new(), family: Some(family.clone()) };
    let mut desk = Desk::new(table, Namer::new(Kernel::default()), numbers, Arc::default());
    desk.look_around(now);
    let sample = || Box::new(Sample { pid, ..Sample::default() });
    desk.sample(sample(), now);
    assert_eq!((desk.left_out(), desk.figures().sampled), (vec![pid], 0));
    desk.doubt();
    assert!((0..MOST_CALLS * WORK).any(|_| {
        desk.settle(now);
        family.takes(pid).is_ok()
    }));
    desk.sample(sample(), now);
    assert_eq!((desk.ended().contains(&pid), desk.figures().sampled), (true, 1));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Check that a sample of a program that began before its process did is of another process, which had the number before, and of nobody who is known.
#[test]
fn who_had_the_number_before_is_another_process() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let (pid, now) = (child.id(), Instant::now());
    let numbers = Numbers { pids: Vec::new(), family: None };
    let table = Table::new(discover::Options::default());
    let mut desk = Desk::new(table, Namer::new(Kernel::default()), numbers, Arc::default());
    desk.look_around(now);
    let process = Process::find(pid).unwrap();
    let start = clock::earliest_start_nanos(process.start_time()).unwrap();
    assert!(start > 0);
    // As if the kernel side had another number for it by now.
    let (target, now_at) = (desk.table.visit(pid, now).unwrap(), start + 10_000_000);
    assert!(desk.programs.of(now_at, &target, || Some(now_at)).is_some());
    for (program, gone) in [(now_at, 0), (start + 1_000_000, 0), (start - 1_000_000, 1)] {
        desk.sample(Box::new(Sample { pid, program, ..Sample::default() }), now);
        assert_eq!(desk.figures().gone, gone, "{program} of {start}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
