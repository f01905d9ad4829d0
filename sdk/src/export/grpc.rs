//! A unary call of gRPC per body, over HTTP/2: of OTLP and of every other destination that speaks gRPC.
//!
//! In: a body, already encoded, compressed and framed. Out: what the peer's status means; what the message of a success says is for the
//! destination to read. Written on `hyper` rather
//! than on a gRPC library for two reasons: a body compressed once serves every destination and every retry, and nothing
//! that a peer sends may panic in the host, not even a status whose details are not base64.
//!
//! Source: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), its HTTP status mapping (http-grpc-status-mapping.md), and the OTLP
//! specification, "Failures" and "OTLP/gRPC Throttling".

use std::borrow::Cow;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use percent_encoding::percent_decode;
use prost::Message;

use super::answer::{Answer, RpcStatus, excerpt};
use super::body::Body;
use super::protocol::{Compression, Version};
use super::settings::Settings;
use super::transport::{Connection, LONGEST_ANSWER, Reply};

/// The client of one method of one endpoint.
#[derive(Debug)]
pub(super) struct Grpc {
    connection: Connection,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    read: Read,
}

/// Reads the message of a success.
pub(super) type Read = fn(&[u8]) -> Answer;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

impl Grpc {
    pub(super) fn new(settings: Settings, read: Read) -> Self {
        let connection = settings.connection(Version::Http2);
        let mut headers = settings.request_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(GRPC_ACCEPT_ENCODING, GZIP);
        // Milliseconds with at most 8 digits; settings allow no more than 600,000.
        if let Ok(timeout) = HeaderValue::from_str(&format!("{}m", settings.timeout.as_millis())) {
            headers.insert(GRPC_TIMEOUT, timeout);
        }
        Self { connection, uri: settings.endpoint.uri, headers, timeout: settings.timeout, read }
    }

    /// Sends `body` once.
    pub(super) async fn send(&mut self, body: &Body) -> Answer {
        let mut request = Request::new(Full::new(body.framed()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if body.compression == Compression::Gzip {
            request.headers_mut().insert(GRPC_ENCODING, GZIP);
        }
        match self.connection.exchange(request, self.timeout).await {
            Ok(reply) => answer(&reply, self.read).without_secrets(&self.headers),
            Err(why) => Answer::Unanswered { why },
        }
    }

    /// Bytes of bodies that were handed to a connection until now.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.connection.sent_bytes()
    }
}

/// The status codes that are told apart here (grpc/doc/statuscodes.md).
mod code {
    pub(super) const OK: u32 = 0;
    pub(super) const CANCELLED: u32 = 1;
    pub(super) const UNKNOWN: u32 = 2;
    pub(super) const DEADLINE_EXCEEDED: u32 = 4;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const ABORTED: u32 = 10;
    pub(super) const OUT_OF_RANGE: u32 = 11;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const INTERNAL: u32 = 13;
    pub(super) const UNAVAILABLE: u32 = 14;
    pub(super) const DATA_LOSS: u32 = 15;
    pub(super) const UNAUTHENTICATED: u32 = 16;
    /// The names of all codes, in order.
    pub(super) const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
}

/// The end of a call, from trailers or, where there is no message, from headers.
#[derive(Debug, Default)]
struct Status {
    code: u32,
    message: String,
    details: RpcStatus,
}

/// What `reply` means; OTLP's table says which codes are final, also for other destinations.
fn answer(reply: &Reply, read: Read) -> Answer {
    let Some(status) = Status::read(&reply.trailers).or_else(|| Status::read(&reply.headers)) else {
        return answer_without_status(reply);
    };
    let name = code::NAMES.get(status.code as usize).copied().unwrap_or("UNKNOWN");
    let why = format!("{name}: {}", status.message);
    let asked = status.details.retry_delay();
    match status.code {
        code::OK => match message(reply) {
            Some(message) => read(&message),
            None => Answer::Refused { why: "answered OK with a message that cannot be read".into() },
        },
        code::RESOURCE_EXHAUSTED if asked.is_some() => Answer::Later { why, after: asked },
        code if is_retryable(code) => Answer::Later { why, after: asked },
        _ => Answer::Refused { why },
    }
}

/// What a reply without any gRPC status means: a proxy's answer, or a call that was cut off.
fn answer_without_status(reply: &Reply) -> Answer {
    let code = match reply.status {
        StatusCode::OK if !reply.whole => {
            return Answer::Refused { why: "the answer is longer than any answer may be".into() };
        }
        // HTTP/2 shows some resets as the end of the body: we cannot know what became of the request.
        StatusCode::OK if reply.headers.get(CONTENT_TYPE).is_some_and(is_grpc) => {
            return Answer::Unanswered { why: "the answer ended before its status".into() };
        }
        StatusCode::BAD_REQUEST => code::INTERNAL,
        StatusCode::UNAUTHORIZED => code::UNAUTHENTICATED,
        StatusCode::FORBIDDEN => code::PERMISSION_DENIED,
        StatusCode::NOT_FOUND => code::UNIMPLEMENTED,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => code::UNAVAILABLE,
        _ => code::UNKNOWN,
    };
    let name = code::NAMES[code as usize];
    let why = format!("{name}: not a gRPC answer, but HTTP {}: {}", reply.status, excerpt(&reply.body));
    if is_retryable(code) { Answer::Later { why, after: None } } else { Answer::Refused { why } }
}

/// The codes after which OTLP lets the same request be sent again.
fn is_retryable(code: u32) -> bool {
    matches!(
        code,
        code::CANCELLED
            | code::DEADLINE_EXCEEDED
            | code::ABORTED
            | code::OUT_OF_RANGE
            | code::UNAVAILABLE
            | code::DATA_LOSS
    )
}

fn is_grpc(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"application/grpc")
}

