//! What an attempt to deliver a request came to, in the ways that matter to whoever sent it.
//!
//! In: texts and messages from a peer, which are not to be trusted. Out: an [`Answer`]; texts are bounded and printable.

use std::error::Error;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message;

/// The outcome of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The peer took all of it; it may have added a warning.
    Accepted { warning: Option<String> },
    /// The peer took it but for so many of its profiles, and must not be asked again.
    Partial { rejected: u64, why: String },
    /// The peer did not take it and must not be asked again.
    Refused { why: String },
    /// It may be tried again, not before `after` if the peer said so.
    Later { why: String, after: Option<Duration> },
    /// It is more than the peer takes now, and it does not say when it takes more.
    Throttled { why: String },
    /// There was no answer: no connection, or it broke, or time was over.
    Unanswered { why: String },
}

/// What stands for a secret.
const HIDDEN: &str = "…";
/// Shorter values of headers are no secrets: they would be found in any text.
const SHORTEST: usize = 4;

impl Answer {
    /// The same without what is secret among the `headers` of the request, which some servers repeat in what they say.
    pub(super) fn without_secrets(self, headers: &HeaderMap) -> Self {
        let secrets: Vec<&str> = headers.values().flat_map(secrets).collect();
        let clean = |text| without(text, &secrets);
        match self {
            Self::Accepted { warning } => Self::Accepted { warning: warning.map(clean) },
            Self::Partial { rejected, why } => Self::Partial { rejected, why: clean(why) },
            Self::Refused { why } => Self::Refused { why: clean(why) },
            Self::Later { why, after } => Self::Later { why: clean(why), after },
            Self::Throttled { why } => Self::Throttled { why: clean(why) },
            Self::Unanswered { why } => Self::Unanswered { why: clean(why) },
        }
    }

    /// What the body of a success says: nothing, a warning, or that a part was rejected.
    ///
    /// A partial success is no acknowledgement of any of the body: the peer names a number of profiles, not which ones, so
    /// no stack of it can be said to have arrived.
    ///
    /// Source: OTLP specification, "Partial Success"; `rejected_profiles = 0` with a message is a warning.
    pub(super) fn of_success(body: &[u8]) -> Self {
        let Ok(response) = ExportProfilesServiceResponse::decode(body) else {
            return Self::Refused { why: format!("answered success with a body that is not OTLP: {}", excerpt(body)) };
        };
        let partial = response.partial_success.unwrap_or_default();
        let message = excerpt(partial.error_message.as_bytes());
        match partial.rejected_profiles {
            0 => Self::Accepted { warning: Some(message).filter(|message| !message.is_empty()) },
            rejected => {
                let why = format!("rejected {rejected} profiles: {message}");
                Self::Partial { rejected: u64::try_from(rejected).unwrap_or(0), why }
            }
        }
    }
}

/// What is secret of a header's value: all of it, and what stands behind the scheme of credentials (`Bearer`; RFC 9110, 11.4).
fn secrets(value: &HeaderValue) -> impl Iterator<Item = &str> {
    let text = value.to_str().ok().filter(|_| value.is_sensitive());
    let behind = text.and_then(|text| Some(text.split_once(' ')?.1));
    text.into_iter().chain(behind).filter(|secret| secret.len() >= SHORTEST)
}

/// A text without these secrets, the last of which may be cut off.
fn without(mut text: String, secrets: &[&str]) -> String {
    for secret in secrets {
        text = text.replace(secret, HIDDEN);
        let begun = (SHORTEST..secret.len()).rev().filter_map(|length| secret.get(..length));
        if let Some(begun) = begun.into_iter().find(|begun| text.ends_with(begun)) {
            text.truncate(text.len() - begun.len());
            text.push_str(HIDDEN);
        }
    }
    text
}

/// `google.rpc.Status`, the error details of gRPC and the error body of OTLP/HTTP (google/rpc/status.proto).
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<Any>,
}

/// `google.protobuf.Any` (google/protobuf/any.proto).
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `google.rpc.RetryInfo` (google/rpc/error_details.proto).
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

/// `google.protobuf.Duration` (google/protobuf/duration.proto).
#[derive(Clone, PartialEq, Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl RpcStatus {
    /// The delay of the first `RetryInfo` among the details; a negative one counts as zero. `None`: there is no
    /// `RetryInfo`, so the peer does not say that trying again helps.
    pub(super) fn retry_delay(&self) -> Option<Duration> {
        let info = self.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
        let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
        let seconds = u64::try_from(delay.seconds).unwrap_or(0);
        Some(Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(delay.nanos).unwrap_or(0)))
    }
}

