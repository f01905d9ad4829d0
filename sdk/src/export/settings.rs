//! The settings of one OTLP endpoint, checked; and the checks, which code and environment share.
//!
//! In: values with the names of the settings that they came from. Out: [`Settings`] that connections and requests can be
//! made of, or an error that names setting and remedy. What may be secret is neither printed nor repeated in an error.

use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::endpoint::Endpoint;
use super::protocol::{Compression, Protocol, Version};
use super::tls::{Tls, TlsSettings};
use super::transport::Connection;
use crate::error::Error;

/// How long one attempt may take if nothing else is set, from connecting to the end of the answer.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Who we are, as OTLP asks: the product first, then the exporter.
const AGENT: &str =
    concat!("profiler-sdk/", env!("CARGO_PKG_VERSION"), " OTel-OTLP-Exporter-Rust/", env!("CARGO_PKG_VERSION"));

/// An OTLP endpoint whose settings are known to be good. Header values are marked sensitive: `Debug` hides them.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) protocol: Protocol,
    pub(super) endpoint: Endpoint,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) compression: Compression,
    pub(super) tls: TlsSettings,
}

impl Settings {
    /// The name in `stats()`.
    pub(super) fn name(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Grpc => "otlp-grpc",
            Protocol::Http => "otlp-http",
        };
        format!("{protocol} {}", self.endpoint.shown)
    }

    /// A connection to the endpoint, not opened yet.
    pub(super) fn connection(&self, version: Version) -> Connection {
        let tls = self.endpoint.secure.then(|| Tls::new(self.tls.clone()));
        let connection = Connection::new(self.endpoint.host.clone(), self.endpoint.port, version, tls);
        match &self.endpoint.socket {
            Some(socket) => connection.at(socket.clone()),
            None => connection,
        }
    }

    /// The headers that every request carries: the user's and, unless that is among them, who we are.
    pub(super) fn request_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        headers
    }
}

/// Headers that carry the protocol itself.
const RESERVED: [HeaderName; 7] =
    [CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING];

/// Sets the header `name`; `setting` is where it came from. The value is a secret: no error repeats it.
pub(super) fn set_header(headers: &mut HeaderMap, setting: &str, name: &str, value: &str) -> Result<(), Error> {
    let refuse =
        |why: &str| Error::setting(setting, shown(name), why, "write a header as name and printable ASCII value");
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("it is not the name of a header"))?;
    if RESERVED.contains(&parsed) || parsed.as_str().starts_with("grpc-") {
        return Err(refuse("the exporter sets this header itself"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| refuse("its value holds a character that a header cannot have, such as a newline"))?;
    value.set_sensitive(true);
    headers.insert(parsed, value);
    Ok(())
}

/// As much of a header's name as errors may show: what stands behind a character that none has may be a value (`Authorization: Bearer …`).
fn shown(name: &str) -> String {
    // Source: RFC 9110, 5.6.2, "Tokens".
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let shown: String = name.chars().take_while(|c| is_of_name(*c)).collect();
    if shown.len() == name.len() { shown } else { shown + "…" }
}

/// Bounds of a timeout: one that is zero fails always, one that is endless is none.
pub(super) fn checked_timeout(setting: &str, timeout: Duration) -> Result<Duration, Error> {
    let allowed = Duration::from_millis(1)..=Duration::from_secs(600);
    if allowed.contains(&timeout) {
        return Ok(timeout);
    }
    let value = format!("{timeout:?}");
    Err(Error::setting(setting, value, "an attempt may take 1 ms to 10 min", "set a timeout such as 10 s"))
}
