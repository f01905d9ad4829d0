//! Figures of Go's runtimes through a real Collector: the sidecar's metrics arrive as those of the process, over gRPC and over HTTP.

use std::collections::BTreeMap;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, ResourceMetrics};
use profiler_proto::validate::Rule;
use profiler_tests::collector::{Collector, Hop};
use profiler_tests::pod::Pod;
use profiler_tests::receiver::{Protocol, Receiver};
use prost::Message as _;

use crate::scenario::LIMIT;

/// What is told of each program, but for what only some have.
const NAMES: [&str; 10] = [
    "go.config.gogc",
    "go.goroutine.count",
    "go.memory.allocated",
    "go.memory.gc.cycles",
    "go.memory.gc.goal",
    "go.memory.gc.live",
    "go.memory.gc.pause.total",
    "go.memory.used",
    "go.processor.limit",
    "process.thread.count",
];

/// The first metrics that come with all of [`NAMES`]: a busy program may not be read whole each time.
fn first(receiver: &Receiver) -> ResourceMetrics {
    let until = Instant::now() + LIMIT;
    loop {
        let bodies = receiver.take_metrics(until.saturating_duration_since(Instant::now()));
        let requests = bodies.iter().map(|body| ExportMetricsServiceRequest::decode(&body[..]).unwrap());
        let all: Vec<ResourceMetrics> = requests.flat_map(|request| request.resource_metrics).collect();
        if let Some(whole) = all.iter().find(|metrics| has_all(metrics)) {
            return whole.clone();
        }
        assert!(Instant::now() < until, "not all came of {NAMES:?}: {all:?}");
    }
}

fn has_all(metrics: &ResourceMetrics) -> bool {
    let told = || metrics.scope_metrics.iter().flat_map(|scope| &scope.metrics);
    NAMES.iter().all(|name| told().any(|metric| metric.name == *name))
}

fn value(point: &NumberDataPoint) -> f64 {
    match point.value.unwrap() {
        Value::AsInt(value) => value as f64,
        Value::AsDouble(value) => value,
    }
}

fn attribute(metrics: &ResourceMetrics, key: &str) -> Option<Attribute> {
    let attributes = &metrics.resource.as_ref().unwrap().attributes;
    attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.clone()
}

/// Check that all of them come through, with whose they are.
#[test]
fn figures_of_a_go_program_come_through_a_collector() {
    if !Pod::is_possible() {
        println!("NOT RUN: the sidecar reads other processes, which needs root");
        return;
    }
    for (protocol, name, hop) in [(Protocol::Grpc, "grpc", Hop::Http), (Protocol::Http, "http/protobuf", Hop::Grpc)] {
        let receiver = Receiver::start().unwrap();
        // What the Collector makes of profiles that kept all rules.
        receiver.allow([Rule::ZeroElement, Rule::StringReference]);
        let collector = Collector::start(hop, &receiver.endpoint()).unwrap();
        let endpoint = collector.endpoint(protocol);
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", name)];
        let pod = Pod::start(&variables).unwrap();
        let metrics = first(&receiver);
        assert_eq!(
            attribute(&metrics, "service.name"),
            Some(Attribute::StringValue("troubles".into())),
            "{protocol:?}"
        );
        assert_eq!(attribute(&metrics, "process.pid"), Some(Attribute::IntValue(pod.pid.into())), "{protocol:?}");
        let told: BTreeMap<&str, f64> = metrics.scope_metrics[0]
            .metrics
            .iter()
            .map(|metric| match metric.data.as_ref().unwrap() {
                Data::Gauge(gauge) => (&*metric.name, value(&gauge.data_points[0])),
                Data::Sum(sum) => (&*metric.name, value(&sum.data_points[0])),
                data => panic!("{data:?}"),
            })
            .collect();
        let at_least = [("go.goroutine.count", 5.0), ("go.memory.used", 1e6), ("process.thread.count", 2.0)];
        assert!(at_least.iter().all(|(name, least)| told[name] >= *least), "{protocol:?}: {told:?}");
        assert_eq!(told["go.config.gogc"], 100.0, "{protocol:?}");
    }
}