impl Status {
    /// The status in `headers`, if there is one. Whatever is malformed counts as not said.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let code = headers.get("grpc-status")?;
        let code = code.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(code::UNKNOWN);
        let message = headers.get("grpc-message").map(|text| percent_decode(text.as_bytes()).collect::<Vec<u8>>());
        let details = headers.get("grpc-status-details-bin").and_then(|text| BASE64.decode(text.as_bytes()).ok());
        Some(Self {
            code,
            message: excerpt(&message.unwrap_or_default()),
            details: RpcStatus::decode(details.unwrap_or_default().as_slice()).unwrap_or_default(),
        })
    }
}

/// Base64 as gRPC metadata has it: padding may be there or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The one message of a unary answer: behind a flag and its length, with nothing after it. The flag 1 says that it is compressed, as
/// a peer may where the request was (PROTOCOL-HTTP2.md, "Length-Prefixed-Message").
fn message(reply: &Reply) -> Option<Cow<'_, [u8]>> {
    let ([flag, length @ ..], message) = reply.body.split_first_chunk::<5>()?;
    if message.len() != u32::from_be_bytes(*length) as usize {
        return None;
    }
    match flag {
        0 => Some(Cow::Borrowed(message)),
        1 if reply.headers.get(GRPC_ENCODING) == Some(&GZIP) => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(message).take(LONGEST_ANSWER as u64 + 1).read_to_end(&mut plain).ok()?;
            (plain.len() <= LONGEST_ANSWER).then_some(Cow::Owned(plain))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::super::answer::Any;
    use super::*;

    /// What a reply means to a client of OTLP.
    fn answer(reply: &Reply) -> Answer {
        super::answer(reply, Answer::of_success)
    }

    /// An answer of status 200 that ends with these trailers.
    fn reply(body: &[u8], trailers: &[(&'static str, &str)]) -> Reply {
        let trailers = trailers.iter().map(|(k, v)| (k.parse().unwrap(), HeaderValue::from_str(v).unwrap()));
        Reply {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))]),
            body: Bytes::copy_from_slice(body),
            trailers: trailers.collect(),
            whole: true,
        }
    }

    /// `RetryInfo` of 3 s in `grpc-status-details-bin`.
    fn retry_info() -> String {
        let value = vec![0x0a, 0x02, 0x08, 0x03];
        let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value };
        let status = RpcStatus { code: 8, message: "slow down".into(), details: vec![any] };
        BASE64.encode(status.encode_to_vec())
    }

    /// Check every code, with and without `RetryInfo`: the specification's six are retried, `RESOURCE_EXHAUSTED` only if
    /// the peer says when, no other ever.
    #[test]
    fn only_retryable_codes_are_retried() {
        let details = retry_info();
        for number in 1..=20 {
            let number_text = number.to_string();
            let plain = answer(&reply(b"", &[("grpc-status", &number_text)]));
            let informed = answer(&reply(b"", &[("grpc-status", &number_text), ("grpc-status-details-bin", &details)]));
            let after = Some(Duration::from_secs(3));
            let (retried, retried_if_told) = match number {
                1 | 4 | 10 | 11 | 14 | 15 => (true, true),
                8 => (false, true),
                _ => (false, false),
            };
            assert_eq!(matches!(plain, Answer::Later { after: None, .. }), retried, "{number}: {plain:?}");
            let obeyed = matches!(informed, Answer::Later { after: told, .. } if told == after);
            assert_eq!(obeyed, retried_if_told, "{number}: {informed:?}");
        }
    }

    /// Check that OK needs a whole message: empty, partial success, and what is no message at all.
    #[test]
    fn an_acknowledgement_is_ok_with_a_message() {
        let ok = [("grpc-status", "0")];
        assert_eq!(answer(&reply(&[0; 5], &ok)), Answer::Accepted { warning: None });
        assert_eq!(answer(&reply(&[0, 0, 0, 0, 2, 0x0a, 0], &ok)), Answer::Accepted { warning: None });
        let partial = [0, 0, 0, 0, 4, 0x0a, 2, 0x08, 5];
        assert_eq!(answer(&reply(&partial, &ok)), Answer::Partial { rejected: 5, why: "rejected 5 profiles: ".into() });
        for odd in [&b""[..], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 9, 1], &[0, 0, 0, 0, 0, 0]] {
            assert!(matches!(answer(&reply(odd, &ok)), Answer::Refused { .. }), "{odd:?}");
        }
    }

    /// Check that a compressed message is read, and that one that is cut off, longer than any answer, or compressed in another way is none.
    #[test]
    fn an_acknowledgement_may_be_compressed() {
        let compressed = |message: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(message).unwrap();
            encoder.finish().unwrap()
        };
        let answered = |encoding: &'static str, bytes: &[u8]| {
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            let mut reply = reply(&[&[1][..], &length, bytes].concat(), &[("grpc-status", "0")]);
            reply.headers.insert(GRPC_ENCODING, HeaderValue::from_static(encoding));
            answer(&reply)
        };
        assert_eq!(answered("gzip", &compressed(&[0x0a, 0])), Answer::Accepted { warning: None });
        let partial = answered("gzip", &compressed(&[0x0a, 2, 0x08, 5]));
        assert_eq!(partial, Answer::Partial { rejected: 5, why: "rejected 5 profiles: ".into() });
        let bomb = compressed(&vec![0; LONGEST_ANSWER + 1]);
        let cut = compressed(&[0x0a, 0]);
        for (encoding, bytes) in [("gzip", &bomb[..]), ("gzip", &cut[..cut.len() - 9]), ("br", &cut[..])] {
            assert!(matches!(answered(encoding, bytes), Answer::Refused { .. }), "{encoding}");
        }
    }

    /// Check that a malformed status is survived: details that are no base64 or no message, a code that is no number.
    #[test]
    fn a_malformed_status_is_survived() {
        for details in ["***", "////", ""] {
            let trailers = [("grpc-status", "14"), ("grpc-message", "%ff%"), ("grpc-status-details-bin", details)];
            assert!(matches!(answer(&reply(b"", &trailers)), Answer::Later { after: None, .. }), "{details}");
        }
        for code in ["", "x", "-1", "99999999999"] {
            let answer = answer(&reply(b"", &[("grpc-status", code)]));
            assert!(matches!(answer, Answer::Refused { .. }), "{code}: {answer:?}");
        }
    }

    /// Check that the reason names the code with the peer's words, decoded.
    #[test]
    fn the_peers_words_are_kept() {
        let trailers = [("grpc-status", "3"), ("grpc-message", "no%20mapping%0A%C3%BC")];
        let Answer::Refused { why } = answer(&reply(b"", &trailers)) else { panic!("code 3 is refused") };
        assert_eq!(why, "INVALID_ARGUMENT: no mapping ü");
    }

    /// Check what a proxy's answer means, and a call that ended without a status.
    #[test]
    fn answers_without_a_status_are_mapped() {
        let http = |status| Reply { status, headers: HeaderMap::new(), ..reply(b"busy", &[]) };
        for status in [429, 502, 503, 504] {
            let answer = answer(&http(StatusCode::from_u16(status).unwrap()));
            assert!(matches!(answer, Answer::Later { .. }), "{status}: {answer:?}");
        }
        for status in [200, 301, 400, 401, 403, 404, 500] {
            let answer = answer(&http(StatusCode::from_u16(status).unwrap()));
            assert!(matches!(answer, Answer::Refused { .. }), "{status}: {answer:?}");
        }
        assert!(matches!(answer(&reply(b"", &[])), Answer::Unanswered { .. }));
    }
}
