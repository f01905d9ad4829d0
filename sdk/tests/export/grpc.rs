//! OTLP over gRPC.

use std::time::{Duration, Instant};

use bytes::Bytes;
use profiler::export::{Compression, Otlp};
use profiler_proto::loss::Cause;
use tonic::{Code, Status};

use super::grpc_peer::{GrpcPeer, Reaction};
use super::http_peer::{self, HttpPeer, free_address};
use super::profiles::{decode, set, stacks};
use super::rig::Rig;

/// Check that a set arrives as it was offered, with the metadata and compression that were asked for.
#[tokio::test]
async fn a_set_arrives_as_it_was_offered() {
    for (compression, encoding) in [(Compression::Gzip, Some("gzip")), (Compression::None, None)] {
        let peer = GrpcPeer::start([]).await;
        let otlp = Otlp::grpc(peer.url()).header("x-tenant", "shop").compression(compression);
        let (rig, offered) = (Rig::to([otlp]), set(40));
        rig.offer(&offered);
        rig.settle().await;

        let call = peer.calls().remove(0);
        let metadata = |key| call.metadata.get(key).map(|value| value.to_str().unwrap());
        assert_eq!((metadata("x-tenant"), metadata("grpc-encoding")), (Some("shop"), encoding));
        assert_eq!(metadata("grpc-timeout"), Some("10000m"));
        assert!(metadata("user-agent").is_some_and(|agent| agent.starts_with("profiler-sdk/")));
        assert_eq!(decode(&call.message), offered.compacted());
        rig.assert_settled(40, 0, Cause::Rejected);
    }
}

/// A text of so many bytes that compression makes little shorter: the top bits of a linear congruential generator (Knuth, MMIX).
fn incompressible(bytes: usize) -> String {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let letters = std::iter::successors(Some(1_u64), next).map(|state| char::from(b'0' + (state >> 58) as u8));
    letters.take(bytes).collect()
}

/// Check that refusals are final: one call each, its stacks lost as rejected, the reason kept.
#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let cases = [
        (Reaction::Ok(Some((3, "too old".into()))), "rejected 3 profiles: too old"),
        (Reaction::Ok(Some((0, "x".repeat(5 << 20)))), "a message that cannot be read"),
        (Reaction::Ok(Some((0, incompressible(8 << 20)))), "longer than any answer"),
        (Reaction::Fail(Status::invalid_argument("no mapping")), "INVALID_ARGUMENT: no mapping"),
        (Reaction::Fail(Status::unimplemented("")), "UNIMPLEMENTED"),
        (Reaction::Fail(Status::resource_exhausted("full")), "RESOURCE_EXHAUSTED: full"),
        (Reaction::Fail(Status::internal("oops")), "INTERNAL: oops"),
        (Reaction::Fail(Status::unknown("?")), "UNKNOWN: ?"),
    ];
    for (reaction, expected) in cases {
        let peer = GrpcPeer::start([reaction]).await;
        let rig = Rig::to([Otlp::grpc(peer.url())]);
        rig.offer(&set(10));
        rig.settle().await;
        assert!(rig.last_error().contains(expected), "{}", rig.last_error());
        rig.assert_settled(0, 10, Cause::Rejected);
        assert_eq!(peer.calls().len(), 1);

        rig.offer(&set(7));
        rig.settle().await;
        let account = rig.account();
        assert_eq!((account.exported, account.lost.total()), (7, 10), "the next one is not harmed");
    }
}

/// Check that what may be retried is, with the same message, until it is accepted.
#[tokio::test]
async fn what_may_be_retried_is_sent_again() {
    let cases = [
        Reaction::Fail(Status::cancelled("")),
        Reaction::Fail(Status::deadline_exceeded("")),
        Reaction::Fail(Status::aborted("")),
        Reaction::Fail(Status::out_of_range("")),
        Reaction::Fail(Status::unavailable("")),
        Reaction::Fail(Status::data_loss("")),
        Reaction::Close,
        Reaction::Hang,
    ];
    for reaction in cases {
        let peer = GrpcPeer::start([reaction.clone(), reaction.clone()]).await;
        // Short only where an attempt must time out: a slow machine must not fail the others.
        let timeout = if matches!(reaction, Reaction::Hang) { 500 } else { 10_000 };
        let rig = Rig::to([Otlp::grpc(peer.url()).timeout(Duration::from_millis(timeout))]);
        rig.offer(&set(10));
        rig.settle().await;
        let calls = peer.calls();
        assert_eq!(calls.len(), 3, "{reaction:?}");
        assert!(calls.iter().all(|call| call.message == calls[0].message), "{reaction:?}");
        assert_eq!(stacks(&calls[2].message), 10);
        rig.assert_settled(10, 0, Cause::Rejected);
    }
}

/// Check that `RetryInfo` makes `RESOURCE_EXHAUSTED` retryable, after the delay that it names.
#[tokio::test]
async fn retry_info_is_obeyed() {
    let field = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    // RetryInfo{Duration{nanos: 600,000,000}} in an Any in a Status, by their field numbers.
    let info = field(1, b"\x10\x80\x8c\x8d\x9e\x02");
    let any = [field(1, b"type.googleapis.com/google.rpc.RetryInfo"), field(2, &info)].concat();
    let details = [b"\x08\x08".to_vec(), field(2, b"slow down"), field(3, &any)].concat();
    let status = Status::with_details(Code::ResourceExhausted, "slow down", Bytes::from(details));
    let peer = GrpcPeer::start([Reaction::Fail(status)]).await;
    let rig = Rig::to([Otlp::grpc(peer.url())]);
    let start = Instant::now();
    rig.offer(&set(10));
    rig.settle().await;
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
    assert_eq!(peer.calls().len(), 2);
    rig.assert_settled(10, 0, Cause::Rejected);
}

/// Check that a collector that is started later, and one that is restarted, get what was offered.
#[tokio::test]
async fn a_collector_may_be_started_later_and_restarted() {
    let (_port, address) = free_address();
    let rig = Rig::to([Otlp::grpc(format!("http://{address}"))]);
    for restart in 0..3 {
        rig.offer(&set(10));
        rig.until("an attempt fails", |rig| rig.last_error().contains("Connection refused")).await;
        assert_eq!(rig.account().pending, 10);
        let peer = GrpcPeer::start_at(address, []).await;
        rig.settle().await;
        assert_eq!(stacks(&peer.calls()[0].message), 10, "restart {restart}");
        peer.stop().await;
    }
    rig.assert_settled(30, 0, Cause::Rejected);
}

/// Check that a server that speaks no HTTP/2 is survived and named.
#[tokio::test]
async fn a_server_without_http2_is_survived() {
    let peer = HttpPeer::start([http_peer::Reaction::answer(200, b"")]).await;
    let rig = Rig::to([Otlp::grpc(peer.url())]);
    rig.offer(&set(10));
    assert!(!rig.failure().await.is_empty());
    assert!(!rig.exporter.shutdown(Duration::ZERO).await);
    rig.assert_settled(0, 10, Cause::Shutdown);
}
