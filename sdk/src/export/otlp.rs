//! An OTLP endpoint as code sets it, and how the environment completes it.
//!
//! In: what the builder [`Otlp`] was told; the environment, for what it was not told. Out: [`Settings`], checked, or an error
//! that names the method or the variable. Nothing is connected to here.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

use super::access::Access;
use super::endpoint::{Endpoint, PathRule};
use super::env::Environment;
use super::protocol::{Compression, Protocol};
use super::settings::Settings;
use super::tls::TlsSettings;
use crate::error::Error;

/// What errors call the builder.
const BUILDER: &str = "Otlp";

/// An OTLP endpoint, as code sets it. What cannot be is refused when the profiler is started.
///
/// What is not set here comes from `OTEL_EXPORTER_OTLP_PROFILES_*`, else from `OTEL_EXPORTER_OTLP_*`, one by one, as in
/// OpenTelemetry's SDKs: headers (each by its name), timeout, compression and certificates. Headers of the environment, which may be
/// secrets, go to every such endpoint: set one here to send another value.
///
/// ```
/// use std::time::Duration;
/// use profiler::export::Otlp;
///
/// let grpc = Otlp::grpc("http://collector:4317");
/// let http = Otlp::http("https://otlp.example.com").basic_auth("1234", "token").timeout(Duration::from_secs(5));
/// ```
#[derive(Clone)]
#[must_use]
pub struct Otlp {
    protocol: Protocol,
    endpoint: String,
    unsaid: Unsaid,
}

/// What an endpoint may leave to the environment.
#[derive(Clone, Default)]
pub(super) struct Unsaid {
    access: Access,
    compression: Option<Compression>,
}

impl Otlp {
    /// OTLP over gRPC; `endpoint` is `http://host:port` or, with TLS, `https://host:port`. The customary port is 4317.
    pub fn grpc(endpoint: impl Into<String>) -> Self {
        Self { protocol: Protocol::Grpc, endpoint: endpoint.into(), unsaid: Unsaid::default() }
    }

    /// OTLP over HTTP with protobuf bodies; `endpoint` is a URL, to which `/v1development/profiles` is added if it has
    /// no path. The customary port is 4318.
    pub fn http(endpoint: impl Into<String>) -> Self {
        Self { protocol: Protocol::Http, endpoint: endpoint.into(), unsaid: Unsaid::default() }
    }

    /// Sends this header (gRPC: metadata) with every request. The same name again, whichever method sets it, replaces the
    /// value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.unsaid.access.headers.set(name.into(), value.into());
        self
    }

    /// Sends user and password with every request (`Authorization: Basic`, RFC 7617); for Grafana Cloud, the number of the
    /// instance and a token.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.unsaid.access.headers.set_basic_auth(user.into(), password.into());
        self
    }

    /// Sends this token with every request (`Authorization: Bearer`, RFC 6750).
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.unsaid.access.headers.set_bearer_token(token.into());
        self
    }

    /// Names the tenant that profiles belong to (`X-Scope-OrgID`), for a Pyroscope with several.
    pub fn tenant(mut self, id: impl Into<String>) -> Self {
        self.unsaid.access.headers.set_tenant(id.into());
        self
    }

    /// How long one attempt may take, from connecting to the end of the answer: 1 ms to 10 min. 10 s if not set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.unsaid.access.timeout = Some(timeout);
        self
    }

    /// How bodies are compressed; gzip if not set.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.unsaid.compression = Some(compression);
        self
    }

    /// Trusts these certificate authorities (PEM, one or more) instead of the machine's.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.unsaid.access.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate (PEM, with the chain that leads to it) and proves it by its key (PEM), for peers that ask
    /// who we are.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.unsaid.access.identity = Some((certificate.into(), key.into()));
        self
    }

    /// This endpoint, completed from the environment.
    pub(super) fn settings(self, environment: &Environment<'_>) -> Result<Settings, Error> {
        let constructor = match self.protocol {
            Protocol::Grpc => "Otlp::grpc",
            Protocol::Http => "Otlp::http",
        };
        environment.outweigh(constructor, "PROTOCOL");
        let endpoint = Endpoint::parse(constructor, &self.endpoint, self.protocol, PathRule::AddIfBare)?;
        self.unsaid.settings(self.protocol, endpoint, environment)
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, headers) = (&self.protocol, &self.unsaid.access.headers);
        f.debug_struct("Otlp").field("protocol", protocol).field("headers", headers).finish_non_exhaustive()
    }
}

