//! The heap in every form that it is asked for: what is in use never summed, what was allocated summed, growth by stack and tags.

use std::sync::Arc;

use profiler::serve::Store;
use profiler_proto::{Limits, pprof};
use serde_json::{Value, json};

use crate::client::{Running, serve};
use crate::samples::{Block, heap, now, shop};

const MIB: i64 = 1 << 20;

/// What is in use at one time: what leaks has so many MiB, what drains what is left.
fn state(leaked: i64, drained: i64) -> Vec<Block<'static>> {
    let all: [Block<'static>; 4] = [
        ("main;cache::fill", 8, 8 * MIB, &[("tenant", "all")]),
        ("main;shop::session", leaked, leaked * MIB, &[("tenant", "acme")]),
        ("main;shop::session", leaked / 4, leaked / 4 * MIB, &[("tenant", "globex")]),
        ("main;shop::drain", drained, drained * MIB, &[("tenant", "globex")]),
    ];
    all.into_iter().filter(|(_, objects, ..)| *objects > 0).collect()
}

/// CPU profiles, and three states of a heap that leaks, ten seconds apart, the last one just now.
fn leaky() -> Running {
    let (store, now) = (shop(), now());
    for (ago, leaked, drained) in [(20, 4, 6), (10, 8, 3), (0, 12, 0)] {
        store.add(Arc::new(heap(now - ago - 10, 10, &state(leaked, drained))));
    }
    serve(store)
}

/// The functions of an answer with their own weights.
fn leaves(json: &Value) -> Vec<(&str, i64)> {
    let column = |name: &str| json["nodes"][name].as_array().unwrap();
    let name = |frame: &Value| {
        let id = json["frames"]["name"][frame.as_u64().unwrap() as usize].as_u64().unwrap();
        json["names"][id as usize].as_str().unwrap()
    };
    let nodes = column("frame").iter().zip(column("self")).map(|(frame, own)| (name(frame), own.as_i64().unwrap()));
    nodes.filter(|(_, own)| *own > 0).collect()
}

/// Check that what is in use is the newest state and no sum, in bytes and in objects, with its moment, its tags by weight and the
/// allocator's figures of that moment; and that an older moment has an older state.
#[test]
fn memory_in_use_is_the_newest_state() {
    let server = leaky();
    let json = server.get("/api/profile?from=-120&type=inuse_space").json();
    assert_eq!(leaves(&json), [("shop::session", 15 * MIB), ("cache::fill", 8 * MIB)]);
    assert_eq!(json["kind"], json!({"type": "inuse_space", "unit": "bytes", "period": 1 << 19}));
    assert_eq!(json["types"], json!(["cpu", "inuse_space", "inuse_objects", "alloc_space", "alloc_objects"]));
    assert_eq!(
        (&json["samples"], &json["weight"], &json["duration_ms"]),
        (&json!(23 * MIB), &json!(23 * MIB), &json!(0))
    );
    assert_eq!((&json["first"], &json["heap"]["at"]), (&json["last"], &json["last"]));
    assert_eq!(
        (&json["tags"], &json["tag_weights"]),
        (&json!({"tenant": ["acme", "all", "globex"]}), &json!({"tenant": [12 * MIB, 8 * MIB, 3 * MIB]}))
    );
    let heap = &json["heap"];
    assert_eq!(
        (&heap["live"], &heap["allocated"], &heap["resident"]),
        (&json!(23 * MIB), &json!(1_000_000), &json!(2_000_000))
    );
    let objects = server.get("/api/profile?from=-120&type=inuse_objects").json();
    assert_eq!(
        (leaves(&objects), &objects["kind"]["unit"]),
        (vec![("shop::session", 15), ("cache::fill", 8)], &json!("objects"))
    );
    assert_eq!(objects["heap"], json["heap"]);
    let before = server.get("/api/profile?from=-120&to=-5&type=inuse_space&tag=tenant%3Dacme").json();
    assert_eq!((leaves(&before), &before["weight"]), (vec![("shop::session", 8 * MIB)], &json!(21 * MIB)));
    let unborn = server.get("/api/profile?from=-120&to=-60&type=inuse_space").json();
    assert_eq!((leaves(&unborn), &unborn["heap"], &unborn["last"]), (vec![], &Value::Null, &Value::Null));
    let cpu = server.get("/api/profile?from=-120").json();
    assert_eq!((&cpu["samples"], &cpu["kind"]["type"], &cpu["heap"]), (&json!(65), &json!("cpu"), &Value::Null));
}

/// Check that what was allocated is summed over the range.
#[test]
fn what_was_allocated_is_summed() {
    let server = leaky();
    let json = server.get("/api/profile?from=-120&type=alloc_space").json();
    let expected = [("shop::session", 2 * 30 * MIB), ("cache::fill", 2 * 24 * MIB), ("shop::drain", 2 * 9 * MIB)];
    assert_eq!((leaves(&json).as_slice(), &json["duration_ms"]), (expected.as_slice(), &json!(30_000)));
    let last = server.get("/api/profile?from=-9&type=alloc_objects").json();
    assert_eq!(leaves(&last), [("shop::session", 30), ("cache::fill", 16)]);
}

/// Check that blocks of 1 MiB, sampled with a probability of 1 - e^-2, have the errors of that: the variance of their sum is theirs.
#[test]
fn errors_are_those_of_sampling_by_size() {
    let json = leaky().get("/api/profile?from=-120&type=inuse_space").json();
    let chance = 1.0 - (-2.0_f64).exp();
    let (blocks, size) = (23.0 * chance, MIB as f64 / chance);
    assert_eq!(json["stacks"], json!(blocks.round() as u64));
    let (said, truth) = (json["sum_squares"].as_f64().unwrap(), blocks * size * size * (1.0 - chance));
    assert!((said / truth - 1.0).abs() < 1e-6, "{said} of {truth}");
}

