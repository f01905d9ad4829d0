//! That what was lost is told once, that who ended is not told of again, and that what is shed is given back. Without a kernel side.

use profiler_sidecar_ebpf::Kind as Layout;

use super::*;
use crate::aggregate::Aggregate;
#[cfg(target_env = "gnu")]
use crate::budget::Usage;
use crate::discover::Kind;
use crate::naming::{Location, Stack};
use crate::sample::Sample;

fn target(process: Process) -> Arc<Target> {
    Arc::new(Target::bare(process, Kind::Native))
}

/// A pipeline without a kernel side.
fn pipeline() -> Pipeline {
    let numbers = Numbers { pids: Vec::new(), family: None };
    let table = Table::new(discover::Options::default());
    let desk = Desk::new(table, Namer::new(Kernel::default()), numbers, Arc::default());
    let (teller, counted, lost) = (Teller::default(), bpf::Counters::default(), Loss::default());
    let now = Instant::now();
    Pipeline {
        sampler: None,
        desk,
        teller,
        next_sweep: now,
        next_processors: now,
        next_count: now,
        pace: Pace::new(now),
        is_behind: false,
        is_refused: false,
        counted,
        lost,
    }
}

/// A sample of a process without frames, as the kernel side writes it.
fn record(pid: u32) -> Vec<u8> {
    let head = [Layout::Sample as u32, pid, pid, 0].map(u32::to_ne_bytes).concat();
    let rest = size_of::<profiler_sidecar_ebpf::Sample>() - head.len() + profiler_sidecar_ebpf::TOP;
    [head, vec![0; rest]].concat()
}

/// Check that what an interval without a single profile lost is told by the next one that has some, and only by that one.
#[test]
fn losses_wait_for_a_profile() {
    let mut pipeline = pipeline();
    let mut sampled = |pid: u32| {
        pipeline.desk.take(&record(pid), Instant::now());
        pipeline.desk.settle(Instant::now());
        pipeline.lost.add(Cause::RingFull, 4);
        pipeline.end_of_profiles().map(|interval| (interval.stacks(), interval.lost))
    };
    // No process has this number.
    let nobody = u32::MAX >> 1;
    let lost = |ring_full, gone| {
        let mut lost = Loss::default();
        lost.add(Cause::RingFull, ring_full);
        lost.add(Cause::Gone, gone);
        lost
    };
    assert_eq!([sampled(nobody), sampled(nobody)], [None, None]);
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let told = [(); 2].map(|()| sampled(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told, [Some((1, lost(12, 2))), Some((1, lost(4, 0)))]);
    assert!(pipeline.cost() > Duration::ZERO);
}

/// Check that a sample that comes behind the news of its process's end does not have the kernel side told of it again: nobody would ever take that back.
#[test]
fn who_ended_is_not_told_of_again() {
    let mut pipeline = pipeline();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let exit = [Layout::Exit as u32, pid, pid, 0, 0, 0].map(u32::to_ne_bytes).concat();
    let mut told = |records: &[&[u8]]| {
        records.iter().for_each(|record| pipeline.desk.take(record, Instant::now()));
        pipeline.desk.settle(Instant::now());
        (pipeline.desk.ended(), pipeline.desk.found().len(), pipeline.figures().sampled)
    };
    let sample = record(pid);
    assert_eq!(told(&[&sample]), (vec![], 1, 1));
    assert_eq!(told(&[&exit, &sample]), (vec![pid], 0, 2));
    assert_eq!(told(&[&sample]), (vec![], 0, 3));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Check that memory that was freed in the middle of the heap, where the allocator keeps it, is the system's once the pipeline sheds.
#[test]
#[cfg(target_env = "gnu")]
fn what_is_shed_is_given_back() {
    let mut pipeline = pipeline();
    let resident = || Usage::read().unwrap().resident;
    let mut pages: Vec<Box<[u8]>> = (0..128 << 10).map(|_| vec![1; 1000].into()).collect();
    let mut place = 0;
    // One in a thousand stays, so that no end of the heap is free.
    pages.retain(|_| {
        place += 1;
        place % 1000 == 0
    });
    let before = resident();
    pipeline.shed();
    let after = resident();
    assert!(after + (64 << 20) < before, "{before} bytes before, {after} after");
    drop(pages);
}

/// Check that what was lost of no process in particular is told once, whatever the number of processes, by the one with most stacks.
#[test]
fn losses_are_told_once() {
    let mut aggregate = Aggregate::begin(Moment::now());
    let stack = Stack { frames: [Location::remark("a")].into(), ..Stack::default() };
    for pid in [1, 2, 2, 3] {
        let sample = Sample { tid: pid, period_nanos: 10, ..Sample::default() };
        aggregate.add(Process::new(pid, 1), &sample, &stack).unwrap();
    }
    let windows = aggregate.end(Moment::now());
    let stacks: Vec<u64> = windows.iter().map(Window::stacks).collect();
    let named = |window: Window| {
        let target = target(window.process());
        (window, target)
    };
    let windows: Vec<Named> = windows.into_iter().map(named).collect();
    let mut lost = Loss::default();
    lost.add(Cause::RingFull, 4);
    let told: Vec<Option<i64>> = assembled(&windows, &lost, Granularity::Lines)
        .iter()
        .map(|set| set.dictionary.value_of(set.profiles[0].attributes, "profiler.lost.ring_full")?.as_int())
        .collect();
    let expected: Vec<Option<i64>> = stacks.iter().map(|stacks| (*stacks == 2).then_some(4)).collect();
    assert_eq!(told, expected);
    assert_eq!(told.iter().flatten().sum::<i64>(), 4);
}
