//! Tags for requests, as a layer around services of axum, tonic, hyper or tower.
//!
//! In: requests on their way to a service. Out: the same requests and responses, with tags in force for all of the work: in the
//! service's call, whenever its future or the body of its response is polled, and when these are dropped. User code, on
//! whichever thread polls.
//!
//! Values come from the network, so those that are not bounded, as a path, are no tags by default.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::attributes::pairs;
use super::calls::{self, Call};
use super::future::WithTags;
use super::keys;
use super::recent::{Keys, recent};
use super::tags::{Scope, Tags, reserve};

/// Puts tags in force for each request to a service, on top of those that are.
///
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// # async fn place() {}
/// # use axum::{Router, routing::post};
/// let app: Router = Router::new()
///     .route("/orders/{id}", post(place))
///     .layer(profiler::tower::TagLayer::new()); // endpoint=/orders/{id}, method=POST
/// ```
///
/// Without more said, the tags of a request are these:
///
/// | tag | value |
/// |---|---|
/// | `endpoint` | the route as it was written, `/orders/{id}`; with the feature `axum`, inside a router of axum 0.8 |
/// | `method` | one of the methods of HTTP, or `_OTHER` |
/// | `rpc.service`, `rpc.method` | for gRPC, by content type of a `POST`, instead of the two above: `shop.v1.Orders`, `Place`; where a route is known, only if that names the service |
///
/// Never the path: it has as many values as clients can think of. The names of a gRPC call are what the client says, too; the answer tells whether a service has
/// such a method. After 64 failed calls to methods that have never succeeded (HTTP 200, gRPC's content type, no error in the headers), only methods
/// that have succeeded at least once are named, up to 1,024 of them; all others are `_OTHER`. For other tags, and for other
/// routers, use [`with`](Self::with). What the service spawns as tasks of their own inherits by
/// [`with_current_tags`](crate::FutureExt::with_current_tags).
///
/// In axum, add it with `Router::layer` or `route_layer` behind the routes, as above: around a whole router, as in
/// `ServiceBuilder::new().layer(..).service(router)`, it comes before routing, when no route is known. In tonic:
/// `Server::builder().layer(TagLayer::new())`.
#[derive(Debug, Clone, Copy)]
pub struct TagLayer<F = fn(&Head<'_>) -> Tags> {
    tags_of: F,
    /// The key of the tags of gRPC's calls, whose answers are looked at.
    of_calls: Option<u8>,
}

impl TagLayer {
    /// With the tags named above.
    #[must_use]
    pub fn new() -> Self {
        reserve(&["endpoint", "method", "rpc.service", "rpc.method"]);
        calls::prepare();
        Self { tags_of: request_tags, of_calls: keys::number(CALL[0]) }
    }
}

impl Default for TagLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Fn(&Head<'_>) -> Tags> TagLayer<F> {
    /// With the tags that `tags_of` finds for a request. Take values of which there are few: route, tenant, plan.
    ///
    /// ```
    /// let layer = profiler::tower::TagLayer::with(|request| {
    ///     let tenant = request.headers.get("x-tenant").and_then(|tenant| tenant.to_str().ok());
    ///     profiler::tags!("tenant" => tenant.unwrap_or("none"))
    /// });
    /// ```
    pub fn with(tags_of: F) -> Self {
        Self { tags_of, of_calls: None }
    }
}

/// What a request says before its body.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it is for.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// What came with it within the program, as from other layers.
    pub extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<S, F: Clone> Layer<S> for TagLayer<F> {
    type Service = TagService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        TagService { inner, tags_of: self.tags_of.clone(), of_calls: self.of_calls }
    }
}

/// A service with a [`TagLayer`] around it.
#[derive(Debug, Clone, Copy)]
pub struct TagService<S, F = fn(&Head<'_>) -> Tags> {
    inner: S,
    tags_of: F,
    of_calls: Option<u8>,
}

