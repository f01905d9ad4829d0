//! That equal samples are one, that totals are true, and that memory is bounded.

use std::sync::Arc;
use std::time::Duration;

use profiler_proto::loss::{Cause, Flaw};

use super::*;
use crate::naming::{Granularity, Kind, Location};

fn one() -> Process {
    Process::new(1, 10)
}

fn sample(tid: u32, labels: &[(&str, &str)]) -> Sample {
    let labels = labels.iter().copied().collect();
    Sample { tid, comm: "work".into(), period_nanos: 100, labels, ..Sample::default() }
}

fn stack(names: &[&str]) -> Stack {
    Stack { frames: names.iter().map(|name| Location::remark(name)).collect(), ..Stack::default() }
}

/// The one window, and its entries as text.
fn told(aggregate: &mut Aggregate) -> (Window, Vec<String>) {
    let window = aggregate.end(Moment::now()).pop().unwrap();
    let entries = window.entries(Granularity::Addresses);
    let text = entries.iter().map(|entry| {
        let names: Vec<&str> = entry.stack.iter().map(|location| location.function()).collect();
        let tags = entry
            .tags
            .map(|tags| tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","));
        format!("{} {}/{} {:?} {}ns ×{}", names.join(";"), entry.tid, entry.name, tags, entry.period_nanos, entry.count)
    });
    let text = text.collect();
    (window, text)
}

/// Check that samples which differ in nothing are one, and that thread, tags, stack and period tell them apart.
#[test]
fn equal_samples_are_one() {
    let mut aggregate = Aggregate::begin(Moment::now());
    let (leaf, root) = (stack(&["leaf", "root"]), stack(&["root"]));
    for (sample, stack) in [
        (sample(1, &[("b", "2"), ("a", "1")]), &leaf),
        (sample(1, &[("a", "1"), ("b", "2")]), &leaf),
        (sample(2, &[]), &leaf),
        (sample(1, &[]), &root),
        (Sample { period_nanos: 50, ..sample(1, &[]) }, &root),
        (Sample { period_nanos: 50, ..sample(1, &[]) }, &root),
    ] {
        aggregate.add(one(), &sample, stack).unwrap();
    }
    let (window, told) = told(&mut aggregate);
    assert_eq!(
        told,
        [
            "root 1/work Some(\"\") 50ns ×2",
            "root 1/work Some(\"\") 100ns ×1",
            "leaf;root 2/work Some(\"\") 100ns ×1",
            "leaf;root 1/work Some(\"a=1,b=2\") 100ns ×2",
        ]
    );
    assert_eq!((window.process(), window.stacks(), window.lost().total()), (one(), 6, 0));
}

/// Check that samples of several processors are one, unless they are to be told apart: in all windows then.
#[test]
fn processors_are_told_if_asked() {
    for (is_asked, expected) in [(false, vec![(None, 3)]), (true, vec![(Some(0), 1), (Some(5), 2)])] {
        let (mut aggregate, root) = (Aggregate::begin(Moment::now()).by_processor(is_asked), stack(&["root"]));
        for _ in 0..2 {
            for cpu in [5, 0, 5] {
                aggregate.add(one(), &Sample { cpu, ..sample(1, &[]) }, &root).unwrap();
            }
            let window = aggregate.end(Moment::now()).pop().unwrap();
            let told: Vec<_> =
                window.entries(Granularity::Addresses).iter().map(|entry| (entry.processor, entry.count)).collect();
            assert_eq!(told, expected);
        }
    }
}

/// Check that entries that were seen as often come by their paths from the root on, leaves last, whichever came first, and that a stack with a number is the one that had it.
#[test]
fn stacks_come_in_the_order_of_their_paths() {
    let place = |address, name: &str| {
        Arc::new(Location {
            address,
            module: None,
            lines: Arc::clone(&Location::remark(name).lines),
            kind: Kind::Native,
        })
    };
    let places = [place(1, "root"), place(2, "other"), place(3, "left"), place(4, "right")];
    let stack = |path: &[usize], number| Stack {
        frames: path.iter().rev().map(|index| Arc::clone(&places[*index])).collect(),
        number,
        ..Stack::default()
    };
    let mut aggregate = Aggregate::begin(Moment::now());
    let stacks = [
        stack(&[1], None),
        stack(&[0, 3, 2], Some(1)),
        stack(&[0, 2], Some(2)),
        stack(&[0, 3], Some(3)),
        stack(&[], Some(3)),
        stack(&[0, 3, 2], None),
        stack(&[0, 2], None),
        stack(&[1], None),
        stack(&[0], None),
    ];
    for stack in stacks {
        aggregate.add(one(), &sample(1, &[]), &stack).unwrap();
    }
    let (_, told) = told(&mut aggregate);
    let paths: Vec<&str> = told.iter().map(|entry| entry.split(' ').next().unwrap()).collect();
    // What was seen less often is first.
    assert_eq!(paths, ["root", "left;right;root", "left;root", "right;root", "other"]);
    let counts: Vec<&str> = told.iter().map(|entry| entry.rsplit('×').next().unwrap()).collect();
    assert_eq!(counts, ["1", "2", "2", "2", "2"]);
}