impl Unsaid {
    /// What is said here over what the environment says, for this endpoint. Certificates of the environment are for endpoints with TLS alone, as OpenTelemetry
    /// says: those of other signals may need them.
    pub(super) fn settings(
        &self,
        protocol: Protocol,
        endpoint: Endpoint,
        environment: &Environment<'_>,
    ) -> Result<Settings, Error> {
        let tls = match endpoint.secure {
            true => self.identity(self.authorities(environment)?, environment)?,
            false => self.access.tls(BUILDER)?,
        };
        Ok(Settings {
            protocol,
            endpoint,
            headers: self.headers(environment)?,
            timeout: match self.access.checked_timeout(BUILDER)? {
                Some(timeout) => {
                    environment.outweigh("Otlp::timeout", "TIMEOUT");
                    timeout
                }
                None => environment.timeout()?,
            },
            compression: match self.compression {
                Some(compression) => {
                    environment.outweigh("Otlp::compression", "COMPRESSION");
                    compression
                }
                None => environment.compression()?,
            },
            tls,
        })
    }

    fn headers(&self, environment: &Environment<'_>) -> Result<HeaderMap, Error> {
        let mut headers = environment.headers()?;
        for (name, value) in &self.access.headers.checked(BUILDER)? {
            if headers.insert(name, value.clone()).is_some() {
                environment.outweigh(&format!("Otlp::header({name})"), "HEADERS");
            }
        }
        Ok(headers)
    }

    fn authorities(&self, environment: &Environment<'_>) -> Result<TlsSettings, Error> {
        let Some(tls) = self.access.checked_authorities(BUILDER)? else { return environment.authorities() };
        environment.outweigh("Otlp::ca_certificate", "CERTIFICATE");
        Ok(tls)
    }

    fn identity(&self, tls: TlsSettings, environment: &Environment<'_>) -> Result<TlsSettings, Error> {
        const HERE: &str = "Otlp::client_certificate";
        if self.access.identity.is_none() {
            return environment.identity(tls);
        }
        environment.outweigh(HERE, "CLIENT_CERTIFICATE");
        environment.outweigh(HERE, "CLIENT_KEY");
        self.access.with_identity(BUILDER, tls)
    }
}

#[cfg(test)]
mod tests {
    use http::header::USER_AGENT;

    use super::*;

    /// The settings of an endpoint under these variables, and what code outweighed.
    fn settings(otlp: Otlp, variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let environment = Environment::new(&lookup);
        let settings = otlp.settings(&environment).map_err(|error| error.to_string())?;
        Ok((settings, environment.variables.outweighed()))
    }

