//! Figures of Go's runtimes on their way, as OTLP metrics, to where profiles go.
//!
//! In: what each program's runtime said of itself last ([`Figures::programs`](super::captures::Figures::programs)). Out: as often as it is captured a request
//! to each peer, with the programs that said something since. What is not taken is not sent again, for the next one has newer figures; it is counted. A task of
//! the main thread for each peer, so that one that does not answer keeps no other from being asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use profiler::export::MetricsTarget;
use prost::Message as _;
use tokio::time::{MissedTickBehavior, interval};

use super::captures::{Counted, Figures};
use super::instruments;

/// How often it is looked whether something was captured; where that is less often, then.
const LOOKED: Duration = Duration::from_secs(5);

/// Starts the tasks.
pub(super) fn start(peers: Vec<MetricsTarget>, every: Duration, captures: &Arc<Figures>) {
    for peer in peers {
        tracing::info!("figures of Go's runtimes go to {}, as metrics", peer.name());
        tokio::spawn(run(peer, every.min(LOOKED), Arc::clone(captures)));
    }
}

async fn run(mut peer: MetricsTarget, every: Duration, captures: Arc<Figures>) {
    let (mut ticks, mut told_until, mut is_said) = (interval(every), 0, false);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (request, newest) = newer(captures.programs().values(), told_until);
        if request.resource_metrics.is_empty() {
            continue;
        }
        told_until = newest;
        let sent = peer.send(&request.encode_to_vec()).await;
        let figure = if sent.is_ok() { &captures.metrics_sent } else { &captures.metrics_failed };
        figure.fetch_add(1, Ordering::Relaxed);
        let was_said = std::mem::replace(&mut is_said, sent.is_err());
        if let Err(why) = sent
            && !was_said
        {
            tracing::warn!("metrics are not taken by {}: {why}; PROFILER_METRICS=0 sends none", peer.name());
        }
    }
}

/// What was captured after `told`, and when the last of it was.
fn newer<'p>(programs: impl Iterator<Item = &'p Counted>, told: u64) -> (ExportMetricsServiceRequest, u64) {
    let (mut resource_metrics, mut newest) = (Vec::new(), told);
    for program in programs.filter(|program| program.taken_unix_nanos > told) {
        newest = newest.max(program.taken_unix_nanos);
        resource_metrics.push(instruments::metrics(program));
    }
    (ExportMetricsServiceRequest { resource_metrics }, newest)
}
