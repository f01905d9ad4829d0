//! Captures of a program that allocates, collects garbage, grows stacks and starts goroutines as fast as it can (`tests/go/churn`).
//!
//! Nothing stops it, so what is read is torn now and then: that is to be noticed and counted, never shown. The program's calls are known, so each
//! stack can be checked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::running::Running;
use crate::{is_torture, programs};
use profiler_sidecar::capture::contention::Kind;
use profiler_sidecar::capture::heap::State;
use profiler_sidecar::capture::profile::{is_system, places_of};
use profiler_sidecar::capture::{Bounds, End, Goroutine, Source, frames};
use profiler_sidecar::go::layouts::status;

/// Check some hundred captures of the oldest and the newest version; ten thousand in `make torture`.
#[test]
fn no_torn_stack_is_shown() {
    for version in ["go1.21.13", "go1.27.0"] {
        churn(version, if is_torture() { 5_000 } else { 150 });
    }
}

fn churn(version: &str, captures: usize) {
    let running = Running::start(&programs::build("churn", version, &["-ldflags=-s -w"], "amd64"), &[]);
    let source = Source::find(running.pid()).unwrap();
    let (mut stacks, mut ended_early, mut changed, mut records) = (0, 0, 0, 0);
    // Until one has published something, allocations since the last collection count, too, and fall out again.
    let until = Instant::now() + Duration::from_secs(60);
    while source.figures().unwrap().collections < 3 {
        assert!(Instant::now() < until, "no garbage is collected");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut highest = HashMap::new();
    for _ in 0..captures {
        let goroutines = source.goroutines(Bounds::default()).unwrap();
        assert_eq!(goroutines.broken, 0, "{version}");
        changed += goroutines.changed;
        let parked = goroutines.list.iter().filter(|goroutine| !goroutine.stack.is_empty());
        for goroutine in parked {
            check(&source, goroutine);
            stacks += 1;
            ended_early += usize::from(goroutine.end != End::Root);
        }

        let heap = source.heap(Bounds::default()).unwrap();
        assert_eq!((heap.walk.broken, heap.walk.foreign), (0, 0), "{version}");
        for record in &heap.records {
            assert!(record.in_use.objects >= 0 && record.in_use.objects <= record.allocated.objects, "{record:?}");
            assert_eq!(record.allocated.bytes, record.allocated.objects * record.size as i64, "{record:?}");
            if heap.state == State::Collected {
                rises(&mut highest, record.at, (record.allocated.objects, record.allocated.bytes), version);
            }
        }
        records += heap.records.len();
        for kind in [Kind::Block, Kind::Mutex] {
            let contention = source.contention(kind, Bounds::default()).unwrap();
            assert_eq!((contention.walk.broken, contention.walk.foreign), (0, 0), "{version}");
            for record in &contention.records {
                let places = frames::kept(source.loaded(), &record.stack);
                let functions = places.iter().flat_map(|place| place.lines.iter()).map(|frame| &*frame.function);
                let of = |package: &str| functions.clone().any(|function| function.starts_with(package));
                assert!(of("main.") || of("runtime."), "{record:?}");
                rises(&mut highest, record.at, (record.count, record.ticks), version);
            }
        }
    }
    // None of some thirty thousand was seen.
    assert!(ended_early * 1000 <= stacks, "{version}: {ended_early} of {stacks} stacks end before their root");
    assert!(stacks > captures && records > captures, "{stacks} stacks, {records} records");
    eprintln!(
        "{version}: {captures} captures: {stacks} stacks, {ended_early} of them not to their root, {changed} goroutines ran on, {records} records"
    );
}

/// What a record counts only ever grows.
fn rises(highest: &mut HashMap<u64, (i64, i64)>, at: u64, now: (i64, i64), version: &str) {
    let before = highest.insert(at, now).unwrap_or_default();
    assert!(now.0 >= before.0 && now.1 >= before.1, "{version}: {before:?}, then {now:?}");
}

/// A goroutine of the program stands in one of its own functions, called as the source says.
fn check(source: &Source, goroutine: &Goroutine) {
    let places = places_of(source, goroutine);
    let names: Vec<&str> = places.iter().flat_map(|place| place.lines.iter()).map(|frame| &*frame.function).collect();
    // However the walk ended, there is no frame that is in no function.
    assert!(!names.is_empty() && places.iter().all(|place| !place.lines.is_empty()), "{goroutine:?}");
    if is_system(source, goroutine, &places) || goroutine.end != End::Root {
        return;
    }
    assert!(goroutine.status != status::RUNNING);
    if names.iter().all(|name| name.starts_with("runtime.")) {
        // It is about to end: `goexit` called `goexit1`.
        return;
    }
    let root = *names.last().unwrap();
    let roots = [
        "main.down",
        "main.churn",
        "runtime.main",
        "main.main.func1",
        "main.churn.func1",
        "main.main.func2",
        "main.main.gowrap1",
        "main.churn.gowrap1",
    ];
    assert!(roots.contains(&root), "{names:?}");
    // Whoever is called by `down` is `down`, or the runtime; from there on there is nobody else.
    let first = names.iter().position(|name| *name == "main.down").unwrap_or(names.len());
    let downs = &names[first..];
    assert!(root != "main.down" || downs.iter().all(|name| *name == "main.down"), "{names:?}");
    assert!(downs.iter().filter(|name| **name == "main.down").count() <= 94, "{names:?}");
    let above = &names[..first];
    assert!(root != "main.down" || above.iter().all(|name| name.starts_with("runtime.")), "{names:?}");
}
