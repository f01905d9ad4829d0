//! A server over gRPC's HTTP/2, which takes every call: where the examples' metrics and traces arrive.
//!
//! In: calls of any method. Out: an empty message and the status OK; path and message of each to the test.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// An endpoint, and the calls that it gets: path and message.
pub(crate) fn collector() -> (String, Receiver<(String, Bytes)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, calls) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request| answer(request, sender.clone()));
                let connection = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    (endpoint, calls)
}

/// An empty message and the status OK.
async fn answer(
    request: Request<Incoming>,
    calls: mpsc::Sender<(String, Bytes)>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    if let Ok(message) = request.into_body().collect().await {
        let _test_has_ended = calls.send((path, message.to_bytes()));
    }
    let status = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(status)) });
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}
