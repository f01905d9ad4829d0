//! Names of gRPC's calls that clients make up: how many of them become tags.
//!
//! A binary of its own, for what is known of calls is the process's.

#![cfg(feature = "tower")]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Bytes;
use profiler::Tags;
use profiler::tower::TagLayer;
use tower_layer::Layer;
use tower_service::Service;

/// A service with two methods; the answer says which tags were in force. What it does not have it answers as gRPC asks for, or as somebody
/// does who does not know gRPC.
struct Orders;

impl Service<Request<()>> for Orders {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    #[expect(clippy::unwrap_used, reason = "what fails here fails the test")]
    fn call(&mut self, request: Request<()>) -> Self::Future {
        let answer = Response::builder();
        let answer = match request.uri().path() {
            "/shop.v1.Orders/Place" => answer.header("content-type", "application/grpc"),
            "/shop.v1.Orders/Cancel" => {
                answer.header("content-type", "application/grpc+proto").header("grpc-status", "0")
            }
            odd if odd.ends_with('0') => answer.header("content-type", "text/html"),
            odd if odd.ends_with('1') => answer.header("content-type", "application/grpc").status(404),
            // UNIMPLEMENTED, and another error, which does not say that there is such a method.
            odd if odd.ends_with('2') => answer.header("content-type", "application/grpc").header("grpc-status", "16"),
            _ => answer.header("content-type", "application/grpc").header("grpc-status", "12"),
        };
        ready(Ok(answer.body(format!("{:?}", Tags::current())).unwrap()))
    }
}

#[expect(clippy::unwrap_used, reason = "what fails here fails the test")]
fn call(path: &str) -> impl Future<Output = Result<Response<impl Body<Data = Bytes>>, Infallible>> {
    TagLayer::new().layer(Orders).call(Request::post(path).header("content-type", "application/grpc").body(()).unwrap())
}

/// The tags of a call.
#[expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#[expect(clippy::panic, reason = "what fails here fails the test")]
fn tags(path: &str) -> String {
    let mut call = pin!(call(path));
    let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("not ready")
    };
    let Poll::Ready(Some(Ok(frame))) = pin!(response.into_body()).poll_frame(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("no body")
    };
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

/// Check that of names without number some become tags and no more, that those of methods that there are go on to be told, and that one that was not
/// called before is told from its second call on.
#[test]
fn names_that_clients_make_up_are_few_tags() {
    let named = |method: &str| format!(r#"{{"rpc.method": "{method}", "rpc.service": "shop.v1.Orders"}}"#);
    let others = r#"{"rpc.method": "_OTHER", "rpc.service": "_OTHER"}"#;
    assert_eq!(tags("/shop.v1.Orders/Place"), named("Place"));
    // Some of them end before they are answered.
    (0..10).for_each(|number| drop(call(&format!("/made.Up{number}/Given.Up"))));
    let made_up: BTreeSet<_> = (0..10_000).map(|number| tags(&format!("/made.Up{number}/Name{number}"))).collect();
    assert_eq!((made_up.len(), made_up.contains(others)), (55, true));
    assert_eq!(tags("/shop.v1.Orders/Place"), named("Place"));
    assert_eq!([(); 3].map(|()| tags("/shop.v1.Orders/Cancel")), [others.to_owned(), named("Cancel"), named("Cancel")]);
    // Nor does a service's name help one that it does not have.
    assert_eq!([(); 2].map(|()| tags("/shop.v1.Orders/Steal")), [others; 2]);
}
