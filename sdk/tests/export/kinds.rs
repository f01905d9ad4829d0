//! Profiles by kind: those that stand for no on-CPU stacks are exported or lost too, once, by the right cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use profiler::KindStats;
use profiler::export::{Limits, Otlp, Target};
use profiler_proto::loss::Cause;

use super::grpc_peer::{self, GrpcPeer};
use super::http_peer::{HttpPeer, Reaction, free_address};
use super::profiles::{heap_profiles, set};
use super::rig::{Rig, limits, target};

/// Offers the four profiles of a heap.
fn offer_heap(rig: &Rig) {
    rig.offer(&Arc::new(heap_profiles(1)));
}

/// Check that profiles of the heap that are acknowledged count as exported, by a peer and by a store alone.
#[tokio::test]
async fn a_heap_that_arrives_is_counted() {
    let peer = HttpPeer::start([]).await;
    let store = Target::local("store", Arc::new(|_| {}));
    for destination in [target(Otlp::http(peer.url())), store] {
        let rig = Rig::start(vec![destination], limits());
        offer_heap(&rig);
        rig.settle().await;
        assert_eq!((rig.heap().offered, rig.heap().exported), (4, 4));
        rig.assert_settled(0, 0, Cause::Rejected);
    }
}

/// Check that profiles of the heap that are lost are counted by their cause, in all and at the destination, whatever the cause.
#[tokio::test]
async fn a_heap_that_is_lost_is_counted() {
    let (_port, away) = free_address();
    let refusing = HttpPeer::start(vec![Reaction::answer(400, b""); 2]).await;
    let [busy, silent] =
        [Reaction::answer(503, b""), Reaction::Close].map(|reaction| HttpPeer::start(vec![reaction; 2]));
    let (busy, silent) = (busy.await, silent.await);
    let url = format!("http://{away}");
    let with = |change: fn(&mut Limits)| {
        let mut limits = limits();
        change(&mut limits);
        limits
    };
    let cases = [
        (refusing.url(), limits(), Cause::Rejected),
        (busy.url(), with(|limits| limits.retry.budget = Duration::ZERO), Cause::Unreachable),
        (silent.url(), with(|limits| limits.retry.budget = Duration::ZERO), Cause::Unanswered),
        (url.clone(), with(|limits| limits.retry.max_age = Duration::ZERO), Cause::TooOld),
        (url.clone(), with(|limits| limits.queue_bytes = 10), Cause::QueueFull),
        (url.clone(), with(|limits| limits.request_bytes = 100), Cause::TooLarge),
    ];
    for (url, limits, cause) in cases {
        let rig = Rig::start(vec![target(Otlp::http(url))], limits);
        offer_heap(&rig);
        rig.settle().await;
        assert_eq!((rig.heap().offered, rig.heap().lost.count(cause)), (4, 4), "{cause:?}");
    }
    let rig = Rig::to([Otlp::http(url)]);
    offer_heap(&rig);
    assert_eq!(rig.heap().pending, 4);
    assert!(!rig.exporter.shutdown(Duration::ZERO).await);
    assert_eq!((rig.heap().offered, rig.heap().lost.count(Cause::Shutdown)), (4, 4));
    let nowhere = Rig::start(Vec::new(), limits());
    offer_heap(&nowhere);
    assert_eq!((nowhere.heap().offered, nowhere.heap().lost.count(Cause::NoDestination)), (4, 4));
}

