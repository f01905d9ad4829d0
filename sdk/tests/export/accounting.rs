//! Several destinations, bounds, flush and shutdown: every stack is exported or lost, once, by the right cause.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use profiler::Ledger;
use profiler::export::{Exporter, Limits, Otlp, Target, resolve};
use profiler_proto::ProfileSet;
use profiler_proto::loss::Cause;
use profiler_proto::split::request_bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::grpc_peer::GrpcPeer;
use super::http_peer::{HttpPeer, Reaction, Received, free_address};
use super::profiles::{cpu_profile, decode, set, stacks};
use super::rig::{PATIENCE, Rig, limits, target};

/// A local destination with what it was given.
fn store() -> (Target, Arc<Mutex<Vec<Arc<ProfileSet>>>>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let deliver = move |set: &Arc<ProfileSet>| keep.lock().unwrap().push(Arc::clone(set));
    (Target::local("store", Arc::new(deliver)), kept)
}

/// Check that without any destination everything is lost for that reason, at once.
#[tokio::test]
async fn without_a_destination_everything_is_lost() {
    let rig = Rig::start(Vec::new(), limits());
    rig.offer(&set(10));
    rig.assert_settled(0, 10, Cause::NoDestination);
}

/// Check that a store alone counts as export, and gets the set itself, not a copy.
#[tokio::test]
async fn a_store_alone_counts() {
    let (local, kept) = store();
    let rig = Rig::start(vec![local], limits());
    let offered = set(10);
    rig.offer(&offered);
    assert!(Arc::ptr_eq(&kept.lock().unwrap()[0], &offered));
    rig.assert_settled(10, 0, Cause::NoDestination);
    assert_eq!((rig.stats(0).name.as_str(), rig.stats(0).delivered), ("store", 10));
}

/// Check that a store does not count beside a destination that refuses.
#[tokio::test]
async fn a_store_beside_a_refusing_peer_does_not_count() {
    let peer = HttpPeer::start([Reaction::answer(400, b"")]).await;
    let (local, kept) = store();
    let remote = target(Otlp::http(peer.url()));
    let rig = Rig::start(vec![local, remote], limits());
    rig.offer(&set(10));
    rig.settle().await;
    rig.assert_settled(0, 10, Cause::Rejected);
    assert_eq!((kept.lock().unwrap().len(), rig.stats(0).delivered, rig.stats(1).delivered), (1, 10, 0));
}

/// Check that a destination that hangs holds up no other, and that stacks count once, by whoever accepted first.
#[tokio::test]
async fn a_hanging_destination_holds_up_no_other() {
    let hanging = HttpPeer::start(vec![Reaction::Hang; 100]).await;
    let (http, grpc) = (HttpPeer::start([]).await, GrpcPeer::start([]).await);
    let rig = Rig::to([Otlp::http(hanging.url()), Otlp::http(http.url()), Otlp::grpc(grpc.url())]);
    for _ in 0..3 {
        rig.offer(&set(10));
    }
    rig.until("the others have all", |rig| rig.stats(1).delivered + rig.stats(2).delivered == 60).await;
    assert_eq!((rig.account().exported, rig.account().pending, rig.stats(0).queued), (30, 0, 30));
    assert!(!rig.exporter.flush(Duration::from_millis(50)).await);
    let messages: Vec<_> = http.requests().iter().map(Received::message).collect();
    assert_eq!(messages.iter().map(|message| stacks(message)).sum::<u64>(), 30);
    // What a server of gRPC has taken apart and put together again has the order of fields that its library gives them.
    let sets = |messages: Vec<Vec<u8>>| messages.iter().map(|message| decode(message)).collect::<Vec<_>>();
    assert_eq!(sets(messages), sets(grpc.calls().into_iter().map(|call| call.message).collect()));

    assert!(!rig.exporter.shutdown(Duration::from_millis(50)).await);
    rig.assert_settled(30, 0, Cause::Shutdown);
    assert_eq!((rig.stats(0).dropped.count(Cause::Shutdown), rig.stats(1).delivered), (30, 30));
}

/// Check that a queue stays within its bound while the peer is down: the oldest go, what is left arrives.
#[tokio::test]
async fn a_full_queue_loses_the_oldest() {
    let (_port, address) = free_address();
    let mut limits = limits();
    limits.queue_bytes = 4000;
    let rig = Rig::start(vec![target(Otlp::http(format!("http://{address}")))], limits);
    for stacks in 1..=100 {
        rig.offer(&set(stacks));
    }
    let offered: u64 = (1..=100).sum();
    let lost = rig.account().lost.count(Cause::QueueFull);
    assert_eq!(rig.account().pending, offered - lost);
    assert_eq!((rig.stats(0).queued, rig.stats(0).dropped.total()), (offered - lost, lost));

    let peer = HttpPeer::start_at(address, []).await;
    rig.settle().await;
    let arrived: Vec<u64> = peer.requests().iter().map(|request| stacks(&request.message())).collect();
    let newest: Vec<u64> = (101 - arrived.len() as u64..=100).collect();
    assert_eq!(arrived, newest, "the newest, in order");
    assert!(peer.requests().iter().map(|request| request.body.len() + 5).sum::<usize>() <= 4000);
    rig.assert_settled(arrived.iter().sum(), lost, Cause::QueueFull);
}

