//! What is told of a destination beside the account: requests, bytes, latencies.

use std::time::Duration;

use profiler::export::{Compression, Otlp};
use profiler_proto::loss::Cause;

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
