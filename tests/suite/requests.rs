//! Tags of requests: servers of axum, of tonic and of hyper alone, with `TagLayer` around them, over loopback.
//!
//! In: requests, and bytes that are none. Out: what the handlers, the bodies and the ends of both saw in force. Both servers run
//! on several threads, and move their tasks between them.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use profiler::Tags;
use profiler::tower::TagLayer;
use profiler_tests::fetch;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::codegen::tokio_stream::Stream;
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic_prost::ProstCodec;
use tower_layer::Layer as _;

/// How often what is sent in parts is asked for more.
const PARTS: usize = 20;

/// The tags in force here, in the order of their keys.
fn in_force() -> String {
    let tags = format!("{:?}", Tags::current());
    let mut tags: Vec<_> = tags.trim_matches(['{', '}']).split(", ").map(|tag| tag.replace('"', "")).collect();
    tags.sort();
    tags.join(", ")
}

/// What is in force before and after the task was moved about; only one thing, if all is well.
async fn seen() -> String {
    let mut seen = in_force();
    for _ in 0..PARTS {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_micros(50)).await;
        let now = in_force();
        if !seen.ends_with(&now) {
            let _ = write!(seen, " then {now}");
        }
    }
    seen
}

/// Says what is in force whenever it is asked for more, and when it is dropped.
struct Parts {
    left: usize,
    end: Sender<String>,
}

impl Parts {
    fn next(&mut self, context: &Context<'_>) -> Poll<Option<String>> {
        self.left = self.left.saturating_sub(1);
        // Every other time it has nothing, and so is asked again, from wherever the task is then.
        if self.left % 2 == 1 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready((self.left > 0).then(|| in_force() + "\n"))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let _ = self.end.send(in_force());
    }
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.next(context).map(|part| part.map(|part| Ok(Frame::data(Bytes::from(part)))))
    }
}

impl Stream for Parts {
    type Item = Result<String, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.next(context).map(|part| part.map(Ok))
    }
}

/// A server that runs until this is dropped.
struct Server {
    runtime: Runtime,
    address: SocketAddr,
    /// What was in force at the end of each body, or at each piece of it.
    ends: Receiver<String>,
}

impl Server {
    fn start<F: Future<Output = ()> + Send + 'static>(serve: impl FnOnce(TcpListener, Sender<String>) -> F) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ends) = channel();
        runtime.spawn(serve(listener, end));
        Self { runtime, address, ends }
    }

    /// The axum application.
    fn of_axum() -> Self {
        Self::start(|listener, end| async move {
            let parts = move || async move { Body::new(Parts { left: 2 * PARTS, end: end.clone() }) };
            let app = Router::new()
                .route("/orders/{id}", get(seen))
                .route("/parts", get(parts))
                .nest("/stock", Router::new().route("/{*path}", get(seen)))
                .fallback(seen)
                .layer(TagLayer::new());
            axum::serve(listener, app).await.unwrap();
        })
    }

    /// The answer of axum to a GET.
    fn answer(&self, path: &str) -> String {
        let (status, body) = fetch::get(self.address, path, Duration::from_secs(10)).unwrap();
        assert_eq!(status, 200, "{path}");
        String::from_utf8(body).unwrap()
    }

    /// What is in force for tasks that have nothing to do with requests.
    fn between_requests(&self) -> Vec<String> {
        let tasks: Vec<_> = (0..100).map(|_| self.runtime.spawn(async { in_force() })).collect();
        let mut seen: Vec<_> = tasks.into_iter().map(|task| self.runtime.block_on(task).unwrap()).collect();
        seen.dedup();
        seen
    }
}

/// Check that a handler of axum, wherever its task goes, has the route as it was written and the method, and no other task has.
#[test]
fn requests_of_axum_have_their_route() {
    let server = Server::of_axum();
    assert_eq!(server.answer("/orders/17"), "endpoint: /orders/{id}, method: GET");
    assert_eq!(server.answer("/stock/a/b?c=d"), "endpoint: /stock/{*path}, method: GET");
    assert_eq!(server.answer("/no/such/route"), "method: GET");
    assert_eq!(server.between_requests(), [""]);
}

/// Check that a body that is made while it is sent has the tags of its request, up to its end.
#[test]
fn bodies_have_the_tags_of_their_request() {
    let server = Server::of_axum();
    let parts = server.answer("/parts");
    assert_eq!(parts.lines().count(), PARTS - 1);
    assert!(parts.lines().all(|part| part == "endpoint: /parts, method: GET"), "{parts}");
    assert_eq!(server.ends.recv().unwrap(), "endpoint: /parts, method: GET");
    assert_eq!(server.between_requests(), [""]);
}

/// Check that a handler that reads its request's body while it comes has its tags at each piece: it was asked again for each, for the next one is
/// sent when the last one has been read.
#[test]
fn uploads_have_the_tags_of_their_request() {
    let server = Server::start(|listener, told| async move {
        let read = move |mut body: Body| {
            let told = told.clone();
            async move {
                while let Some(Ok(frame)) = body.frame().await {
                    let piece = frame.into_data().unwrap_or_default();
                    let _ = told.send(format!("{}: {}", String::from_utf8_lossy(&piece), in_force()));
                }
                in_force()
            }
        };
        let app = Router::new().route("/upload/{id}", post(read)).layer(TagLayer::new());
        axum::serve(listener, app).await.unwrap();
    });
    let tags = "endpoint: /upload/{id}, method: POST";
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"POST /upload/7 HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n").unwrap();
    stream.write_all(b"transfer-encoding: chunked\r\n\r\n").unwrap();
    for piece in 0..PARTS {
        stream.write_all(format!("3\r\n{piece:03}\r\n").as_bytes()).unwrap();
        assert_eq!(server.ends.recv_timeout(Duration::from_secs(60)).unwrap(), format!("{piece:03}: {tags}"));
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(tags), "{answer}");
    assert_eq!(server.between_requests(), [""]);
}