/// Check that a large set goes out in requests within the bound, and that each is settled on its own.
#[tokio::test]
async fn a_large_set_is_settled_in_parts() {
    let grpc = GrpcPeer::start([]).await;
    let http = HttpPeer::start([Reaction::answer(400, b""), Reaction::answer(200, b"")]).await;
    let (refused, kept) = {
        let rig = Rig::start(vec![target(Otlp::http(http.url()))], small_requests());
        rig.offer(&Arc::new(cpu_profile(1000, 500)));
        rig.settle().await;
        let parts: Vec<u64> = http.requests().iter().map(|request| stacks(&request.message())).collect();
        assert!(parts.len() > 1 && parts.iter().sum::<u64>() == 1000, "{parts:?}");
        rig.assert_settled(1000 - parts[0], parts[0], Cause::Rejected);
        (parts[0], 1000 - parts[0])
    };
    let endpoints = [Otlp::http(http.url()), Otlp::grpc(grpc.url())].map(target);
    let rig = Rig::start(endpoints.into(), small_requests());
    rig.offer(&Arc::new(cpu_profile(1000, 500)));
    rig.settle().await;
    assert!(grpc.calls().iter().all(|call| request_bytes(&decode(&call.message)) <= small_requests().request_bytes));
    assert_eq!(grpc.calls().iter().map(|call| stacks(&call.message)).sum::<u64>(), refused + kept);
    rig.assert_settled(1000, 0, Cause::Rejected);
}

/// Check that what no request can hold is lost as too large, to every destination, and that an empty set is not sent.
#[tokio::test]
async fn what_no_request_can_hold_is_lost() {
    let peer = HttpPeer::start([]).await;
    let mut limits = limits();
    limits.request_bytes = 100;
    let rig = Rig::start(vec![target(Otlp::http(peer.url()))], limits);
    rig.offer(&set(10));
    rig.offer(&set(0));
    rig.settle().await;
    rig.assert_settled(0, 10, Cause::TooLarge);
    assert_eq!((rig.stats(0).dropped.count(Cause::TooLarge), peer.requests().len()), (10, 0));
}

fn small_requests() -> Limits {
    let mut limits = limits();
    limits.request_bytes = 8000;
    limits
}

/// Check that shutdown keeps to its time with a dead peer, counts what is left, and that offering later is harmless.
#[tokio::test]
async fn shutdown_is_bounded_and_final() {
    let peer = HttpPeer::start(vec![Reaction::Hang; 10]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    for _ in 0..5 {
        rig.offer(&set(10));
    }
    let start = Instant::now();
    assert!(!rig.exporter.shutdown(Duration::from_millis(100)).await);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    rig.assert_settled(0, 50, Cause::Shutdown);
    rig.offer(&set(10));
    rig.assert_settled(0, 60, Cause::Shutdown);
}

/// Check that shutdown delivers what waits for a retry, if the peer is back, instead of sleeping its time away.
#[tokio::test]
async fn shutdown_tries_once_more() {
    let (_port, address) = free_address();
    let mut limits = limits();
    limits.retry.initial = Duration::from_secs(3600);
    limits.retry.max = Duration::from_secs(3600);
    let rig = Rig::start(vec![target(Otlp::grpc(format!("http://{address}")))], limits);
    rig.offer(&set(10));
    rig.failure().await;
    let peer = GrpcPeer::start_at(address, []).await;
    assert!(rig.exporter.shutdown(Duration::from_secs(10)).await);
    assert_eq!(stacks(&peer.calls()[0].message), 10);
    rig.assert_settled(10, 0, Cause::Shutdown);
}

/// Check that peers that speak something else, answer byte by byte without end, or hang up are survived, named, and
/// given up in time.
#[tokio::test]
async fn peers_that_make_no_sense_are_survived() {
    for greeting in ["SSH-2.0-OpenSSH_10.0\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(greeting.as_bytes()).await;
                    while !greeting.is_empty() && stream.write_all(b"x").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                });
            }
        });
        for otlp in [Otlp::http(url.clone()), Otlp::grpc(url)] {
            let rig = Rig::to([otlp.timeout(Duration::from_millis(300))]);
            rig.offer(&set(10));
            assert!(!rig.failure().await.is_empty());
            assert!(!rig.exporter.shutdown(Duration::ZERO).await);
            rig.assert_settled(0, 10, Cause::Shutdown);
        }
    }
}

