//! Several processes on one server, as the sidecar has them: merged with labels, or one of them; and what only Go's runtime keeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use profiler::serve::{Snapshot, Store};
use profiler_proto::model::{Link, Value};
use profiler_proto::{Limits, ProfileSet, pprof};
use serde_json::{Value as Json, json};

use crate::client::{Answer, Running, serve};
use crate::samples::{Row, now, runtime, set, shop};
use crate::source::{GO, of};

/// The trace that both processes work for.
const TRACE: [u8; 16] = [0xab; 16];

/// A server that stands for the sidecar, with ten seconds of two processes, of different rates.
fn pod() -> Running {
    let store = Store::default();
    let shop: &[Row<'_>] = &[("main;shop::orders", 30, &[("endpoint", "/orders")]), ("main;shop::idle", 10, &[])];
    let inventory: &[Row<'_>] = &[("main.main;main.reserve", 20, &[]), ("main.main;runtime.gc", 5, &[])];
    let own = std::process::id();
    let (mut shop, mut inventory) =
        (of(set(now() - 20, 10, shop), "shop", own), of(set(now() - 20, 10, inventory), "inventory", GO));
    inventory.profiles[0].kind.period *= 2;
    inventory.resource.set("process.runtime.name", "go");
    for (set, span) in [(&mut shop, 1), (&mut inventory, 2)] {
        set.profiles[0].samples[0].link = set.dictionary.links.intern(Link { trace_id: TRACE, span_id: [span; 8] });
    }
    [shop, inventory].into_iter().for_each(|set| store.add(Arc::new(set)));
    for (at, goroutines) in [(now() - 60, 4), (now() - 10, 9)] {
        store.add(Arc::new(of(runtime(Snapshot::Goroutine, at, goroutines), "inventory", GO)));
        store.add(Arc::new(of(runtime(Snapshot::Mutex, at, 2), "inventory", GO)));
    }
    let server = serve(store);
    server.source.several.store(true, Ordering::Relaxed);
    server
}

/// The nodes as (depth, name, own weight), the root left out.
fn nodes(json: &Json) -> Vec<(u64, String, u64)> {
    let column =
        |name: &str| json["nodes"][name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<_>>();
    let name = |frame: u64| {
        let name = json["frames"]["name"][usize::try_from(frame).unwrap()].as_u64().unwrap();
        json["names"][usize::try_from(name).unwrap()].as_str().unwrap().to_owned()
    };
    let rows = column("depth").into_iter().zip(column("frame")).zip(column("self"));
    rows.skip(1).map(|((depth, frame), own)| (depth, name(frame), own)).collect()
}

fn decoded(answer: &Answer) -> ProfileSet {
    assert_eq!(answer.status, 200, "{:?}", answer.text());
    pprof::decode(&answer.body, &Limits::default()).unwrap()
}

/// Values of the first profile by `service` and `pid`.
fn by_process(set: &ProfileSet) -> Vec<(Option<String>, Option<i64>, i64)> {
    let value = |sample: &profiler_proto::Sample, key| set.dictionary.value_of(sample.attributes, key);
    let row = |sample: &profiler_proto::Sample| {
        let service = value(sample, "service").map(ToString::to_string);
        (service, value(sample, "pid").and_then(Value::as_int), sample.value)
    };
    set.profiles[0].samples.iter().map(row).collect()
}

/// Check that a capture of all processes is one file whose samples say whose they are, and that one process's is as it was captured.
#[test]
fn a_capture_says_whose_samples_are() {
    let server = pod();
    let own = i64::from(std::process::id());
    let all = by_process(&decoded(&server.get("/debug/pprof/profile?seconds=1")));
    assert_eq!(all, [(Some("shop".into()), Some(own), 7), (Some("inventory".into()), Some(GO.into()), 5)]);
    for one in [format!("pid={GO}"), "service=inventory".to_owned()] {
        let set = decoded(&server.get(&format!("/debug/pprof/profile?seconds=1&{one}")));
        assert_eq!(by_process(&set), [(None, None, 5)], "{one}");
    }
    assert_eq!(*server.source.asked.lock().unwrap(), ["profile None", &format!("profile Some({GO})"), "profile None"]);
    let none = server.get("/debug/pprof/profile?seconds=1&pid=3");
    assert_eq!((none.status, none.text().contains("no process of this name or pid")), (404, true));
}

/// Check that the tree of all has the services below its root in one period, and that of one process only its own.
#[test]
fn the_tree_of_all_has_the_services_below_its_root() {
    let server = pod();
    let all = server.get("/api/profile?from=-120").json();
    let expected = [
        (1, "inventory", 0),
        (2, "main.main", 0),
        (3, "main.reserve", 40),
        (3, "runtime.gc", 10),
        (1, "shop", 0),
        (2, "main", 0),
        (3, "shop::orders", 30),
        (3, "shop::idle", 10),
    ];
    assert_eq!(nodes(&all), expected.map(|(depth, name, own)| (depth, name.to_owned(), own)));
    assert_eq!((&all["samples"], &all["stacks"], &all["duration_ms"]), (&json!(90), &json!(65), &json!(10_000)));
    let (shop, inventory) = (
        json!({"service": "shop", "pid": std::process::id()}),
        json!({"service": "inventory", "pid": GO, "language": "go"}),
    );
    assert_eq!(all["targets"], json!([shop, inventory]));
    let go = server.get(&format!("/api/profile?from=-120&pid={GO}")).json();
    assert_eq!(nodes(&go)[0], (1, "main.main".to_owned(), 0));
    assert_eq!((&go["samples"], &go["kind"]["period"]), (&json!(25), &json!(20_000_000)));
    let nobody = server.get("/api/profile?from=-120&service=shop&pid=1").json();
    assert_eq!(nobody["samples"], 0);
    let file = by_process(&decoded(&server.get("/api/profile?from=-120&format=pprof")));
    assert_eq!(file.iter().map(|row| row.2).sum::<i64>(), 90);
    assert!(file.iter().all(|(service, pid, _)| service.is_some() && pid.is_some()), "{file:?}");
}

/// Check that a trace has the samples of both processes, is listed, and narrows with tags.
#[test]
fn a_trace_goes_across_processes() {
    let server = pod();
    let trace = "ab".repeat(16);
    let answer = server.get(&format!("/api/profile?from=-120&tag=trace_id={trace}")).json();
    assert_eq!(answer["samples"], 70);
    assert_eq!(nodes(&answer).iter().filter(|(_, _, own)| *own > 0).count(), 2);
    assert_eq!((&answer["tags"]["trace_id"], &answer["tag_weights"]["trace_id"]), (&json!([trace]), &json!([70])));
    let tagged = server.get(&format!("/api/profile?from=-120&tag=trace_id={trace}&tag=endpoint=/orders")).json();
    assert_eq!(tagged["samples"], 30);
}

/// Check that goroutines are a state that is not summed and has a growth, and that waits for locks are summed.
#[test]
fn kinds_of_go_are_states_or_sums() {
    let server = pod();
    let samples = |query: &str| server.get(&format!("/api/profile?from=-120&{query}")).json();
    let goroutines = samples("type=goroutine");
    assert_eq!(
        (&goroutines["samples"], &goroutines["kind"]),
        (&json!(18), &json!({"type": "goroutine", "unit": "goroutines", "period": 1}))
    );
    assert_eq!(goroutines["types"], json!(["cpu", "goroutine", "mutex_delay", "mutex_contentions"]));
    assert_eq!(
        (&goroutines["sum_squares"], samples("type=goroutine&growth")["samples"].as_u64()),
        (&json!(0), Some(10))
    );
    let delay = samples("type=mutex_delay");
    assert_eq!(
        (&delay["samples"], &delay["stacks"], &delay["kind"]["unit"]),
        (&json!(8_000_000), &json!(8), &json!("nanoseconds"))
    );
    assert_eq!(samples("type=mutex_contentions")["samples"], 8);
    let none = server.get("/api/profile?type=block_delay");
    assert_eq!((none.status, none.text().contains("Go's runtime")), (400, true));
}

/// Check that what a runtime keeps is served under Go's paths, as it is, or as it changed, and that `gc` changes nothing.
#[test]
fn what_a_runtime_keeps_is_served_under_gos_paths() {
    let server = pod();
    let total = |path: &str| {
        decoded(&server.get(path))
            .profiles
            .iter()
            .map(|p| p.samples.iter().map(|s| s.value).sum())
            .collect::<Vec<i64>>()
    };
    assert_eq!(total("/debug/pprof/goroutine"), [6]);
    assert_eq!(total("/debug/pprof/block?gc=1&debug=0"), [8, 8_000_000]);
    assert_eq!(total(&format!("/debug/pprof/mutex?seconds=1&pid={GO}")), [2, 2_000_000]);
    assert_eq!(total("/debug/pprof/goroutine?seconds=1"), [2]);
    assert_eq!(server.send("HEAD", "/debug/pprof/goroutine?seconds=300", "").status, 200);
    let alone = serve(shop()).get("/debug/pprof/goroutine");
    assert_eq!((alone.status, alone.text().contains("Go programs have")), (404, true));
}

/// Check that goroutines are text where that is asked for as Go is asked, of one process after the other or of the one that is wanted, and that there is no text of a change.
#[test]
fn goroutines_are_text_when_that_is_asked_for() {
    let server = pod();
    let text = |parameters: &str| server.get(&format!("/debug/pprof/goroutine?{parameters}"));
    assert_eq!(text("debug=1").text(), "goroutines of inventory\n\ngoroutines of other\n");
    assert_eq!(text("debug=2").header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(text("debug=3&service=other").text(), "goroutines of other\n");
    assert_eq!(text(&format!("debug=1&pid={GO}")).text(), "goroutines of inventory\n");
    assert_eq!(text("debug=1&service=none").status, 404);
    // The one of this name is asked alone.
    assert_eq!(text("debug=1&service=inventory").text(), "goroutines of inventory\n");
    let asked = std::mem::take(&mut *server.source.asked.lock().unwrap());
    let of_go = format!("Grouped Some({GO})");
    let wanted = ["Grouped None", "Each None", "Each None", &of_go, "Grouped None", &of_go];
    assert_eq!(asked, wanted);
    for none in ["debug=0", "debug=", "debug=x", "debug=-1"] {
        assert_eq!(decoded(&text(none)).profiles.len(), 1, "{none}");
    }
    let refused = text("debug=1&seconds=1");
    assert_eq!((refused.status, refused.text().contains("no text of a change")), (400, true));
    let head = server.send("HEAD", "/debug/pprof/goroutine?debug=2", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(serve(shop()).get("/debug/pprof/goroutine?debug=1").status, 404);
}

/// Check that the threads of a process are told by name, also with a change, and of one that is not profiled not at all.
#[test]
fn threads_are_served() {
    let server = serve(shop());
    let threads = decoded(&server.get("/debug/pprof/threads"));
    assert!(threads.profiles[0].samples.iter().map(|sample| sample.value).sum::<i64>() >= 2);
    assert_eq!(server.get("/debug/pprof/threads?pid=1").status, 404);
    decoded(&server.get("/debug/pprof/threads?seconds=1"));
}

/// Check that the command line is that of the process that is asked for.
#[test]
fn the_command_line_is_of_a_process() {
    let server = pod();
    let own = std::process::id();
    assert_eq!(server.get(&format!("/debug/pprof/cmdline?pid={own}")).status, 200);
    assert_eq!(server.get(&format!("/debug/pprof/cmdline?pid={GO}")).status, 503);
    assert_eq!(server.get("/debug/pprof/cmdline?pid=3").status, 404);
}
