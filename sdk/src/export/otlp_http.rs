//! OTLP over HTTP: one `POST` of a protobuf message per body.
//!
//! In: a body, already encoded and compressed. Out: what the peer's answer means. Which status codes may be retried,
//! and how long to wait, is as the OTLP specification says ("OTLP/HTTP Response", "OTLP/HTTP Throttling").

use std::time::SystemTime;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use prost::Message;

use super::answer::{Answer, RpcStatus, excerpt};
use super::body::Body;
use super::post::{Post, later, redirected};
use super::settings::Settings;
use super::transport::Reply;

const PROTOBUF: &str = "application/x-protobuf";
/// The types under which servers answer with a message.
const MESSAGES: [&str; 3] = [PROTOBUF, "application/protobuf", "application/octet-stream"];

/// The client of one OTLP/HTTP endpoint.
#[derive(Debug)]
pub(super) struct OtlpHttp(Post);

impl OtlpHttp {
    pub(super) fn new(settings: Settings) -> Self {
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
    let why = || format!("{}: {}", reply.status, error_text(reply));
    match reply.status {
        status if status.is_success() && !reply.whole => {
            Answer::Refused { why: format!("{status}: the answer is longer than any OTLP answer may be") }
        }
        // Some gateways answer every success with this, whatever was asked for.
        status if status.is_success() && reply.body.trim_ascii() == b"{}" => Answer::Accepted { warning: None },
        status if status.is_success() && !may_be_protobuf(reply) => {
            Answer::Refused { why: format!("answered success with what is not OTLP: {}", excerpt(&reply.body)) }
        }
        status if status.is_success() => Answer::of_success(&reply.body),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => later(reply, why(), now),
        status if status.is_redirection() => redirected(reply),
        _ => Answer::Refused { why: why() },
    }
}

/// Whether the body may be a message: a page to log in on, or a word of a proxy, is none, even where its bytes happen to decode as one.
/// Servers that name no type are heard, and those whose library names bytes that it does not know.
fn may_be_protobuf(reply: &Reply) -> bool {
    reply.body.is_empty() || content_type(reply).is_none_or(|kind| MESSAGES.contains(&kind.as_str()))
}

/// The media type of the body, without its parameters.
fn content_type(reply: &Reply) -> Option<String> {
    let kind = String::from_utf8_lossy(reply.headers.get(CONTENT_TYPE)?.as_bytes()).to_ascii_lowercase();
    Some(kind.split(';').next().unwrap_or_default().trim().to_owned())
}

/// The peer's own words: the message of a `Status` where the body is one, else the body's beginning.
fn error_text(reply: &Reply) -> String {
    let is_protobuf = content_type(reply).is_some_and(|kind| kind == PROTOBUF);
    match RpcStatus::decode(reply.body.as_ref()) {
        Ok(status) if is_protobuf => excerpt(status.message.as_bytes()),
        _ => excerpt(&reply.body),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &'static str)], body: &[u8]) -> Reply {
        let headers = headers.iter().map(|(k, v)| (k.parse().unwrap(), HeaderValue::from_static(v)));
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: Bytes::copy_from_slice(body),
            trailers: HeaderMap::new(),
            whole: true,
        }
    }

    /// Check every status code there can be: success is accepted, the specification's four are retried, no other is.
    #[test]
    fn only_the_four_retryable_statuses_are_retried() {
        for status in 100..=999 {
            let answer = answer(&reply(status, &[], b""), SystemTime::now());
            let expected = match status {
                200..=299 => matches!(answer, Answer::Accepted { warning: None }),
                429 => matches!(answer, Answer::Throttled { .. }),
                502..=504 => matches!(answer, Answer::Later { after: None, .. }),
                _ => matches!(answer, Answer::Refused { .. }),
            };
            assert!(expected, "{status}: {answer:?}");
        }
    }

    /// Check `Retry-After` as seconds, as a date to come, as a date gone by, and as nonsense.
    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        let cases = [
            ("7", Some(7)),
            ("Sat, 21 Nov 2026 12:00:30 GMT", Some(30)),
            ("Sat, 21 Nov 2026 11:59:00 GMT", Some(0)),
            ("soon", None),
            ("99999999999999999999999", Some(u64::MAX)),
            ("-1", None),
            ("+1", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            let answer = |status| answer(&reply(status, &[("retry-after", text)], b""), now);
            let Answer::Later { after, .. } = answer(503) else { panic!("503 is retried") };
            assert_eq!(after, seconds.map(Duration::from_secs), "{text}");
            assert_eq!(matches!(answer(429), Answer::Later { .. }), seconds.is_some(), "{text}");
        }
    }

    /// Check that the reason names the status with the peer's words, from a `Status` message, text, or a redirect.
    #[test]
    fn the_peers_words_are_kept() {
        let status = RpcStatus { code: 3, message: "no such tenant".into(), details: vec![] }.encode_to_vec();
        let cases = [
            (reply(400, &[("content-type", "application/x-protobuf")], &status), "400 Bad Request: no such tenant"),
            (reply(401, &[("content-type", "text/plain")], b"token\r\nexpired"), "401 Unauthorized: token  expired"),
            (reply(307, &[("location", "http://other/")], b""), "redirected to http://other/;"),
        ];
        for (reply, expected) in cases {
            let Answer::Refused { why } = answer(&reply, SystemTime::now()) else { panic!("{expected} is refused") };
            assert!(why.contains(expected), "{why}");
        }
    }

    /// Check that a success whose body is over the bound is not taken for an acknowledgement, and `{}` is.
    #[test]
    fn odd_successes_are_told_apart() {
        let endless = Reply { whole: false, ..reply(200, &[], b"") };
        assert!(matches!(answer(&endless, SystemTime::now()), Answer::Refused { .. }));
        let json = answer(&reply(200, &[("content-type", "application/json")], b"{}\n"), SystemTime::now());
        assert_eq!(json, Answer::Accepted { warning: None });
    }

    /// Check that a body of another type is no acknowledgement, though `error` decodes as a message of unknown fields, and that those of
    /// a message, of no type and without a body are.
    #[test]
    fn a_body_of_another_type_is_no_acknowledgement() {
        for kind in ["text/plain", "text/html; charset=utf-8", "application/json", ""] {
            let answer = answer(&reply(200, &[("content-type", kind)], b"error"), SystemTime::now());
            assert!(matches!(&answer, Answer::Refused { why } if why.contains("error")), "{kind}: {answer:?}");
        }
        for kind in ["application/x-protobuf", "Application/Protobuf; v=1", "application/octet-stream"] {
            let answer = answer(&reply(200, &[("content-type", kind)], b"\x0a\x00"), SystemTime::now());
            assert_eq!(answer, Answer::Accepted { warning: None }, "{kind}");
        }
        for reply in [reply(200, &[], b"\x0a\x00"), reply(200, &[("content-type", "text/plain")], b"")] {
            assert_eq!(answer(&reply, SystemTime::now()), Answer::Accepted { warning: None });
        }
    }
}