/// Check that each process has a window of its own, also one that has the pid of another, and that losses are told with the
/// next stacks where there are none.
#[test]
fn processes_are_told_apart() {
    let now = Moment::now();
    let mut aggregate = Aggregate::begin(now);
    let two = Process::new(1, 20);
    aggregate.add(two, &sample(1, &[]), &stack(&["a"])).unwrap();
    aggregate.lose(one(), Cause::RingFull, 3);
    // The clock is set back meanwhile: ten seconds are ten seconds.
    let later = now.later(Duration::from_secs(10), now.wall - Duration::from_secs(3600));
    let windows = aggregate.end(later);
    assert_eq!(
        windows.iter().map(|window| (window.process(), window.duration())).collect::<Vec<_>>(),
        [(two, Duration::from_secs(10))]
    );
    aggregate.add(one(), &sample(1, &[]), &stack(&["a"])).unwrap();
    let windows = aggregate.end(now);
    assert_eq!(
        (windows[0].process(), windows[0].lost().count(Cause::RingFull), windows[0].duration()),
        (one(), 3, Duration::ZERO)
    );
    assert_eq!((windows[0].started_at(), aggregate.bytes()), (later.wall, 0));
    aggregate.lose(two, Cause::RingFull, 1);
    assert_eq!((aggregate.forget(two).total(), aggregate.forget(two).total()), (1, 0));
}

/// Check that memory is bounded whatever comes, that spans go first, then tags, then stacks, and that every one is accounted for.
#[test]
fn what_does_not_fit_is_counted() {
    let mut aggregate = Aggregate::begin(Moment::now());
    let (mut refused, all) = (0, 120_000_u64);
    let stacks: Vec<Stack> = (0..50).map(|number| stack(&[&"deep".repeat(number), "root"])).collect();
    for number in 0..all {
        let id = format!("{:x}", number + 1);
        let labels = [("trace_id", id.as_str()), ("span_id", id.as_str()), ("user", &id[..id.len().min(4)])];
        let stack = &stacks[number as usize % stacks.len()];
        refused += u64::from(aggregate.add(one(), &sample(number as u32 % 700, &labels), stack).is_err());
    }
    let (window, told) = told(&mut aggregate);
    assert!(window.bytes() <= MAX_OF_ONE, "{}", window.bytes());
    assert_eq!((window.stacks() + refused, window.lost().count(Cause::AggregateFull)), (all, refused));
    let entries = window.entries(Granularity::Addresses);
    assert!(entries.iter().any(|entry| entry.span.is_some()) && entries.iter().any(|entry| entry.span.is_none()));
    assert!(window.degraded().count(Flaw::NoContext) > 0 && !told.is_empty());
    assert_eq!(aggregate.stacks(), 0);
}

/// Check that windows of processes without end take no more memory than all may, and that those for which there is none are told.
#[test]
fn windows_without_end_are_bounded() {
    const ALL: u64 = 100_000;
    let mut aggregate = Aggregate::begin(Moment::now());
    let stack = stack(&["a"]);
    let added = (0..ALL as u32).filter(|pid| aggregate.add(Process::new(*pid, 1), &sample(1, &[]), &stack).is_ok());
    let added = added.count() as u64;
    assert!(added > 1000 && aggregate.bytes() <= MAX_BYTES, "{added}, {} bytes", aggregate.bytes());
    let windows = aggregate.end(Moment::now());
    let noted: u64 = windows.iter().map(|window| window.lost().count(Cause::AggregateFull)).sum();
    assert_eq!(
        (windows.len() as u64, added + noted + aggregate.without_window().count(Cause::AggregateFull)),
        (added, ALL)
    );
    assert_eq!((aggregate.bytes(), aggregate.without_window().total()), (0, 0));
}

/// Check that one process that fills its window leaves room for others.
#[test]
fn one_process_leaves_room_for_others() {
    let mut aggregate = Aggregate::begin(Moment::now());
    let fill = |aggregate: &mut Aggregate, process| {
        (0..).find(|number: &u32| {
            aggregate.add(process, &sample(*number, &[]), &stack(&["name".repeat(500).as_str()])).is_err()
        })
    };
    assert!(fill(&mut aggregate, one()).is_some());
    aggregate.add(Process::new(2, 1), &sample(1, &[]), &stack(&["a"])).unwrap();
    for pid in 3..10 {
        fill(&mut aggregate, Process::new(pid, 1));
    }
    assert!(aggregate.bytes <= MAX_BYTES);
    assert!(aggregate.end(Moment::now()).iter().map(Window::bytes).sum::<usize>() <= MAX_BYTES);
}
