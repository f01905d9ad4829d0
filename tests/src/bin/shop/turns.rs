//! The shop with tags and without, in turn, within one process.
//!
//! In: requests. Out: answers of one service that stands both within the layer that has tags and by itself, the choice made anew for
//! each request. What choosing costs, a box, both have.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use profiler::tower::TagLayer;
use tower_layer::Layer;
use tower_service::Service;

/// Whether requests have tags from now on.
static TAGGED: AtomicBool = AtomicBool::new(true);

/// Decides it for the requests that come from now on.
pub(crate) fn switch(tagged: bool) {
    TAGGED.store(tagged, Ordering::Relaxed);
}

/// Has requests to `router` tagged while that is on.
pub(crate) fn tagged_in_turn(router: Router) -> Router {
    router.layer(InTurn)
}

#[derive(Debug, Clone)]
struct InTurn;

impl<S: Clone> Layer<S> for InTurn {
    type Service = Either<<TagLayer as Layer<S>>::Service, S>;

    fn layer(&self, inner: S) -> Self::Service {
        Either { tagged: TagLayer::new().layer(inner.clone()), plain: inner }
    }
}

/// One service in two forms.
#[derive(Debug, Clone)]
struct Either<T, S> {
    tagged: T,
    plain: S,
}

impl<T, S> Service<Request> for Either<T, S>
where
    T: Service<Request, Error = S::Error, Response: IntoResponse, Future: Send + 'static>,
    S: Service<Request, Response: IntoResponse, Future: Send + 'static>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.tagged.poll_ready(task))?;
        self.plain.poll_ready(task)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if TAGGED.load(Ordering::Relaxed) {
            let answer = self.tagged.call(request);
            Box::pin(async { answer.await.map(IntoResponse::into_response) })
        } else {
            let answer = self.plain.call(request);
            Box::pin(async { answer.await.map(IntoResponse::into_response) })
        }
    }
}
