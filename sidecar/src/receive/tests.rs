//! What is taken and what is refused, over real connections; the sender of well-formed requests is the SDK's exporter.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use profiler::export::{Compression, Destination, Exporter, Limits, Otlp, resolve};
use profiler_proto::loss::STACKS;
use profiler_proto::model::{Kind, Profile, Sample, Stack, Value};
use profiler_proto::{ProfileSet, otlp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// A receiver on the runtime of the test, and what it took.
struct Receiver {
    address: SocketAddr,
    intake: Arc<Intake>,
    taken: Arc<Mutex<Vec<ProfileSet>>>,
}

impl Receiver {
    fn start(bounds: Bounds) -> Self {
        let taken: Arc<Mutex<Vec<ProfileSet>>> = Arc::default();
        let sink = Arc::clone(&taken);
        let intake = Arc::new(Intake::new(Box::new(move |set| sink.lock().unwrap().push(set)), bounds.content));
        let bound = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.local_addr();
        tokio::spawn(bound.run(Arc::clone(&intake), bounds));
        Self { address, intake, taken }
    }

    /// Accepted, refused, postponed, profiles, rejected profiles.
    fn figures(&self) -> [u64; 5] {
        let figures = self.intake.figures();
        [&figures.accepted, &figures.refused, &figures.postponed, &figures.profiles, &figures.rejected_profiles]
            .map(|figure| figure.load(Ordering::Relaxed))
    }
}

/// Runs a test on a runtime of its own.
fn on_a_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.unwrap() });
}

/// A profile of three stacks in one sample of the service `shop`.
fn set() -> ProfileSet {
    let mut set = ProfileSet::default();
    set.resource.set("service.name", "shop");
    let kind = Kind::cpu(&mut set.dictionary, 10_101_010);
    let name = set.dictionary.strings.intern_str("price");
    let function = profiler_proto::model::Function { name, ..Default::default() };
    let line =
        profiler_proto::model::Line { function: set.dictionary.functions.intern(function), ..Default::default() };
    let location = profiler_proto::model::Location { lines: vec![line].into(), ..Default::default() };
    let locations = vec![set.dictionary.locations.intern(location)];
    let stack = set.dictionary.stacks.intern(Stack { locations: locations.into() });
    let stacks = set.dictionary.attribute(STACKS, Value::Int(3));
    let attributes = set.dictionary.attribute_set([stacks]);
    let samples = vec![Sample { stack, value: 3, ..Sample::default() }];
    let time_unix_nanos = 1_700_000_000_000_000_000;
    set.profiles.push(Profile { kind, time_unix_nanos, duration_nanos: 1_000_000_000, attributes, samples });
    set.compacted()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Check that what the SDK sends over either protocol, compressed or not, arrives as it was, and is acknowledged.
#[test]
fn what_the_sdk_sends_arrives() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds::default());
        let url = format!("http://{}", receiver.address);
        let ways: [fn(&str) -> Otlp; 2] = [|url| Otlp::grpc(url), |url| Otlp::http(url)];
        for way in ways {
            for compression in [Compression::Gzip, Compression::None] {
                let destination: Destination = way(&url).compression(compression).into();
                let targets = resolve(vec![destination], &|_| None).unwrap();
                let ledger = Arc::<profiler::Ledger>::default();
                let exporter = Exporter::start(targets, Arc::clone(&ledger), Limits::default()).unwrap();
                ledger.enter(3, 3, 3, &Default::default(), &Default::default());
                exporter.offer(Arc::new(set()));
                assert!(exporter.shutdown(Duration::from_secs(30)).await, "{exporter:?}");
                assert_eq!((ledger.account().exported, ledger.account().pending), (3, 0), "{exporter:?}");
            }
        }
        assert_eq!(*receiver.taken.lock().unwrap(), vec![set(); 4]);
        assert_eq!(receiver.figures(), [4, 0, 0, 4, 0]);
    });
}

/// Sends bytes, reads until the end of the connection; gives status and all of the answer.
async fn exchange(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The answer may come, and the connection end, before all is sent.
    drop(stream.write_all(request).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), answer)
}

fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

const PROFILES: &str = "/v1development/profiles";
const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";