    /// Check that each setting that cannot be is refused by its name, and that no secret is repeated.
    #[test]
    fn bad_settings_are_refused_by_name() {
        let good = || Otlp::grpc("http://c:4317");
        let cases = [
            (Otlp::grpc("c:4317"), "Otlp::grpc=\"c:4317\""),
            (Otlp::http("gopher://c"), "Otlp::http=\"gopher://c\""),
            (good().header("bad name", "hunter2"), "Otlp::header=\"bad…\""),
            (good().header("Authorization: Bearer hunter2", ""), "Otlp::header=\"Authorization…\""),
            (good().header("token", "hunter2\nx: y"), "Otlp::header=\"token\""),
            (good().header("Content-Type", "hunter2"), "sets this header itself"),
            (good().header("grpc-timeout", "1S"), "sets this header itself"),
            (good().basic_auth("a:b", "hunter2"), "Otlp::basic_auth=\"authorization\""),
            (good().bearer_token("hunter2\n"), "Otlp::bearer_token=\"authorization\""),
            (good().tenant(""), "Otlp::tenant=\"x-scope-orgid\""),
            (good().timeout(Duration::ZERO), "Otlp::timeout=\"0ns\""),
            (good().ca_certificate("hunter2"), "Otlp::ca_certificate"),
            (good().client_certificate("hunter2", "hunter2"), "Otlp::client_certificate"),
        ];
        for (otlp, expected) in cases {
            let error = settings(otlp, &[]).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    /// Check that secrets are not in what `Debug` prints, of builder and settings, and that names of headers are.
    #[test]
    fn debug_hides_secrets() {
        let otlp = Otlp::http("http://c:4318").header("x-key", "hunter2").tenant("hunter2");
        for otlp in [otlp.clone().basic_auth("hunter2", "hunter2"), otlp.bearer_token("hunter2")] {
            let shown = format!("{otlp:?} {:?}", settings(otlp.clone(), &[]).unwrap());
            let names = ["x-key", "authorization", "x-scope-orgid"];
            assert!(names.iter().all(|name| shown.matches(name).count() == 2), "{shown}");
            assert!(
                !["hunter2", "aHVudGVyMg", "aHVudGVyMjpodW50ZXIy"].iter().any(|secret| shown.contains(secret)),
                "{shown}"
            );
        }
    }

    /// Check that a user's own `User-Agent` stands, and that ours names product and exporter.
    #[test]
    fn requests_say_who_sends_them() {
        let agent = |otlp| settings(otlp, &[]).unwrap().0.request_headers()[USER_AGENT].to_str().unwrap().to_owned();
        let version = env!("CARGO_PKG_VERSION");
        let ours = format!("profiler-sdk/{version} OTel-OTLP-Exporter-Rust/{version}");
        assert_eq!(agent(Otlp::http("http://c")), ours);
        assert_eq!(agent(Otlp::http("http://c").header("user-agent", "mine")), "mine");
    }

    /// Check that an endpoint of code gets what it leaves open from the environment, but for endpoint and protocol.
    #[test]
    fn the_environment_completes_what_code_leaves_open() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20env,x-tenant=env"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "7000"),
            ("OTEL_EXPORTER_OTLP_PROFILES_TIMEOUT", "3000"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ];
        let (found, outweighed) = settings(Otlp::grpc("http://c:4317"), &variables).unwrap();
        assert_eq!((found.protocol, found.endpoint.shown.as_str()), (Protocol::Grpc, "http://c:4317"));
        assert_eq!((found.timeout, found.compression), (Duration::from_secs(3), Compression::None));
        assert_eq!(
            (&found.headers["authorization"], &found.headers["x-tenant"]),
            (&"Bearer env".parse().unwrap(), &"env".parse().unwrap())
        );
        assert_eq!(outweighed, ["Otlp::grpc over OTEL_EXPORTER_OTLP_PROTOCOL"]);
        for (suffix, value) in
            [("CERTIFICATE", "/no/ca.pem"), ("CLIENT_CERTIFICATE", "Cargo.toml"), ("CLIENT_KEY", "Cargo.toml")]
        {
            let name = format!("OTEL_EXPORTER_OTLP_{suffix}");
            let error = settings(Otlp::grpc("https://c"), &[(&name, value)]).unwrap_err();
            assert!(error.contains(&name), "{error}");
        }
    }

    /// Check that code wins one by one, that what it outweighs is not even read, and that it is named.
    #[test]
    fn code_wins_one_by_one() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20env,x-tenant=env"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_PROFILES_COMPRESSION", "crush"),
        ];
        let timeout = Duration::from_secs(1);
        let otlp = Otlp::http("http://c").bearer_token("code").timeout(timeout).compression(Compression::None);
        let (found, outweighed) = settings(otlp, &variables).unwrap();
        assert_eq!((found.timeout, found.compression), (timeout, Compression::None));
        assert_eq!(
            (&found.headers["authorization"], &found.headers["x-tenant"]),
            (&"Bearer code".parse().unwrap(), &"env".parse().unwrap())
        );
        let expected = [
            "Otlp::compression over OTEL_EXPORTER_OTLP_PROFILES_COMPRESSION",
            "Otlp::header(authorization) over OTEL_EXPORTER_OTLP_HEADERS",
            "Otlp::timeout over OTEL_EXPORTER_OTLP_TIMEOUT",
        ];
        assert_eq!(outweighed, expected);
    }
}
