//! OTLP over HTTP: one path, protobuf alone.
//!
//! In: a request. Out: its answer, with the codes that OTLP's senders go by: 400 for what cannot be decoded, 413, 415, 429 with
//! `Retry-After` where too much is under way, or too much CPU is used.
//!
//! Source: OpenTelemetry Protocol specification, "OTLP/HTTP Response", "Failures".

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use prost::Message;

use super::body::{self, Refused};
use super::server::{Answer, Door, Later};

const PATH: &str = "/v1development/profiles";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// `google.rpc.Status` without details, as OTLP wants refusals to be.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// Answers one request.
pub(super) async fn answer(request: Request<Incoming>, door: &Door) -> Answer {
    match take(request, door).await {
        Ok(message) => reply(StatusCode::OK, message.into()),
        Err(Refusal { status, why, after: Some(seconds) }) => {
            door.intake.postponed();
            let mut answer = refuse(status, &why);
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
            answer
        }
        Err(Refusal { status, why, after: None }) => {
            door.intake.refused();
            let mut answer = refuse(status, &why);
            if status == StatusCode::METHOD_NOT_ALLOWED {
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            }
            answer
        }
    }
}

struct Refusal {
    status: StatusCode,
    why: String,
    /// Seconds after which it is to come again.
    after: Option<&'static str>,
}

impl Refusal {
    #[expect(clippy::needless_pass_by_value, reason = "an error is given away, a text has no owner")]
    fn new(status: StatusCode, why: impl ToString) -> Self {
        Self { status, why: why.to_string(), after: None }
    }
}

async fn take(request: Request<Incoming>, door: &Door) -> Result<Vec<u8>, Refusal> {
    let compressed = check(&request)?;
    let _place = door.admit().map_err(|Later { why, seconds }| Refusal {
        after: Some(seconds),
        ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, why)
    })?;
    let bounds = door.bounds;
    let mut body = body::collect(request.into_body(), bounds.body, bounds).await.map_err(unreadable)?;
    if compressed {
        body = body::decompress(&body, bounds.content).map_err(unreadable)?;
    }
    door.intake.take(&body).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))
}

/// Whether the body is compressed, of a request that can be taken at all.
fn check(request: &Request<Incoming>) -> Result<bool, Refusal> {
    if request.uri().path() != PATH {
        return Err(Refusal::new(StatusCode::NOT_FOUND, format!("profiles are taken at {PATH}")));
    }
    if request.method() != Method::POST {
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "profiles are posted"));
    }
    let kind = text(request.headers(), CONTENT_TYPE.as_str());
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-protobuf") {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not application/x-protobuf"));
    }
    match text(request.headers(), CONTENT_ENCODING.as_str()) {
        "" | "identity" => Ok(false),
        "gzip" => Ok(true),
        _ => Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content encoding is neither gzip nor identity")),
    }
}

/// A header's text; empty where it is not set or no text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

fn unreadable(refused: Refused) -> Refusal {
    let status = match refused {
        Refused::TooLong(_) | Refused::TooLongInside(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Refused::NotGzip | Refused::Broken => StatusCode::BAD_REQUEST,
        Refused::TooSlow(_) | Refused::Stalled(_) => StatusCode::REQUEST_TIMEOUT,
    };
    Refusal::new(status, refused)
}

fn refuse(status: StatusCode, why: &str) -> Answer {
    reply(status, Status { code: i32::from(status.as_u16()), message: why.to_owned() }.encode_to_vec().into())
}

fn reply(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    answer
}
