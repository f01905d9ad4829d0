//! What is answered: status, type, bytes, and the headers that every answer has.
//!
//! In: what a route made. Out: an HTTP response, compressed if that is asked for and worth it. No answer allows another
//! site's page to read it, to run in it or to frame it.

use std::fmt::Display;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;

/// The page's own scripts and styles, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Below this many bytes compression gains nothing.
const WORTH_COMPRESSING: usize = 1024;

/// An answer before it is put on the wire.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    compressible: bool,
}

impl Reply {
    /// Bytes of a type, as they are.
    pub(super) fn bytes(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers
            .insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
        headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
        Self { status: StatusCode::OK, headers, body: body.into(), compressible: false }
    }

    /// Text for people, or of a format that is text; compressed where the client takes that.
    pub(super) fn compressible(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { compressible: true, ..Self::bytes(content_type, body) }
    }

    /// JSON.
    pub(super) fn json(body: impl Into<Bytes>) -> Self {
        Self::compressible("application/json", body)
    }

    /// Plain text.
    pub(super) fn text(body: impl Into<String>) -> Self {
        Self::compressible("text/plain; charset=utf-8", body.into())
    }

    /// A refusal with its reason.
    pub(super) fn refusal(status: StatusCode, why: impl Display) -> Self {
        let why = why.to_string();
        Self { status, ..Self::text(why.trim_end().to_owned() + "\n") }
    }

    /// To another place, for good.
    pub(super) fn redirection(to: &'static str) -> Self {
        Self { status: StatusCode::PERMANENT_REDIRECT, ..Self::text(String::new()) }
            .with(LOCATION, HeaderValue::from_static(to))
    }

    /// The same with another header.
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same with another status and no body.
    pub(super) fn bare(mut self, status: StatusCode) -> Self {
        (self.status, self.body) = (status, Bytes::new());
        self
    }

    /// The same without its body.
    pub(super) fn without_body(self) -> Self {
        let status = self.status;
        self.bare(status)
    }

    /// The response to a request with these headers.
    pub(super) fn response(mut self, request: &HeaderMap) -> Response<Full<Bytes>> {
        if self.compressible {
            self.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            if self.body.len() >= WORTH_COMPRESSING && takes_gzip(request) {
                self.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                self.body = gzip(&self.body).into();
            }
        }
        let mut response = Response::new(Full::new(self.body));
        (*response.status_mut(), *response.headers_mut()) = (self.status, self.headers);
        response
    }
}

/// Whether the client takes gzip (RFC 9110 §12.5.3): named, or covered by `*`, with a weight above 0.
fn takes_gzip(request: &HeaderMap) -> bool {
    let texts = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<(&str, bool)> = texts.flat_map(|text| text.split(',')).map(coding).collect();
    let says = |name: &str| codings.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, yes)| *yes);
    says("gzip").or_else(|| says("*")).unwrap_or(false)
}

/// The name of a coding, and whether its weight is above 0.
fn coding(text: &str) -> (&str, bool) {
    let (name, weight) = text.split_once(';').unwrap_or((text, ""));
    let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
    (name.trim(), weight.is_ok_and(|weight| weight > 0.0))
}

/// Fast rather than small: the thread has other work.
fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    // A vector takes every write.
    let written = encoder.write_all(body);
    debug_assert!(written.is_ok());
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_str(accept).unwrap())])
    }

    /// Check that gzip is sent to those who take it, and to nobody else.
    #[test]
    fn gzip_goes_to_those_who_take_it() {
        for yes in ["gzip", "deflate, GZIP;q=0.5", "br, *", "gzip, identity;q=0", "*;q=0.1"] {
            assert!(takes_gzip(&headers(yes)), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip;q=0, *", "*;q=0", "gzip;q=x", "xgzip"] {
            assert!(!takes_gzip(&headers(no)), "{no}");
        }
    }

    /// Check that short bodies stay as they are, and that every answer says that it varies.
    #[test]
    fn short_bodies_stay_as_they_are() {
        let short = Reply::text("ok").response(&headers("gzip"));
        assert_eq!((short.headers().get(CONTENT_ENCODING), short.headers().get(VARY).is_some()), (None, true));
        let long = Reply::text("x".repeat(5000)).response(&headers("gzip"));
        assert_eq!(long.headers()[CONTENT_ENCODING], "gzip");
    }
}
