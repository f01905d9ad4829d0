//! OTLP's settings in the environment: `OTEL_EXPORTER_OTLP_PROFILES_*`, or those of another signal, over `OTEL_EXPORTER_OTLP_*`.
//!
//! In: a way to look variables up (in tests, a table). Out: each setting, or its default; or an error that names variable,
//! value and remedy. Reads nothing else of the process but the files of certificates that are named.
//!
//! Source: OpenTelemetry specification, "OpenTelemetry Protocol Exporter". The profiles' own variables are by analogy
//! with those of the other signals. An empty value counts as not set.

use std::ffi::OsString;
use std::time::Duration;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::endpoint::{Endpoint, PathRule};
use super::protocol::{Compression, Protocol};
use super::settings::{DEFAULT_TIMEOUT, checked_timeout, set_header};
use super::tls::{AUTHORITIES, IDENTITY, TlsSettings};
use crate::error::Error;
use crate::variables::Variables;

const PROFILES: &str = "OTEL_EXPORTER_OTLP_PROFILES_";
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_";
const ALL_SIGNALS: &str = "OTEL_EXPORTER_OTLP_";

/// The variables of OTLP, by the end of their names.
pub(super) struct Environment<'a> {
    pub(super) variables: Variables<'a>,
    /// Before the names of the signal's own ones.
    own: &'static str,
}

/// The largest file of certificates or keys that is read.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// A variable that is set.
struct Variable {
    name: String,
    value: String,
    /// Whether it is the signal's own.
    own: bool,
}

impl Variable {
    /// What the file that it names holds. A pipe or a device, which might never end, is not read.
    fn contents(&self) -> Result<Vec<u8>, Error> {
        const REMEDY: &str = "set it to the path of a PEM file that this process can read";
        let failed = |error| Error::environment(format!("read {}={:?}", self.name, self.value), error, REMEDY);
        let file = std::fs::metadata(&self.value).map_err(failed)?;
        if !file.is_file() || file.len() > MAX_PEM_BYTES {
            return Err(self.refuse("it is not a file of at most 1 MiB", REMEDY));
        }
        std::fs::read(&self.value).map_err(failed)
    }

    fn refuse(&self, why: &str, remedy: &'static str) -> Error {
        Error::setting(&self.name, &self.value, why, remedy)
    }
}

impl<'a> Environment<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { variables: Variables::new(lookup), own: PROFILES }
    }

    /// What it says of metrics.
    pub(super) fn of_metrics(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { own: METRICS, ..Self::new(lookup) }
    }
}

