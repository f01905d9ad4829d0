//! The same pages as a service of `tower`, inside of the host's own server.
//!
//! In: requests of the host, on its threads and its runtime. Out: the answers of the profiler that runs, made on the profiler's own runtime, for what
//! takes long there gives way to what is more urgent. Where none runs, that is the answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::runtime::Handle;

use super::reply::Reply;
use super::security::Security;
use super::site::Site;
use super::source::Source;
use super::store::Store;
use crate::error::Error;

/// What answers, while a profiler runs that keeps profiles.
static OPEN: Mutex<Option<Arc<Open>>> = Mutex::new(None);

/// A site with the runtime that it is to be asked on.
struct Open {
    site: Arc<Site>,
    runtime: Handle,
    /// A forked child has the memory of its parent, but not the thread that answers.
    process: u32,
}

/// Closes what was opened when it is dropped.
#[derive(Debug)]
pub(crate) struct Opened(());

/// Has [`service`] answer with `store` and `source`, on the runtime that this is called on.
pub(crate) fn open(source: Arc<dyn Source>, store: Arc<Store>, security: &Security) -> Result<Opened, Error> {
    let site = Arc::new(Site::new(source, store, None, security.checked_token()?));
    set(Some(Arc::new(Open { site, runtime: Handle::current(), process: std::process::id() })));
    Ok(Opened(()))
}

impl Drop for Opened {
    fn drop(&mut self) {
        set(None);
    }
}

fn set(open: Option<Arc<Open>>) {
    let before = std::mem::replace(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner), open);
    drop(before);
}

/// The page, `/debug/pprof/*`, `/stats` and `/healthz` as a service of `tower`, for the host's own server: the profiler needs
/// [`Config::serve`](crate::Config::serve) or [`Config::serve_within`](crate::Config::serve_within), else it keeps no profiles to show.
///
/// All paths on the page are relative: it can stand below any path that ends in `/`. Who may see it is the host's concern, beside the token of
/// [`Config::serve_token`](crate::Config::serve_token).
#[cfg_attr(feature = "axum", doc = "```no_run")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// # fn app() -> axum::Router {
/// axum::Router::new().nest_service("/profiler/", profiler::serve::service())
/// # }
/// ```
#[must_use]
pub fn service() -> Service {
    Service(())
}

/// What [`service`] gives.
#[derive(Debug, Clone)]
pub struct Service(());

/// The body of an answer, whole.
#[derive(Debug)]
pub struct Body(Full<Bytes>);

impl<B> tower_service::Service<Request<B>> for Service {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        let (parts, _) = request.into_parts();
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let open = open.filter(|open| open.process == std::process::id());
        Answer(Box::pin(async move {
            let Some(open) = open else { return closed(&parts.headers) };
            let (site, headers) = (Arc::clone(&open.site), parts.headers.clone());
            let answer = Ending(open.runtime.spawn(async move { site.answer(&parts).await }));
            answer.await.unwrap_or_else(|| closed(&headers))
        }))
    }
}

/// An answer on its way; given up, its work ends.
struct Ending(tokio::task::JoinHandle<Response<Full<Bytes>>>);

impl Future for Ending {
    type Output = Option<Response<Full<Bytes>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn closed(headers: &http::HeaderMap) -> Response<Full<Bytes>> {
    let why = "no profiler runs here that keeps profiles: start one with Config::serve or Config::serve_within";
    Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, why).response(headers)
}

/// The answer to one request.
pub struct Answer(Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>);

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

impl Future for Answer {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(|response| Ok(response.map(Body)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}