/// Check the code of every refusal over HTTP, each with a reason in its body, and that nothing of them is taken.
#[test]
fn refusals_over_http_have_the_code_that_says_why() {
    on_a_runtime(async {
        let bounds = Bounds { body: 10_000, content: 20_000, ..Bounds::default() };
        let receiver = Receiver::start(bounds);
        let bytes = otlp::encode_to_vec(&set());
        let compressed = format!("{PROTOBUF}Content-Encoding: gzip\r\n");
        let cases: [(Vec<u8>, u16, &str); 11] = [
            (post(PROFILES, PROTOBUF, &bytes), 200, ""),
            (post(PROFILES, &compressed, &gzip(&bytes)), 200, ""),
            (post("/v1/profiles", PROTOBUF, &bytes), 404, PROFILES),
            (
                b"GET /v1development/profiles HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".into(),
                405,
                "allow: POST",
            ),
            (post(PROFILES, "Content-Type: application/json\r\n", b"{}"), 415, "x-protobuf"),
            (post(PROFILES, &format!("{PROTOBUF}Content-Encoding: br\r\n"), &bytes), 415, "neither gzip"),
            (post(PROFILES, PROTOBUF, b"\x0a\x05nonsense"), 400, "protobuf"),
            (post(PROFILES, &compressed, &bytes), 400, "not valid gzip"),
            (post(PROFILES, PROTOBUF, &[0; 10_001]), 413, "longer than 10000 bytes"),
            (post(PROFILES, &compressed, &gzip(&[0; 20_001])), 413, "longer than 20000 bytes when it is decompressed"),
            (post(PROFILES, PROTOBUF, b""), 200, ""),
        ];
        for (request, expected, told) in cases {
            let (status, answer) = exchange(receiver.address, &request).await;
            assert_eq!(status, expected, "{answer}");
            assert!(answer.contains(told), "{told}: {answer}");
        }
        assert_eq!(receiver.figures(), [3, 8, 0, 2, 0]);
        assert_eq!(*receiver.taken.lock().unwrap(), [set(), set()]);
    });
}

/// Check that a body without a length is bounded, too.
#[test]
fn a_body_of_unknown_length_ends_at_the_bound() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds { body: 10_000, ..Bounds::default() });
        let head = format!(
            "POST {PROFILES} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{PROTOBUF}\r\n"
        );
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        let (status, answer) = exchange(receiver.address, format!("{head}{}", chunk.repeat(3)).as_bytes()).await;
        assert_eq!(status, 413, "{answer}");
    });
}

/// Check that a sender is told to come again while as many bodies as there may be are under way, over both protocols, and that it is
/// taken when there is room.
#[test]
fn too_much_at_once_is_put_off() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds { requests: 1, ..Bounds::default() });
        let bytes = otlp::encode_to_vec(&set());
        let request = post(PROFILES, PROTOBUF, &bytes);
        let (first, rest) = request.split_at(request.len() - 5);
        let mut slow = TcpStream::connect(receiver.address).await.unwrap();
        slow.write_all(first).await.unwrap();
        // Until the first is under way, the second one is taken.
        let answer = loop {
            let (status, answer) = exchange(receiver.address, &request).await;
            if status != 200 {
                break answer;
            }
        };
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 1"), "{answer}");
        let (status, headers, _) = call(receiver.address, "grpc-encoding", "identity", framed(0, &bytes)).await;
        assert_eq!((status, headers["grpc-status"].to_str().unwrap()), (StatusCode::OK, "14"));
        slow.write_all(rest).await.unwrap();
        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(exchange(receiver.address, &request).await.0, 200);
        assert_eq!((receiver.figures()[1], receiver.figures()[2]), (0, 2));
    });
}

/// Check that over the budget senders are told to come again, over both protocols, and are taken when that is over.
#[test]
fn over_the_budget_senders_are_put_off() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds::default());
        let bytes = otlp::encode_to_vec(&set());
        receiver.intake.put_off(true);
        let (_, answer) = exchange(receiver.address, &post(PROFILES, PROTOBUF, &bytes)).await;
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 5"), "{answer}");
        assert!(answer.contains("too much CPU is used"), "{answer}");
        let (_, headers, _) = call(receiver.address, "grpc-encoding", "identity", framed(0, &bytes)).await;
        assert_eq!(headers["grpc-status"], "14");
        receiver.intake.put_off(false);
        assert_eq!(exchange(receiver.address, &post(PROFILES, PROTOBUF, &bytes)).await.0, 200);
        assert_eq!(receiver.figures(), [1, 0, 2, 1, 0]);
    });
}

