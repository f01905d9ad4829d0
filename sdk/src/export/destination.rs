//! Where profiles are sent, as a user says it: endpoint, headers, timeout, compression, trust.
//!
//! In: settings from code ([`Otlp`]) or the environment ([`super::env`]). Out: [`Destination`]s, checked, for
//! [`Exporter::start`](super::Exporter::start). Nothing is connected to here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use profiler_proto::ProfileSet;

use super::endpoint::{Endpoint, PathRule};
use super::protocol::{Compression, Protocol};
use super::settings::{DEFAULT_TIMEOUT, Settings, checked_timeout, set_header};
use super::tls::{AUTHORITIES, IDENTITY, TlsSettings};
use crate::error::Error;

/// An OTLP endpoint, as code sets it. What cannot be is refused when the profiler is started.
///
/// ```
/// use std::time::Duration;
/// use profiler::export::Otlp;
///
/// let grpc = Otlp::grpc("http://collector:4317");
/// let http = Otlp::http("https://otlp.example.com").header("x-tenant", "shop").timeout(Duration::from_secs(5));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Otlp {
    protocol: Protocol,
    endpoint: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
    compression: Compression,
    /// PEM of the authorities to trust.
    authorities: Option<Vec<u8>>,
    /// PEM of our certificate, and of its key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Otlp {
    /// OTLP over gRPC; `endpoint` is `http://host:port` or, with TLS, `https://host:port`. The customary port is 4317.
    pub fn grpc(endpoint: impl Into<String>) -> Self {
        Self::new(Protocol::Grpc, endpoint.into())
    }

    /// OTLP over HTTP with protobuf bodies; `endpoint` is a URL, to which `/v1development/profiles` is added if it has
    /// no path. The customary port is 4318.
    pub fn http(endpoint: impl Into<String>) -> Self {
        Self::new(Protocol::Http, endpoint.into())
    }

    fn new(protocol: Protocol, endpoint: String) -> Self {
        Self {
            protocol,
            endpoint,
            headers: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            compression: Compression::default(),
            authorities: None,
            identity: None,
        }
    }

    /// Sends this header (gRPC: metadata) with every request, as for a token or a tenant. The same name again replaces
    /// the value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How long one attempt may take, from connecting to the end of the answer. Default: 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How bodies are compressed. Default: gzip.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Trusts these certificate authorities (PEM, one or more) instead of the machine's.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate (PEM, with the chain that leads to it) and proves it by its key (PEM), for peers that ask
    /// who we are.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    fn tls(&self) -> Result<TlsSettings, Error> {
        let mut tls = TlsSettings::default();
        if let Some(pem) = &self.authorities {
            let refuse = |why| Error::setting("Otlp::ca_certificate", "PEM", why, AUTHORITIES);
            tls = tls.trusting(pem).map_err(refuse)?;
        }
        if let Some((certificate, key)) = &self.identity {
            let refuse = |why| Error::setting("Otlp::client_certificate", "PEM", why, IDENTITY);
            tls = tls.showing(certificate, key).map_err(refuse)?;
        }
        Ok(tls)
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Otlp").field("protocol", &self.protocol).field("headers", &names).finish_non_exhaustive()
    }
}

/// Somewhere that profiles go.
#[derive(Debug)]
pub struct Destination {
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Local { name: String, deliver: Deliver },
    Otlp(Box<Settings>),
}

/// Takes a set in, at once; called on whatever thread offers it.
pub type Deliver = Arc<dyn Fn(&Arc<ProfileSet>) + Send + Sync>;

