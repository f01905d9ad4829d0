//! OTLP over HTTP.

use std::time::{Duration, Instant, SystemTime};

use profiler::export::{Compression, Otlp};
use profiler_proto::loss::Cause;

use super::http_peer::{HttpPeer, Reaction, free_address};
use super::profiles::{decode, set, stacks};
use super::rig::Rig;

/// Check that a set arrives as it was offered, under the path, headers and compression that were asked for.
#[tokio::test]
async fn a_set_arrives_as_it_was_offered() {
    for compression in [Compression::Gzip, Compression::None] {
        let peer = HttpPeer::start([]).await;
        let otlp = Otlp::http(peer.url()).header("x-tenant", "shop").compression(compression);
        let (rig, offered) = (Rig::to([otlp]), set(40));
        rig.offer(&offered);
        rig.settle().await;

        let request = peer.requests().remove(0);
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1development/profiles"));
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        assert_eq!(request.headers["x-tenant"], "shop");
        assert_eq!(request.headers["host"], peer.url().trim_start_matches("http://"));
        assert!(request.headers["user-agent"].to_str().unwrap().starts_with("profiler-sdk/"));
        assert_eq!(request.headers.contains_key("content-encoding"), compression == Compression::Gzip);
        assert_eq!(decode(&request.message()), offered.compacted());
        rig.assert_settled(40, 0, Cause::Rejected);
        assert_eq!((rig.stats(0).delivered, rig.stats(0).last_error), (40, None));
    }
}

/// Check that requests share one connection, and that a new one is made when the server has closed it.
#[tokio::test]
async fn a_connection_is_kept_and_replaced() {
    let closing = Reaction::Answer(200, vec![("connection", "close".into())], Vec::new());
    let peer = HttpPeer::start([Reaction::answer(200, b""), closing]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    for expected in [1, 1, 2] {
        rig.offer(&set(10));
        rig.settle().await;
        assert_eq!(peer.connections(), expected);
    }
    rig.assert_settled(30, 0, Cause::Rejected);
}

/// Check that an empty partial success is a success, and that a warning is kept beside one.
#[tokio::test]
async fn an_empty_partial_success_is_a_success() {
    let warning = b"\x0a\x0a\x12\x08old attr";
    let peer = HttpPeer::start([Reaction::answer(200, &[0x0a, 0x00]), Reaction::answer(200, warning)]).await;
    let rig = Rig::to([Otlp::http(peer.url())]);
    rig.offer(&set(10));
    rig.settle().await;
    assert_eq!(rig.stats(0).last_error, None);
    rig.offer(&set(5));
    rig.settle().await;
    assert_eq!(rig.last_error(), "old attr");
    rig.assert_settled(15, 0, Cause::Rejected);
}

/// Check that refusals are final: one request each, its stacks lost as rejected, the reason kept.
#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let partial = b"\x0a\x0c\x08\x01\x12\x08too many";
    let cases = [
        (Reaction::answer(200, partial), "rejected 1 profiles: too many"),
        (Reaction::answer(200, b"<html>log in</html>"), "<html>log in</html>"),
        (Reaction::answer(400, b"no mapping"), "400 Bad Request: no mapping"),
        (Reaction::answer(413, b""), "413 Payload Too Large"),
        (Reaction::answer(500, b"oops"), "500 Internal Server Error: oops"),
        (Reaction::Answer(308, vec![("location", "http://127.0.0.1:1/".into())], Vec::new()), "http://127.0.0.1:1/"),
        (Reaction::Endless, "longer than any OTLP answer"),
    ];
    for (reaction, expected) in cases {
        let peer = HttpPeer::start([reaction]).await;
        let rig = Rig::to([Otlp::http(peer.url())]);
        rig.offer(&set(10));
        rig.settle().await;
        assert!(rig.last_error().contains(expected), "{}", rig.last_error());
        rig.assert_settled(0, 10, Cause::Rejected);
        assert_eq!((peer.requests().len(), rig.stats(0).dropped.count(Cause::Rejected)), (1, 10));

        rig.offer(&set(7));
        rig.settle().await;
        let account = rig.account();
        assert_eq!((account.exported, account.lost.total()), (7, 10), "the next one is not harmed");
    }
}

/// Check that what may be retried is, with the same body, until it is accepted.
#[tokio::test]
async fn what_may_be_retried_is_sent_again() {
    let cases = [
        Reaction::answer(429, b""),
        Reaction::answer(502, b""),
        Reaction::answer(503, b""),
        Reaction::answer(504, b""),
        Reaction::Close,
        Reaction::BreakOff,
        Reaction::Hang,
    ];
    for reaction in cases {
        let peer = HttpPeer::start([reaction.clone(), reaction.clone()]).await;
        // Short only where an attempt must time out: a slow machine must not fail the others.
        let timeout = if matches!(reaction, Reaction::Hang) { 500 } else { 10_000 };
        let rig = Rig::to([Otlp::http(peer.url()).timeout(Duration::from_millis(timeout))]);
        rig.offer(&set(10));
        rig.settle().await;
        let requests = peer.requests();
        assert_eq!(requests.len(), 3, "{reaction:?}");
        assert!(requests.iter().all(|request| request.body == requests[0].body), "{reaction:?}");
        assert_eq!(stacks(&requests[2].message()), 10);
        rig.assert_settled(10, 0, Cause::Rejected);
    }
}

/// Check that `Retry-After` is obeyed in both of its forms, although our own backoff is shorter.
#[tokio::test]
async fn retry_after_is_obeyed() {
    // A date has whole seconds: one that is 2 s ahead is between 1 s and 2 s away.
    let date = || httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
    for after in [|| "1".to_owned(), date].map(|text: fn() -> String| text) {
        let after = after();
        let peer = HttpPeer::start([Reaction::Answer(503, vec![("retry-after", after.clone())], Vec::new())]).await;
        let rig = Rig::to([Otlp::http(peer.url())]);
        let start = Instant::now();
        rig.offer(&set(10));
        rig.settle().await;
        let obeyed = match httpdate::parse_http_date(&after) {
            Ok(date) => SystemTime::now() >= date,
            Err(_) => start.elapsed() >= Duration::from_secs(1),
        };
        assert!(obeyed, "{after}: {:?}", start.elapsed());
        assert_eq!(peer.requests().len(), 2);
        rig.assert_settled(10, 0, Cause::Rejected);
    }
}

/// Check that a collector that is started later gets what was offered before.
#[tokio::test]
async fn a_collector_may_be_started_later() {
    let (_port, address) = free_address();
    let rig = Rig::to([Otlp::http(format!("http://{address}"))]);
    rig.offer(&set(10));
    let error = rig.failure().await;
    assert!(error.contains("Connection refused"), "{error}");
    assert_eq!((rig.account().pending, rig.stats(0).queued), (10, 10));

    let peer = HttpPeer::start_at(address, []).await;
    rig.settle().await;
    assert_eq!(stacks(&peer.requests()[0].message()), 10);
    rig.assert_settled(10, 0, Cause::Rejected);
}
