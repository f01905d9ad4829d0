//! Every answer that there is, against what OTLP has to be done about it; each counted exactly.
//!
//! What happens to connections is in `tests/export` (a proxy that breaks them) and here, where the server itself does it in frames of
//! HTTP/2. `Retry-After`, `RetryInfo`, redirects, endless and odd bodies, and TLS have tests of their own in `http`, `grpc` and `tls`.

use std::time::Duration;

use profiler::export::Otlp;
use profiler_proto::loss::Cause;
use tonic::{Code, Status};

use super::grpc_peer::{self, GrpcPeer};
use super::h2_peer::{Fault, H2Peer};
use super::http_peer::{HttpPeer, Reaction};
use super::profiles::set;
use super::rig::Rig;

/// Offers 3 stacks, and checks whether they arrive, or are rejected, after so many requests more.
async fn assert_row(rig: &Rig, exported: bool, requests: u64, row: &str) {
    let (before, of_all) = (rig.account(), rig.stats(0).requests);
    rig.offer(&set(3));
    rig.until(row, |rig| rig.account().pending == 0).await;
    let (account, stats) = (rig.account(), rig.stats(0));
    let expected = if exported { (3, 0) } else { (0, 3) };
    let lost = account.lost.count(Cause::Rejected) - before.lost.count(Cause::Rejected);
    assert_eq!((account.exported - before.exported, lost), expected, "{row}: {:?}", stats.last_error);
    assert_eq!((account.lost.total(), stats.requests - of_all), (before.lost.total() + lost, requests), "{row}");
}

/// Check every status of HTTP that an answer can have: which are a success, which are tried again, and that no other is.
#[tokio::test]
async fn every_status_of_http_is_dealt_with_as_otlp_says() {
    let is_retried = |status: u16| matches!(status, 429 | 502 | 503 | 504);
    let answers = |status: u16| std::iter::once(status).chain(is_retried(status).then_some(200));
    let script = (200..=599).flat_map(answers).map(|status| Reaction::answer(status, b""));
    let peer = HttpPeer::start(script).await;
    let rig = Rig::to([Otlp::http(peer.url()).timeout(Duration::from_secs(60))]);
    for status in 200..=599 {
        let arrives = status < 300 || is_retried(status);
        assert_row(&rig, arrives, if is_retried(status) { 2 } else { 1 }, &format!("HTTP {status}")).await;
    }
    assert_eq!((peer.requests().len(), rig.stats(0).retried), (404, 4));
}

/// Check every code of gRPC in the same way.
#[tokio::test]
async fn every_code_of_grpc_is_dealt_with_as_otlp_says() {
    let is_retried = |code: i32| matches!(code, 1 | 4 | 10 | 11 | 14 | 15);
    let failed = |code: i32| grpc_peer::Reaction::Fail(Status::new(Code::from_i32(code), "so it is"));
    let answers =
        |code: i32| std::iter::once(failed(code)).chain(is_retried(code).then_some(grpc_peer::Reaction::Ok(None)));
    let peer = GrpcPeer::start((1..=16).flat_map(answers)).await;
    let rig = Rig::to([Otlp::grpc(peer.url()).timeout(Duration::from_secs(60))]);
    for code in 1..=16 {
        let again = is_retried(code);
        assert_row(&rig, again, if again { 2 } else { 1 }, &format!("gRPC {:?}", Code::from_i32(code))).await;
    }
    assert_eq!((peer.calls().len(), rig.stats(0).retried), (22, 6));
}

/// Check what a server can do to streams and connections of HTTP/2: nothing is lost but what it refuses, and a connection is made anew exactly
/// where the old one is of no use.
#[tokio::test]
async fn what_a_server_does_to_streams_and_connections_is_survived() {
    // Codes: NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM.
    let rows = [
        (Fault::Answer, true, 1),
        (Fault::Reset(0), true, 2),
        (Fault::Reset(2), true, 2),
        (Fault::Reset(7), true, 2),
        (Fault::Reset(8), true, 2),
        (Fault::AnswerAndGoAway, true, 1),
        (Fault::GoAway(0), true, 2),
        (Fault::GoAway(11), true, 2),
        (Fault::LongFrame, true, 2),
        (Fault::Garbage, true, 2),
        (Fault::OddStatus, false, 1),
    ];
    for (fault, arrives, requests) in rows {
        let peer = H2Peer::start([fault]).await;
        let rig = Rig::to([Otlp::grpc(peer.url()).timeout(Duration::from_secs(60))]);
        assert_row(&rig, arrives, requests, &format!("{fault:?}")).await;
        assert_eq!(peer.counts().0 as u64, requests, "{fault:?}");
        assert_row(&rig, true, 1, &format!("after {fault:?}")).await;
        let connections = peer.counts().1;
        let expected = if matches!(fault, Fault::Answer | Fault::OddStatus) { 1 } else { 2 };
        assert_eq!(connections, expected, "{fault:?}");
    }
}