impl<S, F, B, R> Service<Request<B>> for TagService<S, F>
where
    S: Service<Request<B>, Response = Response<R>>,
    F: Fn(&Head<'_>) -> Tags,
{
    type Response = Response<WithTags<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let tags = (self.tags_of)(&Head::of(&request));
        let is_call = self.of_calls.is_some_and(|of_calls| pairs(tags.as_bytes()).any(|(key, _)| key == of_calls));
        let call = is_call.then(|| Call::of(request.uri().path()));
        let _scope = Scope::enter(&tags);
        // Made where it stays: futures of services are long, and a copy takes as long as a scope.
        ResponseFuture { inner: WithTags { inner: Some(self.inner.call(request)), tags }, call }
    }
}

pin_project! {
    /// The response to come of a [`TagService`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: WithTags<F>,
        // Of gRPC, as the client says.
        call: Option<Call>,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<WithTags<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut inner = this.inner;
        let outcome = ready!(inner.as_mut().poll(context));
        if let Some(call) = this.call.take() {
            call.ends(outcome.as_ref().is_ok_and(is_well_answered));
        }
        let response = outcome?;
        // It has ended: what lets go of it has no use for them, and an owner less is two writes less that processors wait for.
        let tags = std::mem::take(inner.project().tags);
        Poll::Ready(Ok(response.map(|body| WithTags { inner: Some(body), tags })))
    }
}

/// The body of a response, which is often made while it is sent.
impl<B: Body> Body for WithTags<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(mut body) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let _scope = Scope::enter(&*this.tags);
        let frame = body.as_mut().poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || (frame.is_ready() && body.is_end_stream()) {
            this.inner.set(None);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body> Default for WithTags<B> {
    /// An empty body, as layers around this one make them.
    fn default() -> Self {
        Self { inner: None, tags: Tags::default() }
    }
}

static ROUTE: Keys = ["endpoint", "method"];
static CALL: Keys = ["rpc.service", "rpc.method"];
static METHOD: Keys = ["method", ""];

/// What is not told. Source: OpenTelemetry, semantic conventions of HTTP and of RPC.
const OTHER: &str = "_OTHER";

/// The tags of a request when nobody says others.
fn request_tags(request: &Head<'_>) -> Tags {
    let route = route(request);
    // Anybody can say that he speaks gRPC: a route that was written for something else is not hidden by it.
    let is_possible = |(service, method): &(&str, &str)| route.is_none_or(|route| is_of_grpc(route, service, method));
    if let Some((service, method)) = grpc_method(request).filter(is_possible) {
        return recent(&CALL, if calls::is_told(request.uri.path()) { [service, method] } else { [OTHER; 2] });
    }
    let method = method(request.method);
    match route {
        Some(route) => recent(&ROUTE, [route, method]),
        None => recent(&METHOD, [method, ""]),
    }
}

/// The service and the method of a call of gRPC, `/service/method`.
///
/// Source: gRPC over HTTP2, "Requests": the method is always `POST`.
fn grpc_method<'a>(request: &Head<'a>) -> Option<(&'a str, &'a str)> {
    if request.method != Method::POST || !is_grpc(request.headers) {
        return None;
    }
    let (service, method) = request.uri.path().strip_prefix('/')?.split_once('/')?;
    (is_name(service) && is_name(method)).then_some((service, method))
}

/// `application/grpc`, also `application/grpc+proto` and the like.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b'-')))
}

/// Whether there is such a method, as far as the head of the answer tells: errors that come without a message have their status in there.
///
/// Source: gRPC over HTTP2, "Responses": `Trailers-Only`.
fn is_well_answered<R>(response: &Response<R>) -> bool {
    let headers = response.headers();
    response.status() == StatusCode::OK
        && is_grpc(headers)
        && headers.get("grpc-status").is_none_or(|status| status == "0")
}

/// Whether it can be a name in a service's definition. A client may send any path as a call of gRPC.
///
/// Source: Protocol Buffers, language specification, "Identifiers": `fullIdent`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
}

/// Whether a route is one for this method, or for all of this service, as tonic writes them: `/shop.v1.Orders/Place`, `/shop.v1.Orders/{*rest}`.
fn is_of_grpc(route: &str, service: &str, method: &str) -> bool {
    let rest = route.strip_prefix('/').and_then(|route| route.strip_prefix(service)?.strip_prefix('/'));
    rest.is_some_and(|rest| rest == method || rest.starts_with("{*"))
}

