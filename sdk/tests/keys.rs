//! Keys of tags when there are no more: those of ours are there all the same.
//!
//! A binary of its own, for it uses up the keys of the process.

#![cfg(all(feature = "opentelemetry-sdk", feature = "tower", feature = "tracing-layer"))]

use std::fmt::Display;

use profiler::{Scope, Tags};

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

/// Check that tags for which there is no room take no keys, and that those of our layers have theirs when all are taken.
#[test]
fn keys_are_not_used_up_by_what_has_no_room() {
    drop(wide(0));
    assert!(works("mine"));

    let _layers = (profiler::tower::TagLayer::new(), profiler::tracing_layer().with_field("route"));
    let _spans = profiler::ProfiledSpans::new();
    (1..10).for_each(|number| drop(wide(number)));
    assert!(works("mine") && !works("too late"));
    for key in ["endpoint", "method", "rpc.service", "rpc.method", "span", "route", "span_name"] {
        assert!(works(key), "{key}");
    }
}