/// Check that nothing counts as offered of profiles without samples, which are not sent.
#[tokio::test]
async fn an_empty_heap_is_not_counted() {
    let peer = HttpPeer::start([]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    rig.offer(&Arc::new(heap_profiles(0)));
    rig.settle().await;
    assert_eq!((rig.heap().offered, peer.requests().len()), (0, 0));
}

/// Check that a divided heap is accounted for in its parts, each settled on its own.
#[tokio::test]
async fn a_divided_heap_is_counted_in_parts() {
    let peer = HttpPeer::start([Reaction::answer(400, b"")]).await;
    let mut limits = limits();
    limits.request_bytes = 8000;
    let rig = Rig::start(vec![target(Otlp::http(peer.url()))], limits);
    rig.offer(&Arc::new(heap_profiles(500)));
    rig.settle().await;
    let (heap, requests) = (rig.heap(), peer.requests().len() as u64);
    assert!(requests > 4, "{requests}");
    assert_eq!((heap.offered, heap.exported, heap.lost.count(Cause::Rejected)), (requests, requests - 1, 1));
}

/// Check that what a partial success says was rejected is counted, no more than there was, and that all of the body is lost.
#[tokio::test]
async fn rejected_profiles_are_counted() {
    let partial = |rejected| grpc_peer::Reaction::Ok(Some((rejected, "too old".into())));
    let grpc = GrpcPeer::start([partial(3), partial(i64::MAX), partial(-1)]).await;
    let rig = Rig::to([Otlp::grpc(grpc.url())]);
    for (rejected, lost) in [(3, 4), (7, 8), (7, 12)] {
        offer_heap(&rig);
        rig.settle().await;
        assert_eq!((rig.stats(0).rejected_profiles, rig.heap().lost.count(Cause::Rejected)), (rejected, lost));
    }
    let http = HttpPeer::start([Reaction::answer(200, b"\x0a\x02\x08\x01"), Reaction::answer(400, b"")]).await;
    let rig = Rig::to([Otlp::http(http.url())]);
    for _ in 0..2 {
        offer_heap(&rig);
        rig.settle().await;
        assert_eq!(rig.stats(0).rejected_profiles, 1, "a refusal is no partial success");
    }
}

/// Check that the equation holds for each kind in every snapshot, in all and at each destination, while profiles come, are
/// accepted, refused and dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_snapshot_balances() {
    let answers = [200, 400, 503].map(|status| Reaction::answer(status, b""));
    let peer = HttpPeer::start(answers.into_iter().cycle().take(600)).await;
    let (_port, away) = free_address();
    let mut limits = limits();
    limits.queue_bytes = 10_000;
    let endpoints = [peer.url(), format!("http://{away}")].map(|url| target(Otlp::http(url)));
    let rig = Rig::start(endpoints.into(), limits);
    let (snapshots, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let watch = || {
        while !done.load(Ordering::Relaxed) {
            let destinations = rig.exporter.destinations();
            let kinds = destinations.iter().flat_map(|destination| &destination.kinds).copied();
            let wrong: Vec<KindStats> =
                rig.ledger.kinds().into_iter().chain(kinds).filter(|kind| !kind.balances()).collect();
            assert!(wrong.is_empty(), "{wrong:?}");
            rig.account();
            snapshots.fetch_add(1, Ordering::Relaxed);
        }
    };
    let is_sent = |kind: &KindStats| !["cpu", "heap"].contains(&kind.name) || kind.exported > 0;
    let offer = || {
        let began = Instant::now();
        for round in 0.. {
            offer_heap(&rig);
            rig.offer(&set(10));
            let is_enough = round >= 100 && snapshots.load(Ordering::Relaxed) >= 100;
            if is_enough && (rig.ledger.kinds().iter().all(is_sent) || began.elapsed() > Duration::from_secs(60)) {
                break;
            }
            if is_enough {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(watch);
            scope.spawn(offer);
        });
    });
    assert!(!rig.exporter.shutdown(Duration::from_millis(500)).await, "the second one is away");
    for kind in rig.ledger.kinds().iter().filter(|kind| ["cpu", "heap"].contains(&kind.name)) {
        assert!(kind.exported > 0 && kind.lost.total() > 0, "{kind:?}");
        assert_eq!((kind.pending, kind.balances()), (0, true), "{kind:?}");
    }
}
