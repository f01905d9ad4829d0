//! Servers that answer before they have read the request, as they do with one that is too large or of somebody whom they do not know.

use profiler::export::{Compression, Otlp};
use profiler_proto::loss::Cause;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::h2_peer::{Fault, H2Peer};
use super::profiles::set;
use super::rig::Rig;

/// A set whose request is more than the kernel takes from us without a reader.
const LARGE: u32 = 20_000;

/// Check that an answer is heard that comes before the body is read, though the connection is closed on the rest of it: what is refused is not sent
/// again.
#[tokio::test]
async fn an_answer_before_the_body_is_heard() {
    for (status, expected) in [("413 Payload Too Large", "413"), ("401 Unauthorized", "401")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    stream.read_buf(&mut head).await.unwrap();
                }
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let rig = Rig::to([Otlp::http(url).compression(Compression::None)]);
        rig.offer(&set(LARGE));
        rig.settle().await;
        assert!(rig.last_error().contains(expected), "{}", rig.last_error());
        rig.assert_settled(0, u64::from(LARGE), Cause::Rejected);
        assert_eq!(rig.stats(0).retried, 0, "{status}");
    }
}

/// Check the same of gRPC.
#[tokio::test]
async fn a_status_before_the_body_is_heard() {
    let peer = H2Peer::start([Fault::RefuseEarly; 100]).await;
    let rig = Rig::to([Otlp::grpc(peer.url()).compression(Compression::None)]);
    rig.offer(&set(LARGE));
    rig.settle().await;
    assert!(rig.last_error().contains("UNAUTHENTICATED"), "{}", rig.last_error());
    rig.assert_settled(0, u64::from(LARGE), Cause::Rejected);
    assert_eq!(rig.stats(0).retried, 0);
}
