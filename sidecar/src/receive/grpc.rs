//! OTLP over gRPC: one method, answered by hand.
//!
//! In: a request over HTTP/2. Out: a message with trailers, or trailers alone with a status. Codes: INVALID_ARGUMENT for what cannot be
//! decoded, RESOURCE_EXHAUSTED for what is too large, UNAVAILABLE (to be tried again) where too much is under way or too much CPU is used,
//! UNIMPLEMENTED for other methods and compressions.
//!
//! Source: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), compression.md, statuscodes.md; OTLP specification, "OTLP/gRPC Response".

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;

use super::body::{self, Refused};
use super::http::text;
use super::server::{Answer, Door};

const PATH: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The end of a call that failed.
struct Status {
    code: u8,
    why: String,
}

mod code {
    pub(super) const INVALID_ARGUMENT: u8 = 3;
    pub(super) const DEADLINE_EXCEEDED: u8 = 4;
    pub(super) const RESOURCE_EXHAUSTED: u8 = 8;
    pub(super) const UNIMPLEMENTED: u8 = 12;
    pub(super) const INTERNAL: u8 = 13;
    pub(super) const UNAVAILABLE: u8 = 14;
}

/// Whether the request is a call of gRPC.
pub(super) fn is_call(request: &Request<Incoming>) -> bool {
    let kind = text(request.headers(), CONTENT_TYPE.as_str());
    request.version() == Version::HTTP_2 && kind.starts_with("application/grpc")
}

/// Answers one call.
pub(super) async fn answer(request: Request<Incoming>, door: &Door) -> Answer {
    match take(request, door).await {
        Ok(message) => accepted(&message),
        Err(status) => {
            if status.code == code::UNAVAILABLE {
                door.intake.postponed();
            } else {
                door.intake.refused();
            }
            failed(&status)
        }
    }
}

async fn take(request: Request<Incoming>, door: &Door) -> Result<Vec<u8>, Status> {
    let gzip = check(&request)?;
    let _place = door.admit().map_err(|later| status(code::UNAVAILABLE, later.why))?;
    let bounds = door.bounds;
    let body = body::collect(request.into_body(), bounds.body + PREFIX, bounds).await.map_err(unreadable)?;
    let message = match message(&body)? {
        (false, message) => message,
        (true, message) if gzip => body::decompress(&message, bounds.content).map_err(unreadable)?,
        (true, _) => {
            return Err(status(code::INTERNAL, "the message is compressed, and grpc-encoding does not say how"));
        }
    };
    door.intake.take(&message).map_err(|error| status(code::INVALID_ARGUMENT, error))
}

/// Whether compressed messages are gzip, of a call that can be taken at all.
fn check(request: &Request<Incoming>) -> Result<bool, Status> {
    if request.method() != Method::POST || request.uri().path() != PATH {
        return Err(status(code::UNIMPLEMENTED, format!("the one method is {PATH}")));
    }
    let kind = text(request.headers(), CONTENT_TYPE.as_str());
    if !["application/grpc", "application/grpc+proto"].contains(&kind) {
        return Err(status(code::UNIMPLEMENTED, "messages are protobuf: application/grpc+proto"));
    }
    match text(request.headers(), "grpc-encoding") {
        "" | "identity" => Ok(false),
        "gzip" => Ok(true),
        _ => Err(status(code::UNIMPLEMENTED, "messages are compressed by gzip or not at all")),
    }
}

/// The one message of a unary call, and whether it is compressed.
fn message(body: &Bytes) -> Result<(bool, Bytes), Status> {
    let malformed = || status(code::INTERNAL, "the body is not one whole message behind its length");
    let ([flag, length @ ..], rest) = body.split_first_chunk::<PREFIX>().ok_or_else(malformed)?;
    if rest.len() as u64 != u64::from(u32::from_be_bytes(*length)) || *flag > 1 {
        return Err(malformed());
    }
    Ok((*flag == 1, body.slice(PREFIX..)))
}

#[expect(clippy::needless_pass_by_value, reason = "an error is given away, a text has no owner")]
fn status(code: u8, why: impl ToString) -> Status {
    Status { code, why: why.to_string() }
}

fn unreadable(refused: Refused) -> Status {
    let code = match refused {
        Refused::TooLong(_) | Refused::TooLongInside(_) => code::RESOURCE_EXHAUSTED,
        Refused::NotGzip | Refused::Broken => code::INTERNAL,
        Refused::TooSlow(_) | Refused::Stalled(_) => code::DEADLINE_EXCEEDED,
    };
    status(code, refused)
}

fn accepted(message: &[u8]) -> Answer {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    // An answer of ours is a number and a sentence.
    framed.put_u32(u32::try_from(message.len()).unwrap_or(0));
    framed.put_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(framed.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    reply(Response::new(body.boxed_unsync()))
}

/// Trailers alone: the status stands among the headers, and there is no body.
fn failed(status: &Status) -> Answer {
    let mut answer = Response::new(Empty::new().boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert("grpc-status", HeaderValue::from(u16::from(status.code)));
    if let Ok(why) = HeaderValue::from_str(&percent_encoded(&status.why)) {
        headers.insert("grpc-message", why);
    }
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,gzip"));
    reply(answer)
}

fn reply(mut answer: Answer) -> Answer {
    *answer.status_mut() = StatusCode::OK;
    answer.headers_mut().insert(CONTENT_TYPE, GRPC);
    answer
}

/// A text as `grpc-message` has it: printable ASCII but for `%`, all else as `%XX`.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |encoded, byte| match byte {
        b' '..=b'~' if byte != b'%' => encoded + char::from(byte).encode_utf8(&mut [0; 4]),
        _ => format!("{encoded}%{byte:02X}"),
    })
}
