//! The client of one Pyroscope: one call of `push.v1.PusherService/Push` per body, by the Connect protocol.
//!
//! In: a body, already encoded and compressed. Out: what the server's answer means: whether it may be tried again is decided by the
//! code that it names, else, for proxies name none, by the status.
//!
//! Source: Connect protocol reference (connectrpc.com), "Unary-Request", "Unary-Response", "Error Codes".

use std::time::SystemTime;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};

use super::answer::{Answer, excerpt};
use super::body::Body;
use super::post::{Post, later, redirected};
use super::settings::Settings;
use super::transport::Reply;

/// The method, below the address of a server.
pub(super) const PATH: &str = "/push.v1.PusherService/Push";

const PROTOBUF: &str = "application/proto";
/// No error is longer; what is is not read as one.
const LONGEST_ERROR: usize = 64 << 10;

/// The client of one server.
#[derive(Debug)]
pub(super) struct Pusher(Post);

impl Pusher {
    pub(super) fn new(mut settings: Settings) -> Self {
        settings.headers.insert(HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1"));
        Self(Post::new(settings, PROTOBUF))
    }

    /// Sends `body` once.
    pub(super) async fn send(&mut self, body: &Body) -> Answer {
        self.0.send(body, |reply| answer(reply, SystemTime::now())).await
    }

    /// Bytes of bodies that were handed to a connection until now.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.0.sent_bytes()
    }
}

/// What `reply`, read at `now`, means.
fn answer(reply: &Reply, now: SystemTime) -> Answer {
    let status = reply.status;
    if status.is_success() {
        return answer_of_success(reply);
    }
    if status.is_redirection() {
        return redirected(reply);
    }
    let error = ConnectError::read(reply);
    let why = match &error {
        Some(ConnectError { code, message }) => format!("{status}: {code}: {message}"),
        None => format!("{status}: {}", excerpt(&reply.body)),
    };
    match error.map_or_else(|| may_pass(status), |error| error.may_pass()) {
        true => later(reply, why, now),
        false => Answer::Refused { why },
    }
}

/// A success has a message without fields, which is empty: a page to log in on is none.
fn answer_of_success(reply: &Reply) -> Answer {
    let is_protobuf = reply.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == PROTOBUF);
    match reply.whole && (reply.body.is_empty() || is_protobuf) {
        true => Answer::Accepted { warning: None },
        false => {
            Answer::Refused { why: format!("answered success with what is not push.v1: {}", excerpt(&reply.body)) }
        }
    }
}

/// Whether a status that came without an error of Connect may be another one next time.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 502..=504)
}

/// The body of an answer that is no success, in JSON.
struct ConnectError {
    code: String,
    message: String,
}

impl ConnectError {
    fn read(reply: &Reply) -> Option<Self> {
        let body = reply.body.get(..reply.body.len().min(LONGEST_ERROR))?;
        let error: serde_json::Value = serde_json::from_slice(body).ok()?;
        let text = |name: &str| error.get(name)?.as_str().map(|text| excerpt(text.as_bytes()));
        Some(Self { code: text("code")?, message: text("message").unwrap_or_default() })
    }

    /// Whether the code says that the server could not take it now.
    fn may_pass(&self) -> bool {
        ["aborted", "canceled", "deadline_exceeded", "resource_exhausted", "unavailable"].contains(&self.code.as_str())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn answered(status: u16, content_type: &'static str, body: &[u8]) -> Answer {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        let (status, body) = (StatusCode::from_u16(status).unwrap(), Bytes::copy_from_slice(body));
        let reply = Reply { status, headers, body, trailers: HeaderMap::new(), whole: true };
        answer(&reply, SystemTime::UNIX_EPOCH)
    }

    /// Check every status without an error of Connect, as proxies answer: which are accepted, tried again, refused.
    #[test]
    fn a_status_alone_is_judged() {
        for status in 100..=999 {
            let answer = answered(status, "text/plain", b"");
            let expected = match status {
                200..=299 => matches!(answer, Answer::Accepted { warning: None }),
                429 => matches!(answer, Answer::Throttled { .. }),
                408 | 502 | 503 | 504 => matches!(answer, Answer::Later { after: None, .. }),
                _ => matches!(answer, Answer::Refused { .. }),
            };
            assert!(expected, "{status}: {answer:?}");
        }
    }

    /// Check every code of Connect under its status, and that a code decides where the status says something else.
    #[test]
    fn a_code_decides_over_the_status() {
        let later = ["aborted", "canceled", "deadline_exceeded", "resource_exhausted", "unavailable"];
        let codes = [
            (499, "canceled"),
            (500, "unknown"),
            (400, "invalid_argument"),
            (504, "deadline_exceeded"),
            (404, "not_found"),
            (409, "already_exists"),
            (403, "permission_denied"),
            (429, "resource_exhausted"),
            (400, "failed_precondition"),
            (409, "aborted"),
            (400, "out_of_range"),
            (501, "unimplemented"),
            (500, "internal"),
            (503, "unavailable"),
            (500, "data_loss"),
            (401, "unauthenticated"),
            (503, "invalid_argument"),
            (500, "unavailable"),
        ];
        for (status, code) in codes {
            let body = format!(r#"{{"code":"{code}","message":"push rate\n exceeded","details":[]}}"#);
            let (why, tries_again) = match answered(status, "application/json", body.as_bytes()) {
                Answer::Later { why, .. } | Answer::Throttled { why } => (why, true),
                Answer::Refused { why } => (why, false),
                answer => panic!("{code}: {answer:?}"),
            };
            assert_eq!(tries_again, later.contains(&code), "{status} {code}");
            assert!(why.ends_with(&format!(": {code}: push rate  exceeded")), "{why}");
        }
    }

    /// Check that what is not the empty message of a success is no acknowledgement.
    #[test]
    fn only_a_push_response_acknowledges() {
        assert_eq!(answered(200, "application/proto", b""), Answer::Accepted { warning: None });
        assert_eq!(answered(200, "application/proto", b"\x0a\x01x"), Answer::Accepted { warning: None });
        for (status, body) in [(200, "<html>please log in</html>"), (202, "queued"), (200, "{}")] {
            let answer = answered(status, "text/html", body.as_bytes());
            assert!(matches!(&answer, Answer::Refused { why } if why.contains(body)), "{status}: {answer:?}");
        }
    }

    /// Check that errors that are cut, too long or of other forms are kept as the text that they are.
    #[test]
    fn odd_errors_are_text() {
        let long = format!(r#"{{"code":"unavailable","message":"{}"}}"#, "x".repeat(LONGEST_ERROR));
        for body in [r#"{"code":"unavai"#, r#"{"code":7}"#, r#""unavailable""#, "[]", &long] {
            let answer = answered(400, "application/json", body.as_bytes());
            assert!(matches!(&answer, Answer::Refused { why } if why.contains(&body[..2])), "{answer:?}");
        }
    }
}