/// Check that a connection that says nothing, and a body that does not come, end by themselves.
#[test]
fn senders_that_say_nothing_are_given_up() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds { patience: Duration::from_millis(200), ..Bounds::default() });
        for begun in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST "] {
            let (_, answer) = exchange(receiver.address, begun.as_bytes()).await;
            assert!(!answer.contains("200 OK"), "{begun}: {answer}");
        }
        let request = post(PROFILES, PROTOBUF, &[0; 100]);
        let (status, answer) = exchange(receiver.address, &request[..request.len() - 1]).await;
        assert_eq!(status, 408, "{answer}");
        // One that was answered, and says nothing more.
        let kept = format!("POST {PROFILES} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{PROTOBUF}\r\n");
        assert_eq!(exchange(receiver.address, kept.as_bytes()).await.0, 200);
    });
}

/// Check that connections that say nothing, or only answer pings, keep nobody out: the one that has been idle longest goes; and that one without
/// a request ends by itself, whatever it says otherwise.
#[test]
fn idle_connections_keep_nobody_out() {
    on_a_runtime(async {
        let (patience, idle) = (Duration::from_millis(500), Duration::from_secs(4));
        let receiver = Receiver::start(Bounds { connections: 3, patience, idle, ..Bounds::default() });
        let mut held = Vec::new();
        for _ in 0..3 {
            let stream = TokioIo::new(TcpStream::connect(receiver.address).await.unwrap());
            let (sender, connection) =
                hyper::client::conn::http2::handshake::<_, _, Idle>(TokioExecutor::new(), stream).await.unwrap();
            held.push((sender, tokio::spawn(connection)));
        }
        // Pings are answered meanwhile.
        tokio::time::sleep(2 * patience).await;
        assert!(held.iter().all(|(_, connection)| !connection.is_finished()));
        let request = post(PROFILES, PROTOBUF, &otlp::encode_to_vec(&set()));
        let (status, answer) = exchange(receiver.address, &request).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(receiver.intake.figures().closed_idle.load(Ordering::Relaxed), 1);
        for (_, connection) in held {
            drop(connection.await);
        }
        assert_eq!(receiver.intake.figures().closed_idle.load(Ordering::Relaxed), 3);
    });
}

/// A body of which nothing comes, and no end.
struct Idle;

impl Body for Idle {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// Check that one connection with more bodies under way than there are places, of which nothing comes, keeps nobody else out, and that each of
/// its bodies is given up long before the time for a body is over.
#[test]
fn idle_bodies_of_one_connection_keep_nobody_out() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds { pause: Duration::from_secs(2), ..Bounds::default() });
        let stream = TokioIo::new(TcpStream::connect(receiver.address).await.unwrap());
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let mut idle = tokio::task::JoinSet::new();
        for _ in 0..15 {
            let mut sender = sender.clone();
            let request = Request::post(format!("http://{}{PROFILES}", receiver.address));
            let request = request.header("content-type", "application/x-protobuf").body(Idle).unwrap();
            idle.spawn(async move { sender.send_request(request).await.map(|answer| answer.status()) });
        }
        let request = post(PROFILES, PROTOBUF, &otlp::encode_to_vec(&set()));
        for _ in 0..20 {
            let (status, answer) = exchange(receiver.address, &request).await;
            assert_eq!(status, 200, "{answer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let begun = std::time::Instant::now();
        let mut given_up = 0;
        while given_up < Bounds::default().streams {
            // What is beyond the bound is refused by HTTP/2 itself, and has no status.
            let ended = idle.join_next().await.unwrap().unwrap();
            given_up += u32::from(ended.is_ok_and(|status| status == StatusCode::REQUEST_TIMEOUT));
        }
        assert!(begun.elapsed() < Bounds::default().patience / 2, "{:?}", begun.elapsed());
    });
}

/// A message of gRPC.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat()
}

/// Calls the method; gives status, headers with trailers, and body.
async fn call(address: SocketAddr, name: &str, value: &str, body: Vec<u8>) -> (StatusCode, HeaderMap, Bytes) {
    let path = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    call_path(address, path, name, value, body).await
}