/// Check that an exporter dropped without shutdown still settles what it had.
#[tokio::test]
async fn a_dropped_exporter_settles_what_it_had() {
    let peer = HttpPeer::start([Reaction::Hang]).await;
    let Rig { exporter, ledger } = {
        let rig = Rig::to([Otlp::http(peer.url())]);
        rig.offer(&set(10));
        rig
    };
    drop(exporter);
    let account = ledger.account();
    assert_eq!((account.pending, account.lost.count(Cause::Shutdown)), (0, 10));
    assert!(account.balances());
}

/// Check that sets may be offered from many threads while they are being delivered.
#[tokio::test]
async fn sets_may_be_offered_from_any_thread() {
    let peer = GrpcPeer::start([]).await;
    let rig = Rig::to([Otlp::grpc(peer.url())]);
    let offered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for stacks in 1..=10 {
                    rig.offer(&set(stacks));
                    offered.fetch_add(u64::from(stacks), Ordering::Relaxed);
                }
            });
        }
    });
    rig.settle().await;
    let arrived: u64 = peer.calls().iter().map(|call| stacks(&call.message)).sum();
    assert_eq!((arrived, offered.into_inner()), (220, 220));
    rig.assert_settled(220, 0, Cause::Rejected);
}

/// Check that the environment alone leads to a server, by the path and protocol that it names.
#[tokio::test]
async fn the_environment_leads_to_a_server() {
    let (http, grpc) = (HttpPeer::start([]).await, GrpcPeer::start([]).await);
    let grpc_address = grpc.address.to_string();
    let variables: [(&[(&str, &str)], &str); 2] = [
        (&[("OTEL_EXPORTER_OTLP_ENDPOINT", &http.url()), ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")], "http"),
        (
            &[
                ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", &grpc_address),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
            ],
            "grpc",
        ),
    ];
    for (variables, name) in variables {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| OsString::from(v));
        let rig = Rig::start(resolve(Vec::new(), &lookup).unwrap(), limits());
        rig.offer(&set(10));
        rig.settle().await;
        rig.assert_settled(10, 0, Cause::Rejected);
        assert!(rig.stats(0).name.starts_with(&format!("otlp-{name} http://127.0.0.1:")), "{}", rig.stats(0).name);
    }
    assert_eq!(http.requests()[0].headers["x-tenant"], "a b");
    assert_eq!((http.requests().len(), grpc.calls().len()), (1, 1));
}

/// Check that starting outside a runtime is a named error, not a panic.
#[test]
fn starting_outside_a_runtime_is_an_error() {
    let error = Exporter::start(Vec::new(), Arc::new(Ledger::default()), limits()).unwrap_err();
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
}

/// Check what flush answers: true where all destinations accepted all that waited, false where one refused something, or the
/// time was over; and that what was lost before is not told again.
#[tokio::test]
async fn flush_is_true_where_all_was_accepted() {
    let good = HttpPeer::start([]).await;
    let peer =
        HttpPeer::start([Reaction::answer(200, b""), Reaction::answer(400, b"no"), Reaction::answer(200, b"")]).await;
    let rig = Rig::to([Otlp::http(good.url()), Otlp::http(peer.url())]);
    let mut answers = Vec::new();
    for _ in 0..3 {
        rig.offer(&set(10));
        answers.push(rig.exporter.flush(PATIENCE).await);
    }
    assert_eq!(answers, [true, false, true]);
    assert_eq!((rig.stats(1).delivered, rig.account().exported), (20, 30));
}

/// Check that a set without samples, which is not sent, is nothing that a flush meanwhile could miss.
#[tokio::test]
async fn an_empty_set_is_nothing_that_flush_misses() {
    let may_answer = Arc::new(Notify::new());
    let peer = HttpPeer::start([Reaction::Hold(Arc::clone(&may_answer))]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    rig.offer(&set(10));
    let meanwhile = async {
        rig.until("it is being sent", |_| peer.requests().len() == 1).await;
        rig.offer(&set(0));
        may_answer.notify_one();
    };
    let (flushed, ()) = tokio::join!(rig.exporter.flush(PATIENCE), meanwhile);
    assert!(flushed);
}

/// Check that shutdown, too, is not true where something was refused.
#[tokio::test]
async fn shutdown_is_false_where_something_was_refused() {
    for (status, expected) in [(200, true), (400, false)] {
        let peer = HttpPeer::start([Reaction::answer(status, b"")]).await;
        let rig = Rig::to([Otlp::http(peer.url())]);
        rig.offer(&set(10));
        assert_eq!(rig.exporter.shutdown(PATIENCE).await, expected, "{status}");
    }
}
