//! How honest the store's estimate of its memory is: compared with what the allocator gave out.
//!
//! A binary of its own, for it counts every allocation of the process.

#![cfg(feature = "serve")]

#[expect(dead_code, reason = "other tests ask for the rest")]
mod counting;

use std::sync::Arc;
use std::time::Duration;

use profiler::serve::Store;
use profiler_proto::model::{Function, Kind, Line, Location, LocationId, Stack};
use profiler_proto::{Profile, ProfileSet, Sample};

/// A set like that of ten busy seconds: 1,000 stacks of 50 frames, out of 3,000 functions with long names.
fn busy(start: u64) -> ProfileSet {
    let mut set = ProfileSet::default();
    let dictionary = &mut set.dictionary;
    let locations: Vec<LocationId> = (0..3000u64)
        .map(|n| {
            let name =
                dictionary.strings.intern_str(&format!("<shop::module_{n}::Type as shop::module::Trait>::method_{n}"));
            let function = dictionary.functions.intern(Function { name, ..Function::default() });
            let lines = Box::from([Line { function, line: 1, column: 0 }]);
            dictionary.locations.intern(Location { address: n, lines, ..Location::default() })
        })
        .collect();
    let kind = Kind::cpu(dictionary, 10_000_000);
    let samples = (0..1000usize).map(|n| {
        let frames = (0..50).map(|depth| locations[(n * 7 + depth * 31) % locations.len()]).collect();
        Sample { stack: dictionary.stacks.intern(Stack { locations: frames }), value: 1, ..Sample::default() }
    });
    let samples = samples.collect();
    set.profiles.push(Profile { kind, time_unix_nanos: start, duration_nanos: 1, samples, ..Profile::default() });
    set
}

/// Check that the estimate is within a fifth of what the allocator gave out, and that the bound on it holds.
#[test]
fn the_estimate_is_near_the_truth() {
    let store = Store::new(Duration::from_secs(900), 8 << 20);
    let before = counting::live();
    store.add(Arc::new(busy(0)));
    let (estimated, taken) = (store.bytes(), counting::live() - before);
    assert!(estimated.abs_diff(taken) * 5 <= taken, "estimated {estimated}, taken {taken}");
    (1..100).for_each(|start| store.add(Arc::new(busy(start))));
    let taken = counting::live() - before;
    assert!(taken <= (8 << 20) * 6 / 5, "bound 8 MiB, taken {taken}");
}
