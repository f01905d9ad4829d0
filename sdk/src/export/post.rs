//! One `POST` per body to one address, and what answers in HTTP have in common.
//!
//! In: a body, encoded and compressed. Out: the whole reply, or why there is none. Redirects are refused, not followed: they could
//! take headers with credentials elsewhere.

use std::time::{Duration, SystemTime};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;

use super::answer::{Answer, excerpt};
use super::body::Body;
use super::endpoint::redacted;
use super::protocol::{Compression, Version};
use super::settings::Settings;
use super::transport::{Connection, Reply};

/// A client of one address.
#[derive(Debug)]
pub(super) struct Post {
    connection: Connection,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
}

impl Post {
    pub(super) fn new(settings: Settings, content_type: &'static str) -> Self {
        let connection = settings.connection(Version::Http1);
        let mut headers = settings.request_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(HOST, settings.endpoint.authority);
        Self { connection, uri: settings.endpoint.uri, headers, timeout: settings.timeout }
    }

    /// Sends `body` once; `read` says what a reply means.
    pub(super) async fn send(&mut self, body: &Body, read: impl FnOnce(&Reply) -> Answer) -> Answer {
        let mut request = Request::new(Full::new(body.message()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if body.compression == Compression::Gzip {
            request.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        match self.connection.exchange(request, self.timeout).await {
            Ok(reply) => read(&reply).without_secrets(&self.headers),
            Err(why) => Answer::Unanswered { why },
        }
    }

    /// Bytes of bodies that were handed to a connection until now.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.connection.sent_bytes()
    }
}

/// What a redirection means.
pub(super) fn redirected(reply: &Reply) -> Answer {
    let location = reply.headers.get(LOCATION).map_or(&b"elsewhere"[..], HeaderValue::as_bytes);
    // As an endpoint is shown: a query may hold a secret, and comes back in most redirections.
    let location = redacted(&excerpt(location));
    Answer::Refused { why: format!("{}: redirected to {location}; set that as endpoint", reply.status) }
}

/// What an answer means, read at `now`, that lets the same be sent again.
pub(super) fn later(reply: &Reply, why: String, now: SystemTime) -> Answer {
    match retry_after(&reply.headers, now) {
        None if reply.status == StatusCode::TOO_MANY_REQUESTS => Answer::Throttled { why },
        after => Answer::Later { why, after },
    }
}

/// `Retry-After` in its two forms, seconds and HTTP-date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) {
        // Too many digits for a number are a long time, not none.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}
