//! The figures of a Go program's runtime under their names: for `/stats`, and as metrics of OpenTelemetry.
//!
//! In: a program with what its runtime said of itself last. Out: a section of `/stats`; the program's metrics, with the resource that its profiles have. One
//! table says what there is. Pure.
//!
//! Source: OpenTelemetry semantic conventions, "Go runtime metrics" and "Process metrics"; what is not there is called after `runtime/metrics`.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use profiler::{Figure, StatsSection};
use profiler_proto::otlp::wire_resource;

use super::captures::Counted;
use crate::capture::RuntimeFigures;

/// One figure.
struct Instrument {
    name: &'static str,
    /// Of UCUM.
    unit: &'static str,
    what: &'static str,
    sort: Sort,
    read: fn(&RuntimeFigures) -> Option<Number>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Only ever grows.
    Counter,
    /// Grows and shrinks; of several programs, the sum is theirs together.
    Level,
    /// The last one of its kind.
    Last,
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Count(u64),
    /// Of nanoseconds.
    Seconds(u64),
}

use Number::{Count, Seconds};
use Sort::{Counter, Last, Level};

/// All there are. A figure that a runtime does not have is left out.
const INSTRUMENTS: [Instrument; 12] = [
    instrument("process.thread.count", "{thread}", "Threads of the process", Level, |of| Some(Count(of.threads))),
    instrument("go.processor.limit", "{thread}", "GOMAXPROCS", Level, |of| Some(Count(of.processors))),
    instrument("go.goroutine.count", "{goroutine}", "Goroutines that live", Level, |of| of.goroutines.map(Count)),
    instrument("go.memory.used", "By", "Memory that the runtime uses", Level, |of| Some(Count(of.used))),
    instrument("go.memory.limit", "By", "GOMEMLIMIT", Level, |of| of.limit.map(Count)),
    instrument("go.memory.allocated", "By", "Allocated on the heap", Counter, |of| Some(Count(of.allocated))),
    instrument("go.memory.gc.live", "By", "Found in use by the last collection", Level, |of| Some(Count(of.live))),
    instrument("go.memory.gc.goal", "By", "Heap until the next collection ends", Level, |of| of.goal.map(Count)),
    instrument("go.memory.gc.cycles", "{gc_cycle}", "Collections that ended", Counter, |of| {
        Some(Count(of.collections))
    }),
    instrument("go.memory.gc.pause.total", "s", "Stopped by collections", Counter, |of| Some(Seconds(of.paused))),
    instrument("go.memory.gc.pause.last", "s", "Stopped by the last collection", Last, |of| of.last_pause.map(Seconds)),
    instrument("go.config.gogc", "%", "GOGC", Level, |of| of.percent.map(Count)),
];

const fn instrument(
    name: &'static str,
    unit: &'static str,
    what: &'static str,
    sort: Sort,
    read: fn(&RuntimeFigures) -> Option<Number>,
) -> Instrument {
    Instrument { name, unit, what, sort, read }
}

/// The figures of one program that it has.
fn read(program: &Counted) -> impl Iterator<Item = (&'static Instrument, Number)> {
    let figures = program.figures.as_ref();
    INSTRUMENTS.iter().filter_map(move |instrument| Some((instrument, (instrument.read)(figures?)?)))
}

/// For `/stats`; none, where nothing is known.
pub(super) fn section(program: &Counted) -> Option<StatsSection> {
    if program.figures.is_none() && program.states.is_empty() {
        return None;
    }
    let (target, pid) = (&program.target, program.target.process.pid());
    let section = StatsSection::new(format!("go_{pid}"))
        .with("service.name", target.service.clone())
        .with("process.pid", u64::from(pid));
    let section = program.states.iter().fold(section, |section, (what, state)| section.with(what.name(), *state));
    Some(read(program).fold(section, |section, (instrument, number)| {
        section.with(
            instrument.name,
            match number {
                Count(count) => Figure::Count(count),
                Seconds(nanos) => Figure::Number(nanos as f64 / 1e9),
            },
        )
    }))
}

/// For whoever takes metrics.
pub(super) fn metrics(program: &Counted) -> ResourceMetrics {
    let scope = InstrumentationScope {
        name: "profiler_sidecar".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = read(program).map(|(instrument, number)| metric(program, instrument, number)).collect();
    ResourceMetrics {
        resource: Some(wire_resource(&program.target.resource)),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
        ..ResourceMetrics::default()
    }
}

fn metric(program: &Counted, instrument: &Instrument, number: Number) -> Metric {
    let value = match number {
        Count(count) => Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
        Seconds(nanos) => Value::AsDouble(nanos as f64 / 1e9),
    };
    let point = NumberDataPoint {
        start_time_unix_nano: if instrument.sort == Last { 0 } else { program.began_unix_nanos },
        time_unix_nano: program.taken_unix_nanos,
        value: Some(value),
        ..NumberDataPoint::default()
    };
    let data = match instrument.sort {
        Last => Data::Gauge(Gauge { data_points: vec![point] }),
        sort => Data::Sum(Sum {
            data_points: vec![point],
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: sort == Counter,
        }),
    };
    Metric {
        name: instrument.name.to_owned(),
        description: instrument.what.to_owned(),
        unit: instrument.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the page lists each figure with its unit.
    #[test]
    fn the_page_lists_each_figure() {
        let page = include_str!("../../../docs/go-runtime.md");
        for Instrument { name, unit, .. } in &INSTRUMENTS {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}`")));
            assert!(row.is_some_and(|row| row.contains(&format!("| `{unit}` |"))), "{name} in {unit}");
        }
    }
}
