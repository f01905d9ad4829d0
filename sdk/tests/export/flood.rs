//! Peers that say without end what is no answer: little of it is read, it is said, and other destinations do not notice.
//!
//! Such a peer has a thread of its own, for it must be able to fill a connection faster than the exporter empties it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use profiler::export::Otlp;
use profiler_proto::loss::Cause;

use super::http_peer::HttpPeer;
use super::profiles::set;
use super::rig::{PATIENCE, Rig};

/// Bytes that a peer may get rid of: what is read of an answer (5 MiB), and what the kernel holds of both sides.
const MOST: usize = 32 << 20;

/// Answers the first request on the first connection with `greeting`, then with `block` until nobody takes it. Its URL, and how many bytes it got rid of.
fn flood(greeting: &'static [u8], block: Vec<u8>) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        stream.read_exact(&mut [0; 24]).unwrap();
        let mut written = 0;
        let mut next = greeting;
        while let Ok(count) = stream.write(next) {
            written += count;
            next = &block;
        }
        written
    });
    (url, peer)
}

/// Check that a peer that answers with early hints alone, or with frames that mean nothing, is not read for longer than an answer may be, and
/// that another destination gets its profiles meanwhile.
#[tokio::test]
async fn what_is_no_answer_is_not_read_without_end() {
    let hints = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n".repeat(1000);
    // Of HTTP/2: settings, which are none; then frames of a type that nobody knows (RFC 9113, sections 4.1, 5.5, 6.5).
    let unknown = [&[0, 64, 0, 0xfa, 0, 0, 0, 0, 0][..], &[0; 16 << 10]].concat();
    let http = flood(b"HTTP/1.1 100 Continue\r\n\r\n", hints);
    let grpc = flood(&[0, 0, 0, 4, 0, 0, 0, 0, 0], unknown);
    for (otlp, peer) in [(Otlp::http(http.0), http.1), (Otlp::grpc(grpc.0), grpc.1)] {
        let good = HttpPeer::start([]).await;
        let rig = Rig::to([otlp.timeout(PATIENCE / 4), Otlp::http(good.url())]);
        rig.offer(&set(10));
        let why = rig.failure().await;
        assert!(why.contains("says more than an answer may have"), "{why}");
        rig.until("the other one has all", |rig| rig.stats(1).delivered == 10).await;
        let written = peer.join().unwrap();
        assert!(written < MOST, "{written}");
        assert!(!rig.exporter.shutdown(Duration::ZERO).await);
        rig.assert_settled(10, 0, Cause::Rejected);
    }
}