impl Destination {
    /// The destination that `otlp` describes.
    ///
    /// # Errors
    /// If endpoint, a header, the timeout or the certificate cannot be; the error names it.
    pub fn otlp(otlp: Otlp) -> Result<Self, Error> {
        let constructor = match otlp.protocol {
            Protocol::Grpc => "Otlp::grpc",
            Protocol::Http => "Otlp::http",
        };
        let endpoint = Endpoint::parse(constructor, &otlp.endpoint, otlp.protocol, PathRule::AddIfBare)?;
        let tls = otlp.tls()?;
        let mut headers = HeaderMap::new();
        for (name, value) in otlp.headers {
            set_header(&mut headers, "Otlp::header", &name, &value)?;
        }
        let timeout = checked_timeout("Otlp::timeout", otlp.timeout)?;
        let compression = otlp.compression;
        let settings = Settings { protocol: otlp.protocol, endpoint, headers, timeout, compression, tls };
        Ok(Self { kind: Kind::Otlp(Box::new(settings)) })
    }

    /// A destination in this process, such as the store that the page is drawn from. `deliver` is called for every set
    /// on the thread that offers it, must be quick, and always accepts.
    pub fn local(name: impl Into<String>, deliver: Deliver) -> Self {
        Self { kind: Kind::Local { name: name.into(), deliver } }
    }

    /// The name in `stats()`: `otlp-grpc http://collector:4317`, `store`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::Local { name, .. } => name.clone(),
            Kind::Otlp(settings) => settings.name(),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { name, .. } => f.debug_struct("Local").field("name", name).finish_non_exhaustive(),
            Self::Otlp(settings) => settings.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::USER_AGENT;

    use super::*;

    /// Check that each setting that cannot be is refused by its name, and that no value of a header is repeated.
    #[test]
    fn bad_settings_are_refused_by_name() {
        let good = || Otlp::grpc("http://c:4317");
        let cases = [
            (Otlp::grpc("c:4317"), "Otlp::grpc=\"c:4317\""),
            (Otlp::http("gopher://c"), "Otlp::http=\"gopher://c\""),
            (good().header("bad name", "hunter2"), "Otlp::header=\"bad name\""),
            (good().header("token", "hunter2\nx: y"), "Otlp::header=\"token\""),
            (good().header("Content-Type", "hunter2"), "sets this header itself"),
            (good().header("grpc-timeout", "1S"), "sets this header itself"),
            (good().timeout(Duration::ZERO), "Otlp::timeout=\"0ns\""),
            (good().ca_certificate("hunter2"), "Otlp::ca_certificate"),
            (good().client_certificate("hunter2", "hunter2"), "Otlp::client_certificate"),
        ];
        for (otlp, expected) in cases {
            let error = Destination::otlp(otlp).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    /// Check that secrets are not in what `Debug` prints, of builder and destination.
    #[test]
    fn debug_hides_header_values() {
        let otlp = Otlp::http("http://c:4318").header("authorization", "Bearer hunter2");
        let shown = format!("{otlp:?} {:?}", Destination::otlp(otlp.clone()).unwrap());
        assert!(shown.contains("authorization") && !shown.contains("hunter2"), "{shown}");
    }

    /// Check the names that `stats()` shows, which leave a query out.
    #[test]
    fn a_destination_is_named_after_its_endpoint() {
        let name = |otlp| Destination::otlp(otlp).unwrap().name();
        assert_eq!(name(Otlp::grpc("http://c:4317")), "otlp-grpc http://c:4317");
        assert_eq!(name(Otlp::http("https://c?key=hunter2")), "otlp-http https://c/v1development/profiles");
    }

    /// Check that a user's own `User-Agent` stands, and that ours names product and exporter.
    #[test]
    fn requests_say_who_sends_them() {
        let agent = |otlp| match Destination::otlp(otlp).unwrap().kind {
            Kind::Otlp(settings) => settings.request_headers()[USER_AGENT].to_str().unwrap().to_owned(),
            Kind::Local { .. } => unreachable!("it was made from an endpoint"),
        };
        let version = env!("CARGO_PKG_VERSION");
        let ours = format!("profiler-sdk/{version} OTel-OTLP-Exporter-Rust/{version}");
        assert_eq!(agent(Otlp::http("http://c")), ours);
        assert_eq!(agent(Otlp::http("http://c").header("user-agent", "mine")), "mine");
    }
}