impl Environment<'_> {
    /// Notes that `setting`, which code made, is in force, where variables that end in `suffix` are set as well.
    pub(super) fn outweigh(&self, setting: &str, suffix: &str) {
        for prefix in [self.own, ALL_SIGNALS] {
            self.variables.outweigh(setting, &format!("{prefix}{suffix}"));
        }
    }

    /// Where to send to if code does not say it, and how.
    pub(super) fn endpoint(&self) -> Result<Option<(Protocol, Endpoint)>, Error> {
        let Some(variable) = self.find("ENDPOINT")? else { return Ok(None) };
        let protocol = self.protocol()?;
        let rule = if variable.own { PathRule::AsIs } else { PathRule::Append };
        let mut text = variable.value;
        if protocol == Protocol::Grpc && !text.contains("://") {
            let scheme = if self.insecure()? { "http" } else { "https" };
            text = format!("{scheme}://{text}");
        }
        let endpoint = Endpoint::parse(&variable.name, &text, protocol, rule)?;
        if let Some(doubt) = doubt(protocol, &endpoint) {
            tracing::warn!("{}={}: {doubt}", variable.name, endpoint.shown);
        }
        Ok(Some((protocol, endpoint)))
    }

    /// The signal's own variable that ends in `suffix`, else the one for all signals.
    fn find(&self, suffix: &str) -> Result<Option<Variable>, Error> {
        for (prefix, own) in [(self.own, true), (ALL_SIGNALS, false)] {
            let name = format!("{prefix}{suffix}");
            if let Some(value) = self.variables.text(&name)? {
                return Ok(Some(Variable { name, value, own }));
            }
        }
        Ok(None)
    }

    fn protocol(&self) -> Result<Protocol, Error> {
        let Some(variable) = self.find("PROTOCOL")? else { return Ok(Protocol::Http) };
        match variable.value.as_str() {
            "http/protobuf" => Ok(Protocol::Http),
            "grpc" => Ok(Protocol::Grpc),
            "http/json" if variable.own && self.own == PROFILES => {
                Err(variable.refuse("nothing is sent as JSON", PROTOCOL))
            }
            "http/json" => {
                // For the other signals: whoever takes it takes protobuf at the same address.
                tracing::warn!("{}=http/json: http/protobuf is sent", variable.name);
                Ok(Protocol::Http)
            }
            _ => Err(variable.refuse("it is not a protocol of OTLP", PROTOCOL)),
        }
    }

    /// Whether a gRPC endpoint without a scheme is spoken to in the clear.
    fn insecure(&self) -> Result<bool, Error> {
        let Some(variable) = self.find("INSECURE")? else { return Ok(false) };
        match variable.value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(variable.refuse("it is neither true nor false", "set it to true or false")),
        }
    }

    /// `key=value` pairs between commas, values percent-encoded as in W3C Baggage. No error repeats a value.
    pub(super) fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        let Some(variable) = self.find("HEADERS")? else { return Ok(headers) };
        for (position, pair) in variable.value.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
            let refuse = |why: &str| {
                Error::setting(
                    &variable.name,
                    format!("pair {}", position + 1),
                    why,
                    "write it as key=value,key2=value2",
                )
            };
            let (name, value) = pair.split_once('=').ok_or_else(|| refuse("it has no ="))?;
            let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| refuse("its value is not UTF-8"))?;
            set_header(&mut headers, &variable.name, name.trim(), &value)?;
        }
        Ok(headers)
    }

    pub(super) fn timeout(&self) -> Result<Duration, Error> {
        let Some(variable) = self.find("TIMEOUT")? else { return Ok(DEFAULT_TIMEOUT) };
        match variable.value.parse() {
            Ok(milliseconds) => checked_timeout(&variable.name, Duration::from_millis(milliseconds)),
            Err(_) => Err(variable.refuse("it is not a number of milliseconds", "set it to a number such as 10000")),
        }
    }

    pub(super) fn compression(&self) -> Result<Compression, Error> {
        let Some(variable) = self.find("COMPRESSION")? else { return Ok(Compression::default()) };
        match variable.value.as_str() {
            "gzip" => Ok(Compression::Gzip),
            "none" => Ok(Compression::None),
            "zstd" if !(variable.own && self.own == PROFILES) => {
                // For the other signals, whose exporters may know it.
                tracing::warn!("{}=zstd: gzip is sent", variable.name);
                Ok(Compression::Gzip)
            }
            _ => Err(variable.refuse("it is not a compression of OTLP", "set it to gzip or none")),
        }
    }

    /// Whom to trust.
    pub(super) fn authorities(&self) -> Result<TlsSettings, Error> {
        let tls = TlsSettings::default();
        let Some(authorities) = self.find("CERTIFICATE")? else { return Ok(tls) };
        tls.trusting(&authorities.contents()?).map_err(|why| authorities.refuse(&why, AUTHORITIES))
    }

    /// The same, with who we are.
    pub(super) fn identity(&self, tls: TlsSettings) -> Result<TlsSettings, Error> {
        match (self.find("CLIENT_CERTIFICATE")?, self.find("CLIENT_KEY")?) {
            (None, None) => Ok(tls),
            (Some(own), Some(key)) => {
                let (pem, key) = (own.contents()?, key.contents()?);
                tls.showing(&pem, &key).map_err(|why| own.refuse(&why, IDENTITY))
            }
            (Some(own), None) => Err(own.refuse("its key is not set", "set OTEL_EXPORTER_OTLP_CLIENT_KEY beside it")),
            (None, Some(key)) => {
                Err(key.refuse("its certificate is not set", "set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it"))
            }
        }
    }
}

