//! Figures of Go's runtimes on their way, as OTLP metrics, to where profiles go.
//!
//! In: what each program's runtime said of itself last ([`Figures::programs`](super::captures::Figures::programs)). Out: where something was
//! captured, for which is looked every [`LOOKED`] at most, a request to each peer, with the programs that said something since. What is not taken is not sent
//! again, for the next one has newer figures; it is counted. A peer that says "later" is left alone as long as it says, and gets then what is newest. A task
//! of the main thread for each peer, so that one that does not answer keeps no other from being asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use profiler::export::MetricsTarget;
use prost::Message as _;
use tokio::time::{MissedTickBehavior, interval};

use super::captures::{Counted, Figures};
use super::instruments;

/// How often it is looked whether something was captured; where that is so more often, as often.
const LOOKED: Duration = Duration::from_secs(5);

/// Starts the tasks.
pub(super) fn start(peers: Vec<MetricsTarget>, every: Duration, captures: &Arc<Figures>) {
    for peer in peers {
        tracing::info!("figures of Go's runtimes go to {}, as metrics", peer.name());
        tokio::spawn(run(peer, every.min(LOOKED), Arc::clone(captures)));
    }
}

async fn run(mut peer: MetricsTarget, every: Duration, captures: Arc<Figures>) {
    let (mut ticks, mut told_until, mut kept_until, mut is_said) = (interval(every), 0, 0, false);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (request, newest) = newer(captures.programs().values(), told_until);
        if request.resource_metrics.is_empty() {
            continue;
        }
        if !peer.rest(Instant::now()).is_zero() {
            // Once for all that was captured since; what is newest then goes when it may.
            captures.metrics_postponed.fetch_add(u64::from(newest > kept_until), Ordering::Relaxed);
            kept_until = newest;
            continue;
        }
        let sent = peer.send(&request.encode_to_vec()).await;
        let figure = if sent.is_ok() { &captures.metrics_sent } else { &captures.metrics_failed };
        figure.fetch_add(1, Ordering::Relaxed);
        kept_until = newest;
        if peer.rest(Instant::now()).is_zero() {
            told_until = newest;
        }
        let was_said = std::mem::replace(&mut is_said, sent.is_err());
        if let Err(why) = sent
            && !was_said
        {
            tracing::warn!("metrics are not taken by {}: {why}; PROFILER_METRICS=0 sends none", peer.name());
        }
    }
}

/// What has a higher number than `told`, and the highest that it has.
fn newer<'p>(programs: impl Iterator<Item = &'p Counted>, told: u64) -> (ExportMetricsServiceRequest, u64) {
    let (mut resource_metrics, mut newest) = (Vec::new(), told);
    for program in programs.filter(|program| program.sequence > told && program.figures.is_some()) {
        newest = newest.max(program.sequence);
        resource_metrics.push(instruments::metrics(program));
    }
    (ExportMetricsServiceRequest { resource_metrics }, newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::RuntimeFigures;
    use crate::discover::{Kind, Target};
    use crate::target::Process;

    const NOW: u64 = 1 << 60;
    const HOUR: u64 = 3_600_000_000_000;

    fn target() -> Arc<Target> {
        Arc::new(Target::bare(Process::new(1, 1), Kind::Go("go1.24.0".into())))
    }

    /// Start of the counters, and when they were read, of the only program.
    fn times(captures: &Figures) -> [u64; 2] {
        let programs = captures.programs();
        programs.values().map(|program| [program.began_unix_nanos, program.taken_unix_nanos]).next().unwrap()
    }

    /// Check that what is captured after the clock was set back is sent all the same, once; and that where counters fall they have a start of their own, behind
    /// all that was told before.
    #[test]
    fn neither_the_clock_nor_another_program_holds_figures_up() {
        let (target, captures) = (target(), Figures::default());
        let (mut told, mut seen) = (0, Vec::new());
        // The third is after the clock was set back by an hour, the last one of a program that the process became.
        for (allocated, now) in [(10, NOW), (20, NOW + 2), (30, NOW + 2 - HOUR), (5, NOW + 9)] {
            captures.count(&target, Some(RuntimeFigures { allocated, ..RuntimeFigures::default() }), Vec::new(), now);
            let (request, newest) = newer(captures.programs().values(), told);
            assert!(request.resource_metrics.len() == 1 && newest > told);
            told = newest;
            assert!(newer(captures.programs().values(), told).0.resource_metrics.is_empty());
            seen.push(times(&captures));
            // One capture in between comes to nothing, and has nobody begin anew.
            captures.count(&target, None, Vec::new(), now + 1);
            assert!(newer(captures.programs().values(), told).0.resource_metrics.is_empty());
        }
        let [first, second, back, fallen] = seen[..] else { panic!("{seen:?}") };
        assert!(first[0] <= NOW && [second[0], back[0]] == [first[0]; 2], "{seen:?}");
        assert_eq!((first[1], second[1], fallen), (NOW, NOW + 2, [back[1], NOW + 9]));
    }
}
