//! Where traces and metrics go: over OTLP, if the environment names an endpoint.
//!
//! In: `OTEL_EXPORTER_OTLP_*`. Out: whether a signal is sent. The exporters read the rest by themselves.

/// Whether `signal` (`TRACES`, `METRICS`) is to be sent: the shop does so over gRPC alone.
pub(crate) fn is_sent(signal: &str) -> bool {
    let set = |name: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_{signal}_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()))
    };
    if set("ENDPOINT").is_none() {
        return false;
    }
    let is_grpc = set("PROTOCOL").as_deref() == Some("grpc");
    if !is_grpc {
        tracing::warn!(
            "not sent: the shop sends {signal} over gRPC alone; set OTEL_EXPORTER_OTLP_{signal}_PROTOCOL=grpc"
        );
    }
    is_grpc
}
