//! The same pages as a service of `tower`, inside of the host's own server.
//!
//! In: requests of the host, on its threads and its runtime. Out: the answers of the profiler that runs, made on the profiler's own runtime, for what
//! takes long there gives way to what is more urgent. Where none runs, that is the answer. That runtime is woken through a descriptor: not where
//! the host has closed it, for the number may be its own file's by now, and not by a forked child, where nobody answers.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::reply::Reply;
use super::security::Security;
use super::site::Site;
use super::source::Source;
use super::store::Store;
use crate::error::Error;
use crate::watched::watched;

/// What answers, while a profiler runs that keeps profiles.
static OPEN: Mutex<Option<Arc<Open>>> = Mutex::new(None);

/// A site with the runtime that it is to be asked on.
struct Open {
    site: Arc<Site>,
    runtime: Handle,
    /// Whether the descriptors of the runtime are still its own.
    is_ours: Box<dyn Fn() -> bool + Send + Sync>,
    /// A forked child has the memory of its parent, but not the thread that answers.
    process: u32,
}

impl Open {
    /// Whether the runtime may be woken, and answers.
    fn answers(&self) -> bool {
        self.process == std::process::id() && (self.is_ours)()
    }
}

/// Closes what was opened when it is dropped.
#[derive(Debug)]
pub(crate) struct Opened(());

/// Has [`service`] answer with `store` and `source`, on the runtime that this is called on, while `is_ours` says that the host has not closed the
/// runtime's descriptors.
pub(crate) fn open(
    source: Arc<dyn Source>,
    store: Arc<Store>,
    security: &Security,
    is_ours: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Opened, Error> {
    let site = Arc::new(Site::new(source, store, None, security.checked_token()?));
    let (runtime, is_ours, process) = (Handle::current(), Box::new(is_ours), std::process::id());
    set(Some(Arc::new(Open { site, runtime, is_ours, process })));
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
        Answer(Box::pin(async move {
            let Some(open) = open.filter(|open| open.answers()) else { return closed(&parts.headers) };
            let (site, headers) = (Arc::clone(&open.site), parts.headers.clone());
            let task = open.runtime.spawn(watched(async move { site.answer(&parts).await }));
            Ending { task, open }.await.unwrap_or_else(|| closed(&headers))
        }))
    }
}

/// An answer on its way; given up, its work ends.
struct Ending {
    task: JoinHandle<Response<Full<Bytes>>>,
    open: Arc<Open>,
}

impl Future for Ending {
    type Output = Option<Response<Full<Bytes>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.task).poll(cx).map(Result::ok);
        if answer.is_pending() && !self.open.answers() { Poll::Ready(None) } else { answer }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // It wakes the runtime, too.
        if self.open.answers() {
            self.task.abort();
        }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use tower_service::Service as _;

    use super::super::testing::Idle;
    use super::*;
    use crate::watched::look_with;

    fn ask() -> Answer {
        service().call(Request::get("/stats").body(()).unwrap())
    }

    fn status(answer: Pin<&mut Answer>) -> Option<StatusCode> {
        match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(response)) => Some(response.status()),
            Poll::Pending => None,
        }
    }

    /// Check that a runtime whose descriptors the host has closed is not asked any more, that what waits for it ends when somebody looks,
    /// and that giving that up tells it nothing either; and that behind each turn of an answer is looked whether they are there.
    #[test]
    fn a_runtime_without_descriptors_is_not_woken() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ours, source) = (Arc::new(AtomicBool::new(true)), Arc::new(Idle::default()));
        let opened = {
            let (_inside, ours, source) = (runtime.enter(), Arc::clone(&ours), Arc::clone(&source) as Arc<dyn Source>);
            open(source, Arc::default(), &Security::new(), move || ours.load(Ordering::Relaxed)).unwrap()
        };
        let (mut waits, mut given_up) = (pin!(ask()), Box::pin(ask()));
        assert_eq!([status(waits.as_mut()), status(given_up.as_mut())], [None, None], "nobody runs the runtime");
        ours.store(false, Ordering::Relaxed);
        assert_eq!(status(pin!(ask()).as_mut()), Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(status(waits.as_mut()), Some(StatusCode::SERVICE_UNAVAILABLE));
        drop(given_up);
        ours.store(true, Ordering::Relaxed);
        let (looks, mut answered) = (Rc::new(Cell::new(0)), pin!(ask()));
        let count = Rc::clone(&looks);
        look_with(move || count.set(count.get() + 1));
        runtime.block_on(async {
            let until = Instant::now() + Duration::from_secs(60);
            while status(answered.as_mut()) != Some(StatusCode::OK) {
                assert!(Instant::now() < until, "no answer");
                tokio::task::yield_now().await;
            }
            // The others have their turns, too.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(source.asked.load(Ordering::Relaxed), 3, "a task was made, or ended");
        assert!(looks.get() >= 3, "{} looks behind three answers", looks.get());
        drop(opened);
    }
}
