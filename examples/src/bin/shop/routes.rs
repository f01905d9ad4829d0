//! The shop over HTTP: paths, methods, status codes, and what every request passes on its way in.
//!
//! In: requests, on the runtime's threads. Out: JSON, or the report's file; each failure is JSON too, with the reason.
//! Nothing here computes: that is `service`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use crate::cache;
use crate::report::Format;
use crate::service::{Failure, Shop};

/// Bytes of an order.
const MAX_BODY: usize = 256 * 1024;

/// `?q=` of a search.
#[derive(Debug, Deserialize)]
struct SearchQuery {
    q: String,
}

/// `?format=` of a report.
#[derive(Debug, Deserialize)]
struct ReportQuery {
    #[serde(default)]
    format: Format,
}

/// The shop's paths, within its layers, outermost last.
pub(crate) fn router(shop: Arc<Shop>) -> Router {
    Router::new()
        .route("/orders", post(orders))
        .route("/search", get(search))
        .route("/report", get(report))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(identify))
        .layer(middleware::from_fn_with_state(shop.clone(), count))
        .with_state(shop)
}

async fn orders(State(shop): State<Arc<Shop>>, body: Bytes) -> Result<Response, Failure> {
    Ok(json(StatusCode::CREATED, shop.place_order(&body).await?))
}

async fn search(
    State(shop): State<Arc<Shop>>,
    head: HeaderMap,
    Query(query): Query<SearchQuery>,
) -> Result<Response, Failure> {
    Ok(json(StatusCode::OK, shop.search(tenant(&head), &query.q).await?))
}

/// Whose request it is.
pub(crate) fn tenant(head: &HeaderMap) -> &'static str {
    cache::tenant(head.get("x-tenant").and_then(|name| name.to_str().ok()))
}

async fn report(State(shop): State<Arc<Shop>>, Query(query): Query<ReportQuery>) -> Result<Response, Failure> {
    let file = shop.report(query.format).await?;
    let disposition = format!("attachment; filename=\"{}\"", query.format.file_name());
    let headers = [(header::CONTENT_TYPE, "application/gzip"), (header::CONTENT_DISPOSITION, disposition.as_str())];
    Ok((headers, file).into_response())
}

/// Sends the caller's `x-request-id` back, or one of ours, so that both sides' logs can be matched.
async fn identify(request: Request, next: Next) -> Response {
    const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let given = request.headers().get(&REQUEST_ID).cloned();
    let id = given.unwrap_or_else(|| HeaderValue::from(NEXT_ID.fetch_add(1, Ordering::Relaxed)));
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Counts the request and whether it failed.
async fn count(State(shop): State<Arc<Shop>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    shop.count(!response.status().is_success());
    response
}

fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotReserved(_) => StatusCode::BAD_GATEWAY,
            Self::Closing => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unwritable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        json(status, serde_json::json!({ "error": self.to_string() }).to_string().into_bytes())
    }
}
