//! The spans of both services, as a collector gets them.
//!
//! In: an order to a shop whose inventory is a process of its own, both of which send their spans to one collector. Out: whose child each span is.

use std::process::Command;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use prost::Message;

use crate::collector::collector;
use crate::program::{PATIENCE, Program, send};
use crate::{ORDER, TRACE};

/// The span in which the test's order is sent.
const CALLER: &str = "00f067aa0ba902b7";

/// Check that an order is one trace through both services: the inventory's span is a child of the shop's call to it, which is a child of
/// the shop's own, which is a child of the caller's.
#[test]
fn an_order_is_one_trace_through_both_services() {
    let (endpoint, calls) = collector();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command.args(arguments).args(["--listen", "127.0.0.1:0", "--serve", "127.0.0.1:0"]);
        command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint).env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc");
        Program::of(command.env("OTEL_BSP_SCHEDULE_DELAY", "100"))
    };
    let inventory = start(&["inventory"]);
    let shop = start(&["--inventory", &inventory.line("ready http://")]);
    let caller = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    let (head, _) = send(&shop.line("ready http://"), "POST", "/orders", ORDER, &caller);
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.0 201"), "{head}");

    let mut spans: Vec<(String, Span)> = Vec::new();
    while spans.len() < 3 {
        let (path, message) = calls.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("spans are missing: {spans:?}"));
        assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
        spans.extend(of_services(&message));
    }
    let find = |service: &str, kind: SpanKind| {
        let found = spans.iter().find(|(of, span)| of == service && span.kind == kind as i32);
        &found.unwrap_or_else(|| panic!("no span of {service}, {kind:?}: {spans:?}")).1
    };
    let order = find("shop", SpanKind::Server);
    let call = find("shop", SpanKind::Client);
    let reservation = find("inventory", SpanKind::Server);
    assert_eq!((&*order.name, &*reservation.name), ("POST /orders", "POST /reservations"));
    assert_eq!(hex(&order.parent_span_id), CALLER);
    assert_eq!(hex(&call.parent_span_id), hex(&order.span_id));
    assert_eq!(hex(&reservation.parent_span_id), hex(&call.span_id));
    assert!(spans.iter().all(|(_, span)| hex(&span.trace_id) == TRACE), "{spans:?}");
}

/// The spans of a request, with the names of their services.
fn of_services(message: &[u8]) -> Vec<(String, Span)> {
    // Behind the head of a message of gRPC: a byte for compression, and its length.
    let request = ExportTraceServiceRequest::decode(&message[5..]).unwrap();
    let of_resource = request.resource_spans.into_iter().flat_map(|of| {
        let attributes = of.resource.unwrap_or_default().attributes;
        let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
        let Some(Value::StringValue(name)) = name.and_then(|attribute| attribute.value?.value) else {
            panic!("spans of no service")
        };
        of.scope_spans.into_iter().flat_map(|scope| scope.spans).map(move |span| (name.clone(), span))
    });
    of_resource.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
