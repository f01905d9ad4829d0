//! How long what a peer does not take is kept, how often it is sent again, and how fast what piled up goes out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::export::{Limits, Otlp, Pyroscope};
use profiler_proto::loss::Cause;
use tonic::Status;

use super::grpc_peer::{self, GrpcPeer};
use super::http_peer::{HttpPeer, Reaction, free_address};
use super::profiles::{cpu_profile, set, stacks};
use super::rig::{Rig, limits, target};

/// Limits of which a request is given up soon by a peer that is reached.
fn impatient() -> Limits {
    let mut limits = limits();
    limits.retry.budget = Duration::from_millis(100);
    limits
}

/// Limits of which nothing is tried again within a test, unless somebody hurries.
fn slow() -> Limits {
    let mut limits = limits();
    (limits.retry.initial, limits.retry.max) = (Duration::from_secs(3600), Duration::from_secs(3600));
    limits
}

/// Check that a peer that is away for many times the budget gets everything when it is back.
#[tokio::test]
async fn nothing_is_lost_while_nobody_is_reached() {
    let (_port, address) = free_address();
    let rig = Rig::start(vec![target(Otlp::http(format!("http://{address}")))], impatient());
    let start = Instant::now();
    rig.offer(&set(10));
    rig.offer(&set(20));
    let is_over = |rig: &Rig| start.elapsed() > Duration::from_millis(500) && rig.stats(0).retried > 5;
    rig.until("the budget would be over", is_over).await;
    assert_eq!(rig.account().pending, 30);
    let peer = HttpPeer::start_at(address, []).await;
    rig.settle().await;
    assert_eq!(peer.requests().iter().map(|request| stacks(&request.message())).collect::<Vec<_>>(), [10, 20]);
    rig.assert_settled(30, 0, Cause::TooOld);
}

/// Check that what waits is not kept for longer than its age, with a cause of its own.
#[tokio::test]
async fn what_is_too_old_is_given_up() {
    let (_port, address) = free_address();
    let mut limits = limits();
    limits.retry.max_age = Duration::from_millis(200);
    let rig = Rig::start(vec![target(Otlp::http(format!("http://{address}")))], limits);
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(0, 10, Cause::TooOld);
    assert_eq!(rig.stats(0).dropped.count(Cause::TooOld), 10);
}

/// Check that retries at a peer that is reached end with the budget, and that what it never answered to is told from what it put off.
#[tokio::test]
async fn retries_end_with_the_budget() {
    let unavailable = grpc_peer::Reaction::Fail(Status::unavailable(""));
    let grpc = GrpcPeer::start(vec![unavailable; 100]).await;
    let busy = HttpPeer::start(vec![Reaction::answer(503, b""); 100]).await;
    let silent = HttpPeer::start(vec![Reaction::Close; 100]).await;
    let cases = [
        (Otlp::grpc(grpc.url()), Cause::Unreachable),
        (Otlp::http(busy.url()), Cause::Unreachable),
        (Otlp::http(silent.url()), Cause::Unanswered),
        (Otlp::grpc(silent.url()), Cause::Unanswered),
    ];
    for (otlp, cause) in cases {
        let rig = Rig::start(vec![target(otlp)], impatient());
        rig.offer(&set(10));
        rig.settle().await;
        rig.assert_settled(0, 10, cause);
        assert_eq!(rig.stats(0).dropped.count(cause), 10);
    }
}

/// Check that a request that a peer throttles without saying until when is sent three times in all, then lost as rejected, and that one
/// for which it names a time is sent as often as it asks.
#[tokio::test]
async fn what_is_throttled_is_sent_twice_again() {
    for pushes in [false, true] {
        let peer = HttpPeer::start(vec![Reaction::answer(429, b"rate limit"); 3]).await;
        let to = if pushes { target(Pyroscope::new(peer.url())) } else { target(Otlp::http(peer.url())) };
        let rig = Rig::start(vec![to], limits());
        rig.offer(&set(10));
        rig.offer(&set(7));
        rig.settle().await;
        let requests = peer.requests();
        assert!(requests.len() == 4 && requests[..3].iter().all(|request| request.body == requests[0].body));
        assert!(rig.last_error().contains("429 Too Many Requests: rate limit"), "{}", rig.last_error());
        let account = rig.account();
        assert_eq!((account.exported, account.lost.count(Cause::Rejected), account.lost.total()), (7, 10, 10));
    }
    let asking = Reaction::Answer(429, vec![("retry-after", "0".into())], Vec::new());
    let peer = HttpPeer::start(vec![asking; 5]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    rig.offer(&set(10));
    rig.settle().await;
    assert_eq!(peer.requests().len(), 6);
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that flush sends at once what waits for a retry, if the peer is back.
#[tokio::test]
async fn flush_cuts_a_backoff_short() {
    let (_port, address) = free_address();
    let rig = Rig::start(vec![target(Otlp::grpc(format!("http://{address}")))], slow());
    rig.offer(&set(10));
    rig.failure().await;
    let peer = GrpcPeer::start_at(address, []).await;
    rig.settle().await;
    assert_eq!(stacks(&peer.calls()[0].message), 10);
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that a program that flushes all the time does not beat on a peer that is down.
#[tokio::test]
async fn flushing_all_the_time_is_harmless() {
    let (_port, address) = free_address();
    let rig = Rig::start(vec![target(Otlp::http(format!("http://{address}")))], slow());
    rig.offer(&set(10));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert!(!rig.exporter.flush(Duration::from_millis(1)).await);
    }
    let (tried, at_most) = (rig.stats(0).requests, 1 + start.elapsed().as_millis() / 100);
    assert!(tried > 1 && u128::from(tried) <= at_most, "{tried} of {at_most}");
}

/// Check that what piled up in an outage goes out no faster than a megabyte a second, so that a peer that bounds the rate takes it.
#[tokio::test]
async fn what_piled_up_is_paced() {
    let (_port, address) = free_address();
    let rig = Rig::to([Otlp::http(format!("http://{address}"))]);
    let sets = 8_u64;
    (0..sets).for_each(|_| rig.offer(&Arc::new(cpu_profile(10, 1000))));
    rig.failure().await;
    let peer = HttpPeer::start_at(address, []).await;
    rig.until("all is sent", |rig| rig.account().pending == 0).await;
    rig.assert_settled(10 * sets, 0, Cause::Rejected);
    let requests = peer.requests();
    let gaps = requests.windows(2).map(|pair| (pair[1].at - pair[0].at, pair[0].message().len()));
    for (gap, bytes) in gaps {
        assert!(bytes > 50_000 && gap >= Duration::from_micros(bytes as u64), "{bytes} bytes, then {gap:?}");
    }
    assert_eq!(requests.len() as u64, sets);
}

/// Check that flush does not wait for the pace: what would be paced for a minute goes out at once.
#[tokio::test]
async fn flush_lifts_the_pace() {
    let (_port, address) = free_address();
    let mut limits = slow();
    limits.request_bytes = 20_000_000;
    let rig = Rig::start(vec![target(Otlp::http(format!("http://{address}")))], limits);
    let mut large = cpu_profile(10, 10);
    large.scope.version = "0".repeat(10_000_000);
    (0..6).for_each(|_| rig.offer(&Arc::new(large.clone())));
    rig.failure().await;
    let peer = HttpPeer::start_at(address, []).await;
    rig.settle().await;
    assert_eq!(peer.requests().len(), 6);
    rig.assert_settled(60, 0, Cause::Shutdown);
}
