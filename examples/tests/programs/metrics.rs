//! The shop's metrics, as a collector gets them.
//!
//! In: a shop under load for two seconds. Out: which of the profiler's figures arrive, under which service's name.

use std::process::Command;

use crate::collector::collector;
use crate::program::{PATIENCE, Program};

/// Check that the profiler's metrics arrive where the environment says, with the service's name.
#[test]
fn the_shops_metrics_arrive() {
    let (endpoint, calls) = collector();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
    command.args(["--listen", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--load", "1", "--seconds", "2"]);
    command.env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc");
    let shop = Program::of(&mut command);
    shop.finish();
    let (path, message) = calls.recv_timeout(PATIENCE).unwrap();
    assert_eq!(path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
    let holds = |text: &str| message.windows(text.len()).any(|window| window == text.as_bytes());
    for text in ["shop", "profiler.stacks.taken", "profiler.stacks.lost", "ring_full", "profiler.export.time", "store"]
    {
        assert!(holds(text), "{text}");
    }
}
