//! The grammar of endpoints: what a user may write, and what it means for each protocol.
//!
//! In: text from code or the environment, with the name of the setting that it came from. Out: an [`Endpoint`], or an
//! error that names the setting and says what to write. Secrets in a URL are never repeated.

use std::fmt;
use std::path::PathBuf;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Uri};

use super::protocol::Protocol;
use super::tls::REFUSAL;
use crate::error::Error;

/// Path of OTLP/HTTP for profiles (opentelemetry-proto, profiles_service_http.yaml).
const HTTP_PATH: &str = "/v1development/profiles";
/// Path of the gRPC method (opentelemetry-proto, profiles_service.proto).
const GRPC_PATH: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The same of metrics (metrics_service_http.yaml, metrics_service.proto).
const HTTP_METRICS: &str = "/v1/metrics";
const GRPC_METRICS: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Where a peer listens, and what to ask it for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Whether to speak TLS.
    pub(super) secure: bool,
    /// Name or address, an IPv6 address without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// A socket of Unix that is connected to instead.
    pub(super) socket: Option<PathBuf>,
    /// Host and port as they were written: the `Host` header.
    pub(super) authority: HeaderValue,
    /// What goes into the request line: path and query in HTTP/1.1, the whole URI in HTTP/2.
    pub(super) uri: Uri,
    /// The endpoint for people: without query, which may hold a secret.
    pub(super) shown: String,
}

