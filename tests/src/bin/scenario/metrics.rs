//! A service that lets OpenTelemetry collect the profiler's metrics: by readers of the OpenTelemetry SDK, into memory.
//!
//! In: where profiles go, in the environment. Out: what was collected, by name and attributes, beside what `stats()` says; what is
//! collected while the service works; what is left after the end.

use std::time::Duration;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use profiler::Config;
use profiler_tests::workload::spin;
use profiler_tests::{Result, stats};
use serde_json::{Map, Value, json};

use crate::FLUSH;

/// Works, is collected from meanwhile and afterwards, ends, and is collected from again.
pub(crate) fn metrics() -> Result<Value> {
    let exporter = InMemoryMetricExporter::default();
    // As often as tests ask, and never else.
    let reader = PeriodicReader::builder(exporter.clone()).with_interval(Duration::from_secs(1 << 20)).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let profiler = profiler::start(Config::new("metrics").rate_hz(1000).interval(Duration::from_millis(100)))?;
    profiler.observe(&provider.meter("metrics"));
    let mut meanwhile = Vec::new();
    for _ in 0..20 {
        spin(Duration::from_millis(50));
        meanwhile.push(collected(&provider, &exporter)?);
    }
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    let (stats, settled) = (stats::to_json(&profiler.stats()), collected(&provider, &exporter)?);
    drop(profiler);
    let after = collected(&provider, &exporter)?;
    Ok(json!({ "flushed": flushed, "meanwhile": meanwhile, "stats": stats, "settled": settled, "after": after }))
}

/// What one collection finds: `{"name{key=value,…}": figure}`.
fn collected(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> Result<Map<String, Value>> {
    exporter.reset();
    provider.force_flush()?;
    let resources = exporter.get_finished_metrics()?;
    let scopes = resources.iter().flat_map(ResourceMetrics::scope_metrics);
    Ok(scopes.flat_map(ScopeMetrics::metrics).flat_map(figures).collect())
}

/// The sums of a metric.
fn figures(metric: &Metric) -> Vec<(String, Value)> {
    macro_rules! figures {
        ($sum:expr) => {
            $sum.data_points()
                .map(|point| {
                    let pairs = point.attributes().map(|pair| format!("{}={}", pair.key, pair.value));
                    let mut pairs: Vec<_> = pairs.collect();
                    pairs.sort();
                    (format!("{}{{{}}}", metric.name(), pairs.join(",")), json!(point.value()))
                })
                .collect()
        };
    }
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) if sum.is_monotonic() => figures!(sum),
        AggregatedMetrics::I64(MetricData::Sum(sum)) if !sum.is_monotonic() => figures!(sum),
        AggregatedMetrics::F64(MetricData::Sum(sum)) if sum.is_monotonic() => figures!(sum),
        other => vec![(metric.name().to_owned(), format!("{other:?}").into())],
    }
}
