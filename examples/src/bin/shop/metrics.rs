//! Metrics: what the profiler says about itself, exported if the environment says where to.
//!
//! In: the profiler's account. Out: `profiler.*` over OTLP, once a minute (`OTEL_METRIC_EXPORT_INTERVAL`, in milliseconds, says
//! otherwise). Metrics of your own go through the same provider.

use std::error::Error;

use opentelemetry::global;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use profiler::Profiler;

use crate::otlp;

/// Collects from now on for the service of this name; the provider is to be shut down at the end. Needs a runtime, on which an
/// exporter sends.
pub(crate) fn open(service: &'static str, profiler: &Profiler) -> Result<SdkMeterProvider, Box<dyn Error>> {
    let provider = SdkMeterProvider::builder().with_resource(Resource::builder().with_service_name(service).build());
    let provider = match otlp::is_sent("METRICS") {
        true => provider.with_periodic_exporter(MetricExporter::builder().with_tonic().build()?).build(),
        false => provider.build(),
    };
    profiler.observe(&provider.meter("profiler"));
    global::set_meter_provider(provider.clone());
    Ok(provider)
}

/// Sends what is left.
pub(crate) fn close(provider: &SdkMeterProvider) {
    if let Err(error) = provider.shutdown() {
        tracing::warn!(%error, "not all metrics were sent");
    }
}