const PROTOCOL: &str = "set it to http/protobuf or grpc";

/// What looks like a mistake in an endpoint, and may be none.
fn doubt(protocol: Protocol, endpoint: &Endpoint) -> Option<&'static str> {
    match (protocol, endpoint.port) {
        _ if endpoint.socket.is_some() => None,
        (Protocol::Http, 4317) => Some("port 4317 is gRPC's by custom; is OTEL_EXPORTER_OTLP_PROTOCOL=grpc missing?"),
        (Protocol::Grpc, 4318) => {
            Some("port 4318 is HTTP's by custom; is OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf missing?")
        }
        (Protocol::Http, _) if endpoint.uri.path() == "/" => {
            Some("it has no path, and is taken as it is; collectors take profiles at /v1development/profiles")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::destination::{Kind, resolve};
    use super::super::settings::Settings;
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let mut targets = resolve(Vec::new(), &lookup).map_err(|error| error.to_string())?;
        match targets.pop().unwrap().kind {
            Kind::Otlp(settings) => Ok(*settings),
            kind => unreachable!("the environment describes an OTLP endpoint, not {kind:?}"),
        }
    }

    fn found(variables: &[(&str, &str)]) -> Settings {
        settings(variables).unwrap()
    }

    /// Check that ports that are customary for the other protocol are doubted, and a path that is none.
    #[test]
    fn what_looks_like_a_mistake_is_doubted() {
        let doubts =
            |text, protocol, rule| doubt(protocol, &Endpoint::parse("ENDPOINT", text, protocol, rule).unwrap());
        for (text, protocol, rule, expected) in [
            ("http://c:4317", Protocol::Http, PathRule::Append, Some("grpc")),
            ("http://c:4318", Protocol::Grpc, PathRule::Append, Some("http/protobuf")),
            ("http://c:4318/", Protocol::Http, PathRule::AsIs, Some("/v1development/profiles")),
            ("http://c:4318", Protocol::Http, PathRule::Append, None),
            ("http://c:4318/exact", Protocol::Http, PathRule::AsIs, None),
            ("http://c:4317", Protocol::Grpc, PathRule::AsIs, None),
            ("unix:///run/otel.sock", Protocol::Http, PathRule::AsIs, None),
        ] {
            let found = doubts(text, protocol, rule);
            assert_eq!(found.is_some(), expected.is_some(), "{text}: {found:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{found:?}");
        }
    }

    /// Check the defaults beside an endpoint.
    #[test]
    fn an_endpoint_alone_means_protobuf_over_http() {
        let settings = found(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")]);
        assert_eq!((settings.protocol, settings.compression), (Protocol::Http, Compression::Gzip));
        assert_eq!((settings.timeout, settings.headers.len()), (Duration::from_secs(10), 0));
        assert_eq!(settings.endpoint.uri, "/v1development/profiles");
    }

    /// Check that the profiles' own variables win one by one, and that their URL is used as it is.
    #[test]
    fn the_profiles_own_variables_win() {
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/base"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,b=2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "7000"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ];
        let own = [
            ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://own:4318/exact"),
            ("OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "c=3"),
            ("OTEL_EXPORTER_OTLP_PROFILES_TIMEOUT", "3000"),
            ("OTEL_EXPORTER_OTLP_PROFILES_COMPRESSION", "gzip"),
        ];
        let both = found(&[all, own].concat());
        assert_eq!((both.endpoint.host.as_str(), both.endpoint.uri.path()), ("own", "/exact"));
        assert_eq!((both.protocol, both.compression), (Protocol::Http, Compression::Gzip));
        assert_eq!((both.timeout, both.headers.len()), (Duration::from_secs(3), 1));
        assert_eq!(both.headers["c"], "3");

        let mixed = found(&[all[0], own[1], all[2], own[3], all[4]]);
        assert_eq!(mixed.endpoint.uri.path(), "/base/v1development/profiles");
        assert_eq!((mixed.timeout, mixed.headers.len()), (Duration::from_secs(3), 2));
        assert_eq!(mixed.compression, Compression::None);
    }

    /// Check that what is meant for the other signals, and profiles are not sent as, does not keep a service from its start.
    #[test]
    fn what_other_signals_are_sent_as_is_no_error() {
        let all = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")];
        assert_eq!(found(&all).protocol, Protocol::Http);
        let all = [all[0], ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")];
        assert_eq!(found(&all).compression, Compression::Gzip);
    }

    /// Check that a gRPC endpoint needs no scheme, and that `INSECURE` then decides between TLS and clear text.
    #[test]
    fn grpc_without_a_scheme_is_secure_unless_told_otherwise() {
        let grpc = [("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        let secure = |extra: &[(&str, &str)]| found(&[&grpc, extra].concat()).endpoint.secure;
        assert!(secure(&[]));
        assert!(secure(&[("OTEL_EXPORTER_OTLP_INSECURE", "false")]));
        assert!(!secure(&[("OTEL_EXPORTER_OTLP_INSECURE", "True")]));
        assert!(secure(&[("OTEL_EXPORTER_OTLP_INSECURE", "true"), ("OTEL_EXPORTER_OTLP_PROFILES_INSECURE", "false")]));
        let with_scheme = found(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), grpc[1]]);
        assert!(!with_scheme.endpoint.secure);
    }

    /// Check that header values are percent-decoded and white space around them is not part of them.
    #[test]
    fn headers_are_decoded() {
        let headers = " authorization = Basic%20dTpw%3D , x-tenant=a=b,";
        let settings = found(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_HEADERS", headers)]);
        assert_eq!(settings.headers["authorization"], "Basic dTpw=");
        assert_eq!(settings.headers["x-tenant"], "a=b");
    }

    /// Check that each value that cannot be is refused with variable, reason and remedy, and no secret.
    #[test]
    fn bad_values_are_refused_by_name() {
        let clear =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist.pem")];
        assert!(settings(&clear).is_ok(), "what is for TLS keeps no endpoint in the clear from being used");
        let cases = [
            ("ENDPOINT", "collector:4318", "no scheme"),
            ("PROTOCOL", "http/json", "nothing is sent as JSON; set it to http/protobuf or grpc"),
            ("PROTOCOL", "thrift", "not a protocol"),
            ("TIMEOUT", "10s", "not a number of milliseconds"),
            ("TIMEOUT", "0", "1 ms to 10 min"),
            ("COMPRESSION", "zstd", "set it to gzip or none"),
            ("COMPRESSION", "zip", "set it to gzip or none"),
            ("HEADERS", "hunter2", "pair 1"),
            ("HEADERS", "Authorization: Basic hunter2=", "\"Authorization…\""),
            ("HEADERS", "a=1,key=hunter2%0Aevil: 1", "newline"),
            ("HEADERS", "a=%ffhunter2", "UTF-8"),
            ("CERTIFICATE", "/does/not/exist.pem", "No such file"),
            ("CERTIFICATE", "Cargo.toml", "no certificate"),
            ("CERTIFICATE", "/dev/zero", "not a file"),
            ("CLIENT_CERTIFICATE", "Cargo.toml", "set OTEL_EXPORTER_OTLP_CLIENT_KEY"),
            ("CLIENT_KEY", "Cargo.toml", "set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
        ];
        for (suffix, value, expected) in cases {
            let name = format!("OTEL_EXPORTER_OTLP_PROFILES_{suffix}");
            let error = settings(&[(&name, value), ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c")]).unwrap_err();
            assert!(error.contains(&name) && error.contains(expected), "{suffix}={value}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