async fn call_path(
    address: SocketAddr,
    path: &str,
    name: &str,
    value: &str,
    body: Vec<u8>,
) -> (StatusCode, HeaderMap, Bytes) {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::post(format!("http://{address}{path}")).header("te", "trailers");
    for (name, value) in [("content-type", "application/grpc"), (name, value)] {
        request
            .headers_mut()
            .unwrap()
            .insert(::http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let answer = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    let collected = answer.into_body().collect().await.unwrap();
    headers.extend(collected.trailers().cloned().unwrap_or_default());
    (status, headers, collected.to_bytes())
}

/// Check the status of every refusal over gRPC: always HTTP 200, with a code and a reason.
#[test]
fn refusals_over_grpc_have_the_status_that_says_why() {
    on_a_runtime(async {
        let bounds = Bounds { body: 10_000, content: 20_000, ..Bounds::default() };
        let receiver = Receiver::start(bounds);
        let bytes = otlp::encode_to_vec(&set());
        let gzipped = gzip(&bytes);
        for (name, value, body, expected, told) in [
            ("grpc-encoding", "identity", framed(0, &bytes), "0", ""),
            ("grpc-encoding", "gzip", framed(1, &gzipped), "0", ""),
            ("grpc-encoding", "gzip", framed(0, &bytes), "0", ""),
            ("grpc-encoding", "snappy", framed(1, &bytes), "12", "by gzip or not at all"),
            ("content-type", "application/grpc+json", framed(0, b"{}"), "12", "protobuf"),
            ("grpc-encoding", "identity", framed(1, &gzipped), "13", "grpc-encoding does not say"),
            ("grpc-encoding", "gzip", framed(1, &bytes), "13", "not valid gzip"),
            ("grpc-encoding", "gzip", framed(0, &bytes)[..9].to_vec(), "13", "one whole message"),
            ("grpc-encoding", "gzip", Vec::new(), "13", "one whole message"),
            ("grpc-encoding", "gzip", framed(0, b"\x0a\x05nonsense"), "3", "protobuf"),
            ("grpc-encoding", "gzip", framed(0, &[0; 10_001]), "8", "longer than"),
            ("grpc-encoding", "gzip", framed(1, &gzip(&[0; 20_001])), "8", "longer than 20000 bytes"),
        ] {
            let (status, headers, _) = call(receiver.address, name, value, body).await;
            let why = headers.get("grpc-message").map_or("", |why| why.to_str().unwrap());
            assert_eq!((status, headers["grpc-status"].to_str().unwrap()), (StatusCode::OK, expected), "{why}");
            assert!(why.contains(told), "{told}: {why}");
        }
        let other = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let (_, headers, _) = call_path(receiver.address, other, "grpc-encoding", "gzip", framed(0, b"")).await;
        assert_eq!(headers["grpc-status"], "12");
        assert_eq!(receiver.figures(), [3, 10, 0, 3, 0]);
    });
}

/// Check that profiles that cannot be kept are refused alone: the rest is taken, and the sender is told how many and why.
#[test]
fn what_cannot_be_kept_is_refused_alone() {
    on_a_runtime(async {
        let receiver = Receiver::start(Bounds::default());
        let mut mixed = set();
        let mut absurd = mixed.profiles[0].clone();
        let stacks = mixed.dictionary.attribute(STACKS, Value::Int(i64::MAX));
        absurd.attributes = mixed.dictionary.attribute_set([stacks]);
        let mut negative = mixed.profiles[0].clone();
        negative.samples[0].value = -1;
        mixed.profiles.extend([absurd, negative]);
        let (_, headers, body) =
            call(receiver.address, "grpc-encoding", "gzip", framed(0, &otlp::encode_to_vec(&mixed))).await;
        assert_eq!(headers["grpc-status"], "0");
        let text = String::from_utf8_lossy(&body);
        // `partial_success` (field 1) with `rejected_profiles` (field 1) of 2.
        assert_eq!((body[5], body[7..9].to_vec()), (0x0a, vec![0x08, 2]), "{body:?}");
        assert!(text.contains("profiler.stacks is more than there can be"), "{text}");
        assert_eq!(receiver.figures(), [1, 0, 0, 1, 2]);
        assert_eq!(receiver.taken.lock().unwrap()[0].compacted(), set());
    });
}

/// Check that an address in use is an error that names it and what to do.
#[test]
fn an_address_in_use_is_named() {
    let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = bind(first.local_addr()).unwrap_err().to_string();
    assert!(error.contains(&first.local_addr().to_string()) && error.contains("another port"), "{error}");
}
