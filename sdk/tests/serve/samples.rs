//! Profile sets as the sampler makes them, and a store that holds two.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use profiler::serve::{Snapshot, Store};
use profiler_proto::loss::STACKS;
use profiler_proto::model::{Contention, Function, Kind, Line, Location, Stack};
use profiler_proto::{Profile, ProfileSet, Sample};

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A stack `root;…;leaf`, its weight, its tags.
pub(crate) type Row<'a> = (&'a str, i64, &'a [(&'a str, &'a str)]);

/// A CPU profile at 100 Hz in which each stack weighs one period.
pub(crate) fn set(start: u64, seconds: u64, rows: &[Row<'_>]) -> ProfileSet {
    let mut set = ProfileSet::default();
    set.resource.set("process.executable.path", "/usr/bin/shop");
    let dictionary = &mut set.dictionary;
    let samples = rows.iter().map(|(path, value, tags)| {
        let locations = path.rsplit(';').map(|name| {
            let name = dictionary.strings.intern_str(name);
            let function = dictionary.functions.intern(Function { name, ..Function::default() });
            let lines = Box::from([Line { function, line: 0, column: 0 }]);
            let address = 0x1000 + dictionary.functions.len() as u64;
            dictionary.locations.intern(Location { address, lines, ..Location::default() })
        });
        let locations = locations.collect();
        let stack = dictionary.stacks.intern(Stack { locations });
        let tags: Vec<_> = tags.iter().map(|(key, value)| dictionary.attribute(key, *value)).collect();
        Sample { stack, attributes: dictionary.attribute_set(tags), value: *value, ..Sample::default() }
    });
    let samples = samples.collect();
    let stacks = dictionary.attribute(STACKS, rows.iter().map(|row| row.1).sum::<i64>());
    let profile = Profile {
        kind: Kind::cpu(dictionary, 10_000_000),
        time_unix_nanos: start * 1_000_000_000,
        duration_nanos: seconds * 1_000_000_000,
        attributes: dictionary.attribute_set([stacks]),
        samples,
    };
    set.profiles.push(profile);
    set
}

/// What one sample of the heap says: stack, blocks in use, bytes in use, tags. Twice as much was allocated.
pub(crate) type Block<'a> = (&'a str, i64, i64, &'a [(&'a str, &'a str)]);

/// A heap's four profiles, one sample in 512 KiB, at an allocator that gave out 1,000,000 bytes.
pub(crate) fn heap(start: u64, seconds: u64, blocks: &[Block<'_>]) -> ProfileSet {
    let rows: Vec<Row<'_>> = blocks.iter().map(|(path, _, bytes, tags)| (*path, *bytes, *tags)).collect();
    let mut set = set(start, seconds, &rows);
    let figures = [("jemalloc.allocated", 1_000_000_i64), ("jemalloc.resident", 2_000_000)];
    let figures = figures.map(|(key, value)| set.dictionary.attribute(key, value));
    let (attributes, kinds) = (set.dictionary.attribute_set(figures), Kind::heap(&mut set.dictionary, 1 << 19));
    let template = Profile { attributes, ..set.profiles.remove(0) };
    set.profiles.extend(kinds.into_iter().zip(0..).map(|(kind, place)| {
        let mut profile = Profile { kind, ..template.clone() };
        for (sample, (_, objects, bytes, _)) in profile.samples.iter_mut().zip(blocks) {
            sample.value = [2 * objects, 2 * bytes, *objects, *bytes][place];
        }
        profile
    }));
    set
}

/// What Go's runtime keeps at a moment: at each of two stacks so many goroutines, or waits of 1 ms each.
pub(crate) fn runtime(what: Snapshot, at: u64, times: i64) -> ProfileSet {
    let rows: &[Row<'_>] = &[("main.main;main.serve", times, &[]), ("main.main;runtime.gopark", times, &[])];
    let mut set = set(at, 0, rows);
    let template = set.profiles.remove(0);
    let dictionary = &mut set.dictionary;
    let kinds = match what {
        Snapshot::Block => Kind::contention(dictionary, Contention::Block).to_vec(),
        Snapshot::Mutex => Kind::contention(dictionary, Contention::Mutex).to_vec(),
        _ => vec![Kind::goroutine(dictionary)],
    };
    set.profiles.extend(kinds.into_iter().zip([1, 1_000_000]).map(|(kind, factor)| {
        let mut profile = Profile { kind, ..template.clone() };
        profile.samples.iter_mut().for_each(|sample| sample.value *= factor);
        profile
    }));
    set
}

/// A store with two profiles of the last minute.
pub(crate) fn shop() -> Store {
    let (store, now) = (Store::default(), now());
    store.add(Arc::new(set(
        now - 40,
        10,
        &[
            ("main;shop::orders;shop::sign", 30, &[("endpoint", "/orders"), ("method", "POST")]),
            ("main;shop::orders", 10, &[("endpoint", "/orders"), ("method", "GET")]),
        ],
    )));
    let rows: &[Row<'_>] = &[
        ("main;shop::search;core::str::find", 20, &[("endpoint", "/search"), ("method", "GET")]),
        ("main;tokio::runtime::park", 5, &[]),
    ];
    store.add(Arc::new(set(now - 10, 10, rows)));
    store
}