/// The method, if it is one that HTTP knows: clients can send any word.
fn method(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE => method.as_str(),
        Method::CONNECT | Method::OPTIONS | Method::TRACE | Method::PATCH => method.as_str(),
        _ => OTHER,
    }
}

#[cfg(feature = "axum")]
fn route<'a>(request: &Head<'a>) -> Option<&'a str> {
    request.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn route<'a>(_: &Head<'a>) -> Option<&'a str> {
    None
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::task::Waker;

    use super::*;

    /// Works when it is called, not when its future is polled; the answer is as long as the service's name.
    struct Eager(&'static str);

    impl Service<Request<()>> for Eager {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            let seen = format!("{:?}", Tags::current());
            ready(Ok(Response::builder().header("seen", seen).body(self.0.to_owned()).unwrap()))
        }
    }

    /// Check that what a service does in its call has the tags, and that the body is as long as it was.
    #[test]
    fn the_call_itself_has_the_tags() {
        let call = |answer| {
            let mut future = Box::pin(TagLayer::new().layer(Eager(answer)).call(Request::new(())));
            let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("not ready")
            };
            response
        };
        let response = call("four");
        assert_eq!(response.headers()["seen"], r#"{"method": "GET"}"#);
        assert_eq!((response.body().size_hint().exact(), response.body().is_end_stream()), (Some(4), false));
        assert!(call("").body().is_end_stream());
        assert!(WithTags::<String>::default().is_end_stream());
        assert!(Tags::current().is_empty());
    }

    fn tags(request: http::request::Builder) -> String {
        format!("{:?}", request_tags(&Head::of(&request.body(()).unwrap())))
    }

    /// Check that a path is no tag, and that words that HTTP does not know are one value.
    #[test]
    fn what_clients_make_up_is_no_tag() {
        assert_eq!(tags(Request::put("/orders/17?x=%FF")), r#"{"method": "PUT"}"#);
        assert_eq!(tags(Request::builder().method("BREW").uri("*")), r#"{"method": "_OTHER"}"#);
        let odd = Request::post("/orders").header(CONTENT_TYPE, http::HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        assert_eq!(tags(odd), r#"{"method": "POST"}"#);
    }

    /// Check that a route is gRPC's only if it was written so.
    #[test]
    fn a_route_is_of_grpc_if_it_names_the_service() {
        for route in ["/shop.v1.Orders/Place", "/shop.v1.Orders/{*rest}"] {
            assert!(is_of_grpc(route, "shop.v1.Orders", "Place"), "{route}");
        }
        for route in [
            "/shop.v1.Orders/{id}",
            "/{service}/{method}",
            "/{*rest}",
            "/shop.v1.OrdersX/Place",
            "/",
            "shop.v1.Orders/Place",
        ] {
            assert!(!is_of_grpc(route, "shop.v1.Orders", "Place"), "{route}");
        }
    }

    /// Check that gRPC is known by its content type, and that its path must be one.
    #[test]
    fn grpc_is_known_by_its_content_type() {
        let of = |kind: &str, path: &str| tags(Request::post(path).header(CONTENT_TYPE, kind));
        let names = r#"{"rpc.method": "Place", "rpc.service": "shop.v1.Orders"}"#;
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y", "application/grpc-web+proto"]
        {
            assert_eq!(of(kind, "/shop.v1.Orders/Place"), names);
        }
        let get = tags(Request::get("/shop.v1.Orders/Place").header(CONTENT_TYPE, "application/grpc"));
        assert_eq!(get, r#"{"method": "GET"}"#);
        for (kind, path) in [
            ("application/grpcs", "/shop.v1.Orders/Place"),
            ("application/json", "/shop.v1.Orders/Place"),
            ("application/grpc", "/shop.v1.Orders"),
            ("application/grpc", "/shop.v1.Orders/"),
            ("application/grpc", "//Place"),
            ("application/grpc", "/a/b/c"),
            ("application/grpc", "/order-4711/Place"),
            ("application/grpc", "/Orders/%41"),
        ] {
            assert_eq!(of(kind, path), r#"{"method": "POST"}"#, "{kind} {path}");
        }
    }
}
