//! Marks on spans, for as long as there are profiles of them.
//!
//! A binary of its own: a process has one profiler.

#![cfg(all(
    feature = "opentelemetry-sdk",
    feature = "serve",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::time::Duration;

use opentelemetry::trace::{Tracer, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use profiler::{Config, ProfiledSpans};

/// Check that spans have `pyroscope.profile.id` while a profiler runs, and neither before nor behind.
#[test]
fn spans_are_marked_while_a_profiler_runs() {
    let provider = SdkTracerProvider::builder().with_span_processor(ProfiledSpans::new()).build();
    let tracer = provider.tracer("test");
    let is_marked = || {
        let span = tracer.start("request").exported_data().unwrap();
        span.attributes.iter().any(|attribute| attribute.key.as_str() == "pyroscope.profile.id")
    };
    assert!(!is_marked());
    for _ in 0..2 {
        let profiler = profiler::start(Config::new("test").serve("127.0.0.1:0")).unwrap();
        assert!(is_marked());
        assert!(profiler.shutdown(Duration::from_secs(60)));
        assert!(!is_marked());
    }
}
