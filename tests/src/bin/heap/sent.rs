//! Profiles of the CPU and of the heap, under tags and in spans, sent to two places at once.
//!
//! In: the endpoints, one of which (`directly`) gets them over gRPC and the other (`by_way`) over `protocol`, with `compression`; how long.
//! Out: the account, once everything has been sent or given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use profiler::Config;
use profiler::export::{Compression, Otlp};
use profiler_tests::subject::Options;
use profiler_tests::workload::{Part, Random, shared};
use profiler_tests::{Result, stats};
use serde_json::{Value, json};

use super::FLUSH;

/// As many stacks there are at least, unless the machine takes this much longer for them.
const LEAST: u64 = 500;
const MORE: Duration = Duration::from_secs(60);

/// Works on two threads for `seconds`.
pub(crate) fn sent(options: &Options) -> Result<Value> {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let config = Config::new("sent").rate_hz(1000).interval(Duration::from_millis(500)).heap(true);
    let config =
        config.heap_interval(1 << 14).tag("region", "eu-1").export(Otlp::grpc(options.value::<String>("directly")?));
    let profiler = profiler::start(config.export(by_way(options)?))?;
    let (start, time) = (Instant::now(), Duration::from_secs_f64(options.value("seconds")?));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let (mut random, mut kept) = (Random::new(seed), Vec::new());
                while !ENOUGH.load(Ordering::Relaxed) {
                    serve(&mut random, &mut kept);
                }
            });
        }
        let is_enough = || profiler.stats().account.taken >= LEAST || start.elapsed() > time + MORE;
        while start.elapsed() < time || !is_enough() {
            std::thread::sleep(Duration::from_millis(50));
        }
        ENOUGH.store(true, Ordering::Relaxed);
    });
    profiler.pause();
    let flushed = profiler.flush(FLUSH);
    Ok(json!({ "flushed": flushed, "stats": stats::to_json(&profiler.stats()) }))
}

fn by_way(options: &Options) -> Result<Otlp> {
    let endpoint: String = options.value("by_way")?;
    let otlp = match options.value::<String>("protocol")?.as_str() {
        "grpc" => Otlp::grpc(endpoint),
        _ => Otlp::http(endpoint),
    };
    Ok(otlp.compression(match options.value::<String>("compression")?.as_str() {
        "gzip" => Compression::Gzip,
        _ => Compression::None,
    }))
}

/// A request with a span of its own, of which some memory is kept for a while.
fn serve(random: &mut Random, kept: &mut Vec<Vec<u8>>) {
    let trace = u128::from(random.draw()) << 64 | u128::from(random.draw());
    let ids = (TraceId::from(trace), SpanId::from(random.draw()));
    let span = SpanContext::new(ids.0, ids.1, TraceFlags::SAMPLED, false, TraceState::NONE);
    let _span = Context::new().with_remote_span_context(span).attach();
    shared(Duration::from_millis(20), random, |part: &Part, slice| {
        let _scope = profiler::tag!("endpoint" => part.tag);
        kept.push(Vec::with_capacity(1 << 13));
        (part.burn)(slice)
    });
    if kept.len() > 1000 {
        kept.truncate(500);
    }
}
