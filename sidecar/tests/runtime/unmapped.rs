//! Memory that is unmapped between two reads of it, in a process that runs (`tests/go/unmaps`): what is gone is counted, what is shown is what stood there.

use std::time::{Duration, Instant};

use profiler_sidecar::capture::{Bounds, Goroutines, Heap, Source, Variables};
use profiler_sidecar::go::layouts;

use crate::programs;
use crate::running::Running;

const BUCKETS: u64 = 500;
const GOROUTINES: usize = 256;

/// Check a heap and goroutines that stand still, then while they come and go: until each was often whole, and often not.
#[test]
fn memory_that_goes_while_it_is_read_is_counted() {
    let g = layouts::of(24).unwrap().g;
    let offsets = [g.status, g.id, g.sched].map(|offset| offset.to_string());
    let program = programs::build("unmaps", "go1.24.13", &["-ldflags=-s -w"], "amd64");
    let mut running = Running::start(&program, &[&offsets[0], &offsets[1], &offsets[2]]);
    let at: u64 = running.told("where").parse().unwrap();
    let source = Source::find(running.pid()).unwrap();
    let (buckets, memory_rate, goroutines) = (Some(at), Some(at + 64), Some(at + 128));
    let variables = Variables { buckets, memory_rate, goroutines, ..*source.variables() };
    let source = source.with_variables(variables);
    assert!(heap(&source.heap(Bounds::default()).unwrap()) && parked(&source.goroutines(Bounds::default()).unwrap()));

    running.ask("go", "goes");
    let (mut heaps, mut lists) = ([0; 2], [0; 2]);
    let until = Instant::now() + Duration::from_secs(60);
    while heaps.iter().chain(&lists).any(|seen| *seen < 20) {
        heaps[usize::from(heap(&source.heap(Bounds::default()).unwrap()))] += 1;
        // Where the list itself is read, it stands; what it names may be gone.
        lists[usize::from(parked(&source.goroutines(Bounds::default()).unwrap()))] += 1;
        assert!(Instant::now() < until, "in part, whole: {heaps:?} heaps, {lists:?} lists");
    }
}

/// Whether all of it was read; what was is what stood there.
fn heap(heap: &Heap) -> bool {
    let walk = heap.walk;
    assert!(walk.taken + walk.foreign <= BUCKETS && walk.broken <= BUCKETS && heap.records.len() as u64 == walk.taken);
    assert!(walk.broken > 0 || walk.taken + walk.foreign == BUCKETS, "{walk:?}");
    for record in &heap.records {
        // Behind a header, memory may have come anew, in which not all is written yet.
        let (allocated, in_use) = (record.allocated.objects, record.in_use.objects);
        assert!(record.size == 64 && [0, 4].contains(&allocated) && [0, 3, 4].contains(&in_use), "{record:?}");
        assert!(record.stack.len() == 4 && record.stack[1] == record.stack[2], "{record:?}");
    }
    walk.is_whole()
}

/// The same of goroutines.
fn parked(all: &Goroutines) -> bool {
    assert!(all.list.len() <= GOROUTINES && all.broken <= GOROUTINES as u64, "{all:?}");
    for goroutine in &all.list {
        assert!(goroutine.stack.len() <= 1 && (goroutine.id as usize) <= GOROUTINES, "{goroutine:?}");
    }
    all.broken + all.changed == 0 && all.list.len() == GOROUTINES
}