/// How a URL's path is to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathRule {
    /// Given in code: the profiles' path is added if there is none.
    AddIfBare,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`: the profiles' path is appended, whatever there is.
    Append,
    /// `OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT`: as it is.
    AsIs,
    /// The address of a server that has other methods too: this path is appended, whatever there is.
    Below(&'static str),
    /// There is none: this method of gRPC, other than OTLP's, is called.
    Method(&'static str),
}

/// Without the query, which may hold a secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.shown).finish()
    }
}

impl Endpoint {
    /// Reads `text`, the value of the setting `name`.
    ///
    /// # Errors
    /// [`Error::setting`], if it is not a URL that `protocol` can use.
    pub(super) fn parse(name: &str, text: &str, protocol: Protocol, rule: PathRule) -> Result<Self, Error> {
        let refuse = |why: &str, remedy| Error::setting(name, redacted(text), why, remedy);
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(|| refuse("it has no scheme", SCHEME))?;
        if scheme.eq_ignore_ascii_case("unix") {
            return Self::socket(rest, protocol, rule).map_err(|why| refuse(&why, SOCKET));
        }
        let (secure, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(refuse("its scheme is not known", SCHEME)),
        };
        if let Some((why, remedy)) = REFUSAL.filter(|_| secure) {
            return Err(refuse(why, remedy));
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // Also in a query directly behind it: this may be the rest of a password, and what stands in front no host.
        let before_path = if target.starts_with('/') { authority } else { rest };
        if before_path.contains('@') {
            return Err(refuse(
                "it holds a user name or password",
                "set credentials as a header, or by `basic_auth`, instead",
            ));
        }
        let (host, port) = host_and_port(authority, default_port).map_err(|why| refuse(why, HOST))?;
        let target = request_target(target, protocol, rule).map_err(|why| refuse(&why, PATH))?;
        let shown = format!("{}://{authority}{}", scheme.to_ascii_lowercase(), shown_path(&target, protocol));
        let authority = Authority::try_from(authority).map_err(|error| refuse(&error.to_string(), HOST))?;
        let header = HeaderValue::from_str(authority.as_str()).map_err(|error| refuse(&error.to_string(), HOST))?;
        let uri = match protocol {
            Protocol::Http => Uri::from(target),
            Protocol::Grpc => Uri::builder()
                .scheme(if secure { "https" } else { "http" })
                .authority(authority)
                .path_and_query(target)
                .build()
                .map_err(|error| refuse(&error.to_string(), HOST))?,
        };
        Ok(Self { secure, host, port, socket: None, authority: header, uri, shown })
    }

    /// The same peer, asked to take metrics; none where it is asked at a path of its own, beside which nothing is known.
    pub(super) fn of_metrics(&self, protocol: Protocol) -> Option<Self> {
        let target = match protocol {
            Protocol::Grpc => GRPC_METRICS.to_owned(),
            Protocol::Http => {
                let base = self.uri.path().strip_suffix(HTTP_PATH)?;
                let query = self.uri.query().map_or_else(String::new, |query| format!("?{query}"));
                format!("{base}{HTTP_METRICS}{query}")
            }
        };
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(target).ok();
        let shown = match self.shown.strip_suffix(HTTP_PATH) {
            Some(base) => format!("{base}{HTTP_METRICS}"),
            None => self.shown.clone(),
        };
        Some(Self { uri: Uri::from_parts(parts).ok()?, shown, ..self.clone() })
    }

    /// A peer behind the socket at `path`, which is asked for what a bare address would be.
    fn socket(path: &str, protocol: Protocol, rule: PathRule) -> Result<Self, String> {
        if !path.starts_with('/') || path.len() == 1 {
            return Err("it names no socket".into());
        }
        // The whole of it is a path of the file system: what to ask for cannot be said.
        let rule = if let PathRule::Below(_) | PathRule::Method(_) = rule { rule } else { PathRule::AddIfBare };
        let target = request_target("", protocol, rule)?;
        let authority = Authority::from_static("localhost");
        let uri = match protocol {
            Protocol::Http => Uri::from(target),
            Protocol::Grpc => {
                let builder = Uri::builder().scheme("http").authority(authority).path_and_query(target);
                builder.build().map_err(|error| error.to_string())?
            }
        };
        Ok(Self {
            secure: false,
            host: "localhost".to_owned(),
            port: 80,
            socket: Some(PathBuf::from(path)),
            authority: HeaderValue::from_static("localhost"),
            uri,
            shown: format!("unix://{path}"),
        })
    }
}

const SCHEME: &str = "write it as http://host:port or https://host:port";
const SOCKET: &str = "write it as unix:///path/of/the/socket";
const HOST: &str = "write it as http://host:port, with a port of 1 to 65535";
const PATH: &str = "for gRPC write scheme, host and port only; for HTTP a path such as /v1development/profiles";

/// Splits `authority` into a host, without brackets, and a port.
fn host_and_port(authority: &str, default_port: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match authority.rfind(':') {
        // A colon inside brackets is part of an IPv6 address.
        Some(colon) if !authority[colon..].contains(']') => (&authority[..colon], Some(&authority[colon + 1..])),
        _ => (authority, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err("it names no host");
    }
    let port = match port {
        None => default_port,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or("its port is not a number of 1 to 65535")?,
    };
    Ok((host.to_owned(), port))
}

/// What to ask a peer for whose endpoint ends in `target`.
fn request_target(target: &str, protocol: Protocol, rule: PathRule) -> Result<PathAndQuery, String> {
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let target = match (protocol, rule) {
        (Protocol::Grpc, _) if !matches!(path, "" | "/") || !query.is_empty() => {
            return Err("a gRPC endpoint has no path".into());
        }
        (Protocol::Grpc, PathRule::Method(path)) => path.to_owned(),
        (Protocol::Grpc, _) => GRPC_PATH.to_owned(),
        (Protocol::Http, PathRule::AddIfBare) if matches!(path, "" | "/") => format!("{HTTP_PATH}{query}"),
        (Protocol::Http, PathRule::Append) => format!("{}{HTTP_PATH}{query}", path.trim_end_matches('/')),
        (Protocol::Http, PathRule::Below(method)) => format!("{}{method}{query}", path.trim_end_matches('/')),
        (Protocol::Http, _) if path.is_empty() => format!("/{query}"),
        (Protocol::Http, _) => target.to_owned(),
    };
    PathAndQuery::try_from(target).map_err(|error| error.to_string())
}

/// The path for people; gRPC's is always the same and says nothing.
fn shown_path(target: &PathAndQuery, protocol: Protocol) -> &str {
    match protocol {
        Protocol::Grpc => "",
        Protocol::Http => target.path(),
    }
}

/// `text` without what may be secret: user name and password, query.
pub(super) fn redacted(text: &str) -> String {
    let scheme = text.find("://").filter(|scheme| !text[..*scheme].contains(['?', '@']));
    let (scheme, rest) = text.split_at(scheme.map_or(0, |scheme| scheme + "://".len()));
    let query = rest.find('?').unwrap_or(rest.len());
    match rest.rfind('@') {
        None => format!("{scheme}{}", &rest[..query]),
        Some(at) if at < query => format!("{scheme}…{}", &rest[at..query]),
        // A password with a question mark, or a query with an `@`: one is a secret in front of it, the other one behind.
        Some(_) => format!("{scheme}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, protocol: Protocol, rule: PathRule) -> Result<Endpoint, String> {
        Endpoint::parse("ENDPOINT", text, protocol, rule).map_err(|error| error.to_string())
    }

    /// Check what is asked for under each rule for paths.
    #[test]
    fn the_path_follows_the_rule() {
        let cases = [
            ("http://c:4318", PathRule::AddIfBare, "/v1development/profiles"),
            ("http://c:4318/", PathRule::AddIfBare, "/v1development/profiles"),
            ("http://c:4318/otlp/p", PathRule::AddIfBare, "/otlp/p"),
            ("http://c:4318", PathRule::Append, "/v1development/profiles"),
            ("http://c:4318/otlp", PathRule::Append, "/otlp/v1development/profiles"),
            ("http://c:4318/otlp/?k=v", PathRule::Append, "/otlp/v1development/profiles?k=v"),
            ("http://c:4318", PathRule::AsIs, "/"),
            ("http://c:4318?k=v", PathRule::AsIs, "/?k=v"),
            ("http://c:4318/exact/", PathRule::AsIs, "/exact/"),
            ("http://c:4040/base/", PathRule::Below("/v1.S/M"), "/base/v1.S/M"),
            ("http://c:4040?k=v", PathRule::Below("/v1.S/M"), "/v1.S/M?k=v"),
        ];
        for (text, rule, expected) in cases {
            assert_eq!(parse(text, Protocol::Http, rule).unwrap().uri, expected, "{text} {rule:?}");
        }
        let grpc = parse("HTTPS://c:4317/", Protocol::Grpc, PathRule::AsIs).unwrap();
        assert_eq!(grpc.uri.to_string(), format!("https://c:4317{GRPC_PATH}"));
        assert_eq!((grpc.secure, grpc.shown.as_str()), (true, "https://c:4317"));
    }

    /// Check hosts, addresses and ports, and those that a URL implies.
    #[test]
    fn host_and_port_are_found() {
        let cases = [
            ("http://collector", "collector", 80),
            ("https://collector", "collector", 443),
            ("http://10.0.0.1:4318", "10.0.0.1", 4318),
            ("http://[::1]:4318", "::1", 4318),
            ("https://[fe80::1]", "fe80::1", 443),
        ];
        for (text, host, port) in cases {
            let endpoint = parse(text, Protocol::Http, PathRule::AsIs).unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port), "{text}");
        }
    }

    /// Check that a socket of Unix is asked for what a bare address would be, whatever the rule.
    #[test]
    fn a_socket_is_an_endpoint() {
        for (protocol, rule, expected) in [
            (Protocol::Http, PathRule::AddIfBare, HTTP_PATH.to_owned()),
            (Protocol::Http, PathRule::Append, HTTP_PATH.to_owned()),
            (Protocol::Http, PathRule::AsIs, HTTP_PATH.to_owned()),
            (Protocol::Http, PathRule::Below("/v1.S/M"), "/v1.S/M".to_owned()),
            (Protocol::Grpc, PathRule::AsIs, format!("http://localhost{GRPC_PATH}")),
            (Protocol::Grpc, PathRule::Method("/v1.S/M"), "http://localhost/v1.S/M".to_owned()),
        ] {
            let endpoint = parse("unix:///run/otel.sock", protocol, rule).unwrap();
            assert_eq!((endpoint.uri.to_string(), endpoint.authority.as_bytes()), (expected, &b"localhost"[..]));
            assert_eq!(endpoint.socket.as_deref(), Some(std::path::Path::new("/run/otel.sock")));
            assert_eq!((endpoint.secure, endpoint.shown.as_str()), (false, "unix:///run/otel.sock"));
        }
        for text in ["unix://", "unix:///", "unix://run/otel.sock"] {
            let error = parse(text, Protocol::Http, PathRule::AsIs).unwrap_err();
            assert!(error.contains("names no socket") && error.contains(SOCKET), "{error}");
        }
    }

    /// Check that metrics go to the same peer at the path for them, and nowhere where an address was written for profiles alone.
    #[test]
    fn metrics_go_beside_profiles() {
        for (text, protocol, rule, expected) in [
            (
                "http://c:4318/otlp?k=v",
                Protocol::Http,
                PathRule::Append,
                Some(("/otlp/v1/metrics?k=v", "http://c:4318/otlp/v1/metrics")),
            ),
            ("unix:///run/otel.sock", Protocol::Http, PathRule::Append, Some(("/v1/metrics", "unix:///run/otel.sock"))),
            ("http://c:4318/exact", Protocol::Http, PathRule::AsIs, None),
        ] {
            let found = parse(text, protocol, rule).unwrap().of_metrics(protocol);
            let found = found.map(|endpoint| (endpoint.uri.to_string(), endpoint.shown));
            assert_eq!(found, expected.map(|(uri, shown)| (uri.to_owned(), shown.to_owned())), "{text}");
        }
        let grpc =
            parse("https://c:4317", Protocol::Grpc, PathRule::AddIfBare).unwrap().of_metrics(Protocol::Grpc).unwrap();
        assert_eq!((grpc.uri.to_string(), grpc.secure), (format!("https://c:4317{GRPC_METRICS}"), true));
    }

    /// Check that what cannot be an endpoint is refused with its reason, and without repeating a secret.
    #[test]
    fn nonsense_is_refused_by_name() {
        let cases = [
            ("", "no scheme", SCHEME),
            ("collector:4317", "no scheme", SCHEME),
            ("ftp://collector", "scheme is not known", SCHEME),
            ("http://", "no host", HOST),
            ("http://:4317", "no host", HOST),
            ("http://c:99999", "port", HOST),
            ("http://c:0", "port", HOST),
            ("http://c:", "port", HOST),
            ("http://a b:1", "uri character", HOST),
            ("http://c:1/a b", "uri character", PATH),
            ("http://user:hunter2@c:4317", "user name or password", "set credentials as a header"),
        ];
        for (text, reason, remedy) in cases {
            let error = parse(text, Protocol::Http, PathRule::AsIs).unwrap_err();
            assert!(
                error.starts_with("ENDPOINT=") && error.contains(reason) && error.contains(remedy),
                "{text}: {error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = parse("http://c:4317/v1?key=hunter2", Protocol::Grpc, PathRule::AsIs).unwrap_err();
        assert!(error.contains("gRPC endpoint has no path") && !error.contains("hunter2"), "{error}");
    }

    /// Check that a user name or password is refused whatever it holds, and that neither is repeated.
    #[test]
    fn a_password_with_a_question_mark_is_refused_and_not_repeated() {
        for text in [
            "http://user:hunter2?x@c:4317",
            "http://user:123?hunter2@c",
            "http://user:123#hunter2@c",
            "http://tok-hunter2?@c",
            "http://user:123?x/hunter2@c:4317/v1?k=v",
            "http://user:?hunter2@c:4317?key=hunter2",
        ] {
            let error = parse(text, Protocol::Http, PathRule::AsIs).unwrap_err();
            assert!(error.contains("user name or password") && !error.contains("hunter2"), "{text}: {error}");
        }
        for text in ["user:hunter2?x@c:1", "user:hunter2@http://c", "http://user:hunter2/x@c?y@hunter2"] {
            assert!(!redacted(text).contains("hunter2"), "{text}: {}", redacted(text));
        }
    }

    /// Check that what is no secret is shown, and that an `@` in a query shows nothing of it.
    #[test]
    fn host_and_path_are_shown_without_the_query() {
        for (text, expected) in [
            ("http://c:4317/v1?key=hunter2", "http://c:4317/v1"),
            ("http://user:hunter2@c:4317/v1?key=hunter2", "http://…@c:4317/v1"),
            ("http://c:4317/v1?key=a@hunter2", "http://…"),
            ("c:4317/v1", "c:4317/v1"),
        ] {
            assert_eq!(redacted(text), expected);
        }
        let endpoint = parse("http://c:4318/a@b?k=v@w", Protocol::Http, PathRule::AsIs).unwrap();
        assert_eq!((endpoint.uri.to_string(), endpoint.shown), ("/a@b?k=v@w".into(), "http://c:4318/a@b".into()));
    }
}
