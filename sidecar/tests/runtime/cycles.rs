//! Heap records of a program that collects garbage as fast as it can (`tests/go/cycles`): between any two collections it allocates as often on each of its stacks, so
//! records with different counts are as of different collections.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use profiler_sidecar::capture::heap::{Heap, Record};
use profiler_sidecar::capture::{Bounds, Source, frames};

use crate::running::Running;
use crate::{is_torture, programs};

const LOG: u32 = 9;
/// Bytes of the objects that are allocated on the stacks, and no others.
const SIZE: u64 = 3072;

/// Check that heaps that are not said to be of more than one collection are of one, of the oldest and the newest version; and that such are
/// read while the program goes on.
#[test]
fn heap_records_are_of_one_collection() {
    let captures = if is_torture() { 3000 } else { 100 };
    for version in [programs::VERSIONS[0], programs::VERSIONS[6]] {
        let program = programs::build("cycles", version, &["-ldflags=-s -w"], "amd64");
        let running = Running::start(&program, &[&LOG.to_string()]);
        let source = Source::find(running.pid()).unwrap();
        assert!(source.variables().publishing.is_some());
        let stacks = ours(&source, &source.heap(Bounds::default()).unwrap());
        assert_eq!(stacks.len(), 1 << LOG, "{version}");
        let (mut seen, mut mixed, until) = (BTreeSet::new(), 0, Instant::now() + Duration::from_secs(300));
        while seen.len() < 20 || mixed + seen.len() < captures {
            let heap = source.heap(Bounds::default()).unwrap();
            match one(&heap, &stacks) {
                Ok(counts) => _ = seen.insert(counts),
                Err(counts) => assert!(heap.mixed, "{version}: {counts:?}"),
            }
            mixed += usize::from(heap.mixed);
            assert!(Instant::now() < until, "{version}: {mixed} of many, {} of one", seen.len());
        }
        eprintln!("{version}: heaps of {} collections, {mixed} captures of more than one", seen.len());
    }
}

/// What all records have of these stacks; else what is there.
fn one(heap: &Heap, stacks: &BTreeSet<u64>) -> Result<(i64, i64), BTreeSet<(i64, i64)>> {
    let of_ours = heap.records.iter().filter(|record| stacks.contains(&record.at));
    let counts: BTreeSet<(i64, i64)> =
        of_ours.map(|record| (record.allocated.objects, record.in_use.objects)).collect();
    if counts.len() == 1 { Ok(counts.first().copied().unwrap()) } else { Err(counts) }
}

/// The records of the program's stacks: each by its address, which it keeps.
fn ours(source: &Source, heap: &Heap) -> BTreeSet<u64> {
    let is_ours = |record: &&Record| {
        let places = frames::kept(source.loaded(), &record.stack);
        let mut functions = places.iter().flat_map(|place| place.lines.iter()).map(|frame| &*frame.function);
        record.size == SIZE && functions.any(|function| function == "main.leaf")
    };
    heap.records.iter().filter(is_ours).map(|record| record.at).collect()
}