/// Check that growth is what the newest state has more than the first one of the range, by stack and tags, with what shrank in sum
/// and the time between; that a tag narrows both; and that it needs two states.
#[test]
fn growth_is_told_by_stack_and_tags() {
    let server = leaky();
    let json = server.get("/api/profile?from=-120&type=inuse_space&growth").json();
    assert_eq!((leaves(&json), &json["growth"]), (vec![("shop::session", 10 * MIB)], &json!({"shrank": 6 * MIB})));
    assert_eq!((&json["duration_ms"], &json["tag_weights"]), (&json!(20_000), &json!({"tenant": [8 * MIB, 2 * MIB]})));
    assert_eq!(json["last"].as_u64().unwrap() - json["first"].as_u64().unwrap(), 20_000);
    assert_eq!(json["heap"]["live"], json!(23 * MIB));
    let acme = server.get("/api/profile?from=-120&type=inuse_objects&growth=1&tag=tenant%3Dacme").json();
    assert_eq!((leaves(&acme), &acme["growth"]), (vec![("shop::session", 8)], &json!({"shrank": 0})));
    let short = server.get("/api/profile?from=-15&type=inuse_space&growth").json();
    assert_eq!((leaves(&short), &short["growth"]), (vec![("shop::session", 5 * MIB)], &json!({"shrank": 3 * MIB})));
    let one = server.get("/api/profile?from=-5&type=inuse_space&growth").json();
    assert_eq!((leaves(&one), &one["first"], &one["growth"]), (vec![], &Value::Null, &json!({"shrank": 0})));
    let plain = server.get("/api/profile?from=-120&type=inuse_space&growth=0").json();
    assert_eq!((leaves(&plain).len(), &plain["growth"]), (2, &Value::Null));
}

/// Check that the other forms hold what the tree holds: folded stacks, files, the table, the drawing.
#[test]
fn other_forms_hold_the_same() {
    let server = leaky();
    let folded = server.get("/api/profile?from=-120&type=inuse_space&growth&format=folded");
    assert_eq!(folded.text(), format!("main;shop::session {}\n", 10 * MIB));
    let file = server.get("/api/profile?from=-120&type=inuse_space&format=pprof");
    let file = pprof::decode(&file.body, &Limits::default()).unwrap();
    let values: i64 = file.profiles[0].samples.iter().map(|sample| sample.value).sum();
    let name = file.dictionary.strings.text(file.profiles[0].kind.sample_type.kind);
    assert_eq!((file.profiles.len(), name, values), (1, "inuse_space", 23 * MIB));
    let grown = server.get("/api/profile?from=-120&type=inuse_space&growth&format=pprof");
    let grown = pprof::decode(&grown.body, &Limits::default()).unwrap();
    let mut values: Vec<i64> = grown.profiles[0].samples.iter().map(|sample| sample.value / MIB).collect();
    values.sort_unstable();
    assert_eq!(values, [-6, 2, 8]);
    let table = server.get("/api/top?from=-120&type=inuse_space&growth&by=tenant").json();
    let groups =
        table["groups"].as_array().unwrap().iter().map(|group| (group["value"].as_str(), group["samples"].as_i64()));
    assert_eq!(groups.collect::<Vec<_>>(), [(Some("acme"), Some(8 * MIB)), (Some("globex"), Some(2 * MIB))]);
    assert_eq!(
        (&table["type"], &table["unit"], &table["growth"]),
        (&json!("inuse_space"), &json!("bytes"), &json!(true))
    );
    let text = server.get("/api/top?from=-120&type=inuse_objects&n=1&format=text");
    assert!(
        text.text().starts_with("all  23 objects\n") && text.text().contains(" 15  shop::session"),
        "{}",
        text.text()
    );
    let drawing = server.get("/flamegraph.svg?from=-120&type=inuse_space&growth");
    assert!(drawing.text().contains("heap in use, growth · 10.0 MiB"), "{}", drawing.text());
}

/// Check that growth of anything but what is in use is refused, with what is right, and that an unknown type lists those that are
/// there: all of the heap's as soon as it is sampled.
#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let server = leaky();
    for path in ["/api/profile?type=alloc_space&growth", "/api/top?type=cpu&growth=1", "/api/profile?growth="] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, answer.text().contains("with type=inuse_space, type=inuse_objects or type=goroutine only")),
            (400, true),
            "{path}"
        );
    }
    let unknown = server.get("/api/profile?type=INUSE_SPACE");
    let there = "there are: cpu, inuse_space, inuse_objects, alloc_space, alloc_objects";
    assert_eq!((unknown.status, unknown.text().contains(there)), (400, true), "{}", unknown.text());
    let (young, absent) = (serve(Store::default()), serve(shop()));
    young.source.heap.store(true, std::sync::atomic::Ordering::Relaxed);
    let empty = young.get("/api/profile?type=inuse_space").json();
    assert_eq!(
        (&empty["samples"], &empty["kind"]["period"], &empty["types"][1]),
        (&json!(0), &json!(1 << 19), &json!("inuse_space"))
    );
    assert_eq!(
        (absent.get("/api/profile?type=inuse_space").status, &absent.get("/api/profile").json()["types"]),
        (400, &json!(["cpu"]))
    );
}
