//! What is told of a destination beside the account: requests, bytes, latencies, and what stands in the log.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler::export::{Compression, Otlp};
use profiler_proto::loss::Cause;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::http_peer::{HttpPeer, Reaction, free_address};
use super::profiles::set;
use super::rig::Rig;

/// Check that requests and those again are counted, and the bytes that a peer got, but not those that no connection took.
#[tokio::test]
async fn requests_and_bytes_are_counted() {
    let (_port, address) = free_address();
    let rig = Rig::to([Otlp::http(format!("http://{address}"))]);
    rig.offer(&set(10));
    rig.until("it was tried again", |rig| rig.stats(0).retried > 0).await;
    let waiting = rig.stats(0);
    assert_eq!((waiting.sent_bytes, waiting.requests), (0, waiting.retried + 1));
    let peer = HttpPeer::start_at(address, [Reaction::answer(503, b""), Reaction::Close]).await;
    rig.settle().await;
    let before = rig.stats(0);
    rig.offer(&set(20));
    rig.settle().await;
    let (after, requests) = (rig.stats(0), peer.requests());
    assert_eq!(requests.len(), 4);
    // With the prefix that it waits with, for gRPC.
    assert_eq!(waiting.queued_bytes as usize, requests[0].body.len() + 5);
    assert_eq!(after.sent_bytes as usize, requests.iter().map(|request| request.body.len()).sum::<usize>());
    assert_eq!((after.requests, after.retried, after.queued_bytes), (before.requests + 1, before.retried, 0));
    rig.assert_settled(30, 0, Cause::Rejected);
}

/// Check that the last latency and the longest are told, that of an attempt without an answer too.
#[tokio::test]
async fn latencies_are_told() {
    let peer = HttpPeer::start([Reaction::Hang]).await;
    let timeout = Duration::from_millis(300);
    let rig = Rig::to([Otlp::http(peer.url()).timeout(timeout)]);
    assert_eq!((rig.stats(0).last_latency, rig.stats(0).longest_latency), (None, None));
    rig.offer(&set(10));
    rig.settle().await;
    let stats = rig.stats(0);
    assert!(stats.longest_latency >= Some(timeout), "{stats:?}");
    assert!(stats.last_latency.is_some() && stats.last_latency <= stats.longest_latency, "{stats:?}");
}

/// Check that each queue counts the bytes of the form that it holds.
#[tokio::test]
async fn each_queue_counts_its_own_form() {
    let (_port, address) = free_address();
    let otlp = |compression| Otlp::http(format!("http://{address}")).compression(compression);
    let rig = Rig::to([Compression::Gzip, Compression::None, Compression::Gzip].map(otlp));
    rig.offer(&set(500));
    let bytes = [0, 1, 2].map(|index| rig.stats(index).queued_bytes);
    assert_eq!(bytes[0], bytes[2]);
    assert!(bytes[0] * 2 < bytes[1], "{bytes:?}");
}

/// Check that a peer that warns of every request is quoted once, as a warning, and that nothing is lost by it.
#[tokio::test]
async fn a_warning_is_logged_once() {
    let lines = Lines::default();
    let _kept = keep(&lines);
    let peer = HttpPeer::start(vec![Reaction::answer(200, b"\x0a\x0a\x12\x08old attr"); 5]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    for _ in 0..5 {
        rig.offer(&set(10));
    }
    rig.settle().await;
    rig.assert_settled(50, 0, Cause::Rejected);
    let lines = lines.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("old attr") && lines[0].contains(&peer.url()), "{lines:?}");
}

/// Check that a peer that fails and is well in turn does not fill the log: one line says that it fails, one that it is well again.
#[tokio::test]
async fn a_peer_that_fails_now_and_then_is_logged_once() {
    let lines = Lines::default();
    let _kept = keep(&lines);
    let answers = [400, 200].map(|status| Reaction::answer(status, b""));
    let peer = HttpPeer::start(answers.into_iter().cycle().take(10)).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    for _ in 0..10 {
        rig.offer(&set(10));
    }
    rig.settle().await;
    rig.assert_settled(50, 50, Cause::Rejected);
    let lines = lines.0.lock().unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("not being accepted") && lines[1].contains("accepted again"), "{lines:?}");
}

/// The subscriber of this thread that keeps `lines`. A second one must be there: `tracing` asks that of the thread that comes to a line
/// first, where there is but one, and takes its answer for all threads.
fn keep(lines: &Lines) -> (DefaultGuard, Dispatch) {
    let second = Dispatch::new(tracing_subscriber::registry());
    (tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone())), second)
}

/// Keeps the profiler's lines of the levels that operators see.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::INFO && event.metadata().target().starts_with("profiler") {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