/// Check that paths that are no text, and methods that are none, neither harm the server nor become tags.
#[test]
fn odd_requests_do_no_harm() {
    let server = Server::of_axum();
    assert_eq!(server.answer("/caf%FF%FE%00"), "method: GET");
    let send = |request: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(send(b"BREW /coffee HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nmethod: _OTHER"));
    let disguised = send(b"GET /orders/17 HTTP/1.0\r\ncontent-type: application/grpc\r\n\r\n");
    assert!(disguised.ends_with("\r\n\r\nendpoint: /orders/{id}, method: GET"), "{disguised}");
    let bytes = send(b"GET /caf\xff\xfe HTTP/1.0\r\n\r\n");
    assert!(bytes.contains(" 400 "), "{bytes}");
    assert_eq!(server.answer("/orders/17"), "endpoint: /orders/{id}, method: GET");
}

/// Check that tags can be made from anything in the head of a request, and stand beside those of a layer outside.
#[test]
fn tags_are_what_the_service_says() {
    let server = Server::start(|listener, _| async move {
        let by_host = TagLayer::with(|request| {
            let host = request.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or("none");
            profiler::tags!("local" => host.starts_with("127.0.0.1:"), "" => "left out", "method" => "inner")
        });
        let app = Router::new().route("/", get(seen)).layer(by_host).layer(TagLayer::new());
        axum::serve(listener, app).await.unwrap();
    });
    assert_eq!(server.answer("/"), "endpoint: /, local: true, method: inner");
}

/// A service that nobody routes: a path is no tag of it, unless it says so itself.
#[derive(Clone)]
struct Alone;

impl tower_service::Service<http::Request<hyper::body::Incoming>> for Alone {
    type Response = http::Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<hyper::body::Incoming>) -> Self::Future {
        let begun = in_force();
        Box::pin(async move {
            let seen = seen().await;
            Ok(http::Response::new(Full::new(if seen == begun { seen } else { format!("{begun} then {seen}") }.into())))
        })
    }
}

/// Check that a service of hyper without any framework has the tags of its request, in its call and in its future.
#[test]
fn requests_of_hyper_alone_are_tagged() {
    let server = Server::start(|listener, _| async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let path = TagLayer::with(|request| profiler::tags!("endpoint" => request.uri.path().len()));
            let service = TowerToHyperService::new(TagLayer::new().layer(path.layer(Alone)));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    assert_eq!(server.answer("/orders/17"), "endpoint: 10, method: GET");
    assert_eq!(server.between_requests(), [""]);
}

/// A gRPC service that answers in parts.
#[derive(Clone)]
struct Watch(Sender<String>);

impl NamedService for Watch {
    const NAME: &'static str = "test.v1.Orders";
}

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl ServerStreamingService<String> for Watch {
    type Response = String;
    type ResponseStream = Parts;
    type Future = Later<Result<tonic::Response<Parts>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<String>) -> Self::Future {
        let (called, end) = (in_force(), self.0.clone());
        Box::pin(async move {
            let mut response = tonic::Response::new(Parts { left: 2 * PARTS, end });
            response.metadata_mut().insert("called", called.parse().unwrap());
            response.metadata_mut().insert("seen", seen().await.parse().unwrap());
            Ok(response)
        })
    }
}

impl tonic::codegen::Service<http::Request<tonic::body::Body>> for Watch {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let watch = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).server_streaming(watch, request).await) })
    }
}

/// Calls `Watch` as gRPC clients do; the head of the answer, and the texts in its body.
async fn watch(address: SocketAddr) -> (http::response::Parts, Vec<String>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}/test.v1.Orders/Watch"))
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::from_static(&[0; 5])))
        .unwrap();
    let (head, body) = client.send_request(request).await.unwrap().into_parts();
    let mut body = body.collect().await.unwrap().to_bytes();
    let mut texts = Vec::new();
    while !body.is_empty() {
        let frame = body.split_to(5);
        let length = u32::from_be_bytes(frame[1..].try_into().unwrap());
        texts.push(String::decode(body.split_to(length as usize)).unwrap());
    }
    (head, texts)
}

/// Check that a call of gRPC has its service and its method: in the handler, in what is streamed, and at its end.
#[test]
fn calls_of_grpc_have_their_service_and_method() {
    let server = Server::start(|listener, end| async move {
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let server = tonic::transport::Server::builder().layer(TagLayer::new()).add_service(Watch(end));
        server.serve_with_incoming(incoming).await.unwrap();
    });
    let (head, texts) = server.runtime.block_on(watch(server.address));
    let expected = "rpc.method: Watch, rpc.service: test.v1.Orders";
    assert_eq!(head.headers.get("grpc-status"), None, "{head:?}");
    assert_eq!(["called", "seen"].map(|name| &head.headers[name]), [expected; 2]);
    assert_eq!(texts, vec![format!("{expected}\n"); PARTS - 1]);
    assert_eq!(server.ends.recv().unwrap(), expected);
    assert_eq!(server.between_requests(), [""]);
}