/// How many characters of a peer's text are kept.
const KEPT: usize = 256;

/// The beginning of a text that came from a peer, fit for a log line: one line, no control characters, bounded.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most 4 bytes; looking at no more keeps the cost bounded too.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * KEPT)]);
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(KEPT).collect::<String>().trim().to_owned()
}

/// An error with its causes, outermost first, as `connect: Connection refused (os error 111)`.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors already print their cause.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    excerpt(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what each form of success body means: nothing, empty partial success, warning, rejection, not OTLP at all.
    #[test]
    fn a_success_body_is_read_as_the_specification_says() {
        assert_eq!(Answer::of_success(b""), Answer::Accepted { warning: None });
        assert_eq!(Answer::of_success(&[0x0a, 0x00]), Answer::Accepted { warning: None });
        let warning = [0x0a, 0x05, 0x12, 0x03, b'o', b'l', b'd'];
        assert_eq!(Answer::of_success(&warning), Answer::Accepted { warning: Some("old".into()) });
        let partial = [0x0a, 0x07, 0x08, 0x02, 0x12, 0x03, b'b', b'a', b'd'];
        assert_eq!(
            Answer::of_success(&partial),
            Answer::Partial { rejected: 2, why: "rejected 2 profiles: bad".into() }
        );
        let below_zero = [0x0a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert!(matches!(Answer::of_success(&below_zero), Answer::Partial { rejected: 0, .. }));
        let Answer::Refused { why } = Answer::of_success(b"<html>please log in</html>") else {
            panic!("a login page is not an acknowledgement")
        };
        assert!(why.contains("<html>please log in"), "{why}");
    }

    /// Check that a server's text has no credentials of ours in it, nor the beginning of some where it is cut.
    #[test]
    fn what_a_server_repeats_is_no_secret() {
        let mut headers = HeaderMap::new();
        for (name, value, is_sensitive) in
            [("authorization", "Bearer hunter2hunter2", true), ("x-tenant", "a", true), ("accept", "text", false)]
        {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(is_sensitive);
            headers.insert(name, value);
        }
        let told = |why: &str| match (Answer::Refused { why: why.into() }).without_secrets(&headers) {
            Answer::Refused { why } => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(told("400: bad Bearer hunter2hunter2, a text"), "400: bad …, a text");
        assert_eq!(told("400: bad hunter2hunter2, a text"), "400: bad …, a text");
        assert_eq!(told("400: no Bearer hunter2hun"), "400: no …");
        assert_eq!(told("400: a hunt"), "400: a …");
        assert_eq!(told("400: a hun"), "400: a hun");
    }

    /// Check that `RetryInfo` is found by its type, whatever stands before it, and that a hostile one is harmless.
    #[test]
    fn retry_info_gives_the_delay() {
        let info = |value: Vec<u8>| RpcStatus {
            code: 8,
            message: String::new(),
            details: vec![
                Any { type_url: "type.googleapis.com/google.rpc.DebugInfo".into(), value: vec![1, 2] },
                Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value },
            ],
        };
        let delay = |seconds, nanos| RetryInfo { retry_delay: Some(ProtoDuration { seconds, nanos }) }.encode_to_vec();
        assert_eq!(info(delay(2, 500_000_000)).retry_delay(), Some(Duration::from_millis(2500)));
        assert_eq!(info(delay(-5, -1)).retry_delay(), Some(Duration::ZERO));
        assert!(info(delay(i64::MAX, i32::MAX)).retry_delay() > Some(Duration::from_secs(1 << 40)));
        assert_eq!(info(vec![0xff]).retry_delay(), None);
        assert_eq!(RpcStatus::default().retry_delay(), None);
    }

    /// Check that a peer's text is cut, on one line, and valid whatever its bytes.
    #[test]
    fn an_excerpt_is_short_and_printable() {
        assert_eq!(excerpt(b"no\r\nsuch \x1b[31mtenant\xff"), "no  such  [31mtenant\u{fffd}");
        assert_eq!(excerpt("é".repeat(1_000_000).as_bytes()).chars().count(), KEPT);
    }
}
