//! What is stored, in every form that it is asked for.

use profiler_proto::{Limits, pprof};
use serde_json::{Value, json};

use crate::client::serve;
use crate::samples::shop;

/// Check that `/api/profile` is the tree of the samples, in preorder, with all that the page shows beside it.
#[test]
fn the_profile_is_the_tree_of_the_samples() {
    let server = serve(shop());
    let answer = server.get("/api/profile?from=-120");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let json = answer.json();
    assert_eq!(json["kind"], json!({"type": "cpu", "unit": "nanoseconds", "period": 10_000_000, "rate_hz": 100}));
    assert_eq!(json["target"], json!({"service": "shop", "pid": std::process::id()}));
    assert_eq!(json["tags"], json!({"endpoint": ["/orders", "/search"], "method": ["GET", "POST"]}));
    assert_eq!((&json["samples"], &json["stacks"], &json["sum_squares"]), (&json!(65), &json!(65), &json!(65)));
    assert_eq!((&json["duration_ms"], &json["trimmed"], &json["version"]), (&json!(20_000), &json!(0), &json!(1)));
    assert_eq!(
        nodes(&json),
        [
            (0, "all", 0),
            (1, "main", 0),
            (2, "shop::orders", 10),
            (3, "shop::sign", 30),
            (2, "shop::search", 0),
            (3, "core::str::find", 20),
            (2, "tokio::runtime::park", 5),
        ]
    );
    let kinds: Vec<_> =
        ["main", "shop::sign", "core::str::find", "tokio::runtime::park"].map(|name| kind(&json, name)).into();
    assert_eq!(kinds, [("native", 3), ("shop", 0), ("core", 1), ("tokio", 2)]);
    assert_eq!((&json["stats"]["taken"], &json["debug_info"]), (&json!(10), &Value::Null));
}

/// The nodes as (depth, name, own weight).
fn nodes(json: &Value) -> Vec<(u64, &str, u64)> {
    let nodes = &json["nodes"];
    let number = |column: &str, node: usize| nodes[column][node].as_u64().unwrap();
    let name =
        |frame: u64| json["names"][json["frames"]["name"][frame as usize].as_u64().unwrap() as usize].as_str().unwrap();
    let count = nodes["depth"].as_array().unwrap().len();
    (0..count).map(|node| (number("depth", node), name(number("frame", node)), number("self", node))).collect()
}

/// Package and kind of a function.
fn kind<'a>(json: &'a Value, name: &str) -> (&'a str, u64) {
    let named = json["names"].as_array().unwrap().iter().position(|known| known == name).unwrap() as u64;
    let frame = json["frames"]["name"].as_array().unwrap().iter().position(|id| *id == named).unwrap();
    let package = json["frames"]["package"][frame].as_u64().unwrap() as usize;
    (json["packages"][package].as_str().unwrap(), json["frames"]["kind"][frame].as_u64().unwrap())
}

/// Check that ranges and tags choose samples: values of a key add up, keys narrow each other.
#[test]
fn ranges_and_tags_choose_samples() {
    let server = serve(shop());
    let samples = |query: &str| server.get(&format!("/api/profile?{query}")).json()["samples"].as_u64().unwrap();
    assert_eq!(samples("from=-120"), 65);
    assert_eq!(samples("from=-120&to=-25"), 40);
    assert_eq!(samples("from=-120&tag=endpoint%3D%2Forders"), 40);
    assert_eq!(samples("from=-120&tag=endpoint%3D/orders&tag=endpoint%3D/search"), 60);
    assert_eq!(samples("from=-120&tag=endpoint%3D/orders&tag=method%3DGET"), 10);
    assert_eq!(samples("tag=endpoint%3D/nowhere"), 0);
    let empty = server.get("/api/profile?from=-3600&to=-3000").json();
    assert_eq!((&empty["first"], nodes(&empty)), (&Value::Null, vec![(0, "all", 0)]));
}

/// Check that folded stacks and pprof files hold the samples that the tree holds.
#[test]
fn other_formats_hold_the_same_samples() {
    let server = serve(shop());
    let folded = server.get("/api/profile?from=-120&format=folded&tag=endpoint%3D/orders");
    assert_eq!(folded.text(), "main;shop::orders 10\nmain;shop::orders;shop::sign 30\n");
    let answer = server.get("/api/profile?from=-120&format=pprof&tag=endpoint%3D/orders");
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"profile\""));
    let file = pprof::decode(&answer.body, &Limits::default()).unwrap();
    let weight: i64 = file.profiles[0].samples.iter().map(|sample| sample.value).sum();
    assert_eq!(weight, 40);
}

/// Check that the table is that of the tree, as JSON and as text.
#[test]
fn the_table_is_that_of_the_tree() {
    let server = serve(shop());
    let json = server.get("/api/top?by=endpoint&from=-120&n=1").json();
    let hottest: Vec<_> = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let first = &group["functions"][0];
            (
                group["value"].as_str(),
                group["samples"].as_u64().unwrap(),
                first["name"].as_str().unwrap(),
                first["self"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        hottest,
        [
            (Some("/orders"), 40, "shop::sign", 30),
            (Some("/search"), 20, "core::str::find", 20),
            (None, 5, "tokio::runtime::park", 5),
        ]
    );
    let text = server.get("/api/top?from=-120&n=1&format=text&tag=endpoint%3D/orders");
    let expected = "all  40 samples\n    self      ±    total   samples  function\n  75.00%   6.85   75.00%        30  shop::sign\n";
    assert_eq!(text.text(), expected);
    assert_eq!(server.get("/api/top?to=-3600&from=-7200&format=text&by=endpoint").text(), "no samples\n");
}

/// Check that the drawing is there.
#[test]
fn the_samples_are_drawn() {
    let answer = serve(shop()).get("/flamegraph.svg?from=-120");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/svg+xml")));
    assert!(answer.text().contains("<title>shop::sign (30 samples, 46.15 %)</title>"));
}
