//! Keys of tags when there are no more: those of ours are there all the same.
//!
//! A binary of its own, for it uses up the keys of the process.

#![cfg(all(
    feature = "opentelemetry-sdk",
    feature = "tower",
    feature = "tracing-layer",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::fmt::Display;

use profiler::{Config, Scope, Tags};

/// A scope with a thousand keys that nobody else has.
fn wide(number: u32) -> Scope {
    let keys: Vec<_> = (0..1000).map(|key| format!("{number}.{key}")).collect();
    Scope::of(keys.iter().map(|key| (key.as_str(), key as &dyn Display)))
}

/// Whether a tag with this key can be put in force.
fn works(key: &str) -> bool {
    let _scope = profiler::tag!(key => "works");
    format!("{:?}", Tags::current()).contains(&format!("{key:?}: \"works\""))
}

/// Check that of a thousand tags in one scope the last ones that have room are there, that all others are counted and take no keys, and that those of our layers have theirs when all are taken.
#[test]
fn a_thousand_tags_use_up_no_keys() {
    let profiler = profiler::start(Config::new("test")).unwrap();
    let (before, scope) = (profiler.stats().tags.left_out, wide(0));
    let kept: Vec<_> = Tags::current().iter().map(|(key, value)| (key, value.into_owned())).collect();
    // Five bytes and two: as many as fit into 612, and one more without its value.
    let last: Vec<_> = (0..88).map(|place| format!("0.{}", 999 - place)).collect();
    let expected = last.iter().map(|key| (key.as_str(), if key == "0.912" { String::new() } else { key.clone() }));
    assert_eq!(kept, expected.collect::<Vec<_>>());
    assert_eq!(profiler.stats().tags.left_out - before, 1000 - 87);
    drop(scope);
    assert!(works("mine") && profiler.stats().tags.keys < 255);

    let _layers = (profiler::tower::TagLayer::new(), profiler::tracing_layer().with_field("route"));
    let _spans = profiler::ProfiledSpans::new();
    (1..10).for_each(|number| drop(wide(number)));
    assert!(works("mine") && !works("too late"));
    for key in ["endpoint", "method", "rpc.service", "rpc.method", "span", "route", "span_name"] {
        assert!(works(key), "{key}");
    }
    assert_eq!(profiler.stats().tags.keys, 255);
}
