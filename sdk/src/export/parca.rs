//! A Parca as code sets it: address, credentials, labels.
//!
//! In: what the builder [`Parca`] was told; of the environment, the token that Parca's own agent reads. Out: settings, checked, or an
//! error that names the method or the variable; and what Parca's acknowledgement means. Nothing is connected to here.

mod messages;
mod series;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use prost::Message;

use super::access::Access;
use super::answer::{Answer, excerpt};
use super::endpoint::{Endpoint, PathRule};
use super::env::Environment;
use super::protocol::{Compression, Protocol};
use super::settings::{DEFAULT_TIMEOUT, Settings, set_header};
use crate::error::Error;

pub(super) use series::{LONGEST, Labels, request};

/// What errors call the builder.
const BUILDER: &str = "Parca";

/// Path of the gRPC method (Parca, profilestore.proto).
const WRITE_RAW: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";

/// Where Parca's agent and server take their token from (parca-agent, `--remote-store-bearer-token`).
const TOKEN_VARIABLE: &str = "PARCA_BEARER_TOKEN";

const AGENT: &str = concat!("profiler-sdk/", env!("CARGO_PKG_VERSION"));

/// A Parca, or Polar Signals' cloud: `WriteRaw` over gRPC. What cannot be is refused when the profiler is started.
///
/// Profiles appear as `process_cpu` and `memory`, as those of Go programs that Parca fetches itself. Labels are what is known of the
/// process and the tags of samples that are text, with `.` and other signs as `_`. At most 500 sets of tags, or 8 MiB before compression,
/// are in a request: what has the least share in it is then sent as `profiler_tags="overflow"`, and counted
/// ([`DestinationStats::untagged_samples`](crate::DestinationStats::untagged_samples)). Spans, which Parca does not know, are not sent.
///
/// The token may stand in `PARCA_BEARER_TOKEN` instead of code. Other variables are not read.
///
/// ```
/// use profiler::export::Parca;
///
/// let own = Parca::new("http://parca:7070");
/// let cloud = Parca::new("https://grpc.polarsignals.com:443").bearer_token("token").label("cluster", "eu-1");
/// ```
///
/// Source: Parca, proto/parca/profilestore/v1alpha1/profilestore.proto.
#[derive(Clone)]
#[must_use]
pub struct Parca {
    endpoint: String,
    access: Access,
    labels: Vec<(String, String)>,
}

impl Parca {
    /// A Parca at `http://host:port` or, with TLS, `https://host:port`. The customary port is 7070, the cloud's 443.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), access: Access::default(), labels: Vec::new() }
    }

    /// Sends this token with every request (`Authorization: Bearer`, RFC 6750).
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.access.headers.set_bearer_token(token.into());
        self
    }

    /// Sends this metadata with every request. The same name again, whichever method sets it, replaces the value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.access.headers.set(name.into(), value.into());
        self
    }

    /// Puts this label on all profiles that are sent here, whatever tag or attribute of the process has its name. The name is of letters,
    /// digits and `_`, no digit first, and not of those that begin with `__`. The same name again replaces the value.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
        self
    }

    /// How long one attempt may take, from connecting to the end of the answer: 1 ms to 10 min. 10 s if not set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.access.timeout = Some(timeout);
        self
    }

    /// Trusts these certificate authorities (PEM, one or more) instead of the machine's.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.access.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate (PEM, with the chain that leads to it) and proves it by its key (PEM), for peers that ask
    /// who we are.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.access.identity = Some((certificate.into(), key.into()));
        self
    }

    /// This Parca with the labels of all its profiles, completed from the environment.
    pub(super) fn settings(self, environment: &Environment<'_>) -> Result<(Settings, Arc<Labels>), Error> {
        let protocol = Protocol::Grpc;
        let settings = Settings {
            protocol,
            endpoint: Endpoint::parse("Parca::new", &self.endpoint, protocol, PathRule::Method(WRITE_RAW))?,
            headers: self.request_headers(environment)?,
            timeout: self.access.checked_timeout(BUILDER)?.unwrap_or(DEFAULT_TIMEOUT),
            compression: Compression::Gzip,
            tls: self.access.tls(BUILDER)?,
        };
        Ok((settings, Arc::new(self.checked_labels()?)))
    }

    fn request_headers(&self, environment: &Environment<'_>) -> Result<HeaderMap, Error> {
        let mut headers = self.access.headers.checked(BUILDER)?;
        if headers.contains_key(AUTHORIZATION) {
            environment.variables.outweigh("Parca::header(authorization)", TOKEN_VARIABLE);
        } else if let Some(token) = environment.variables.text(TOKEN_VARIABLE)? {
            set_header(&mut headers, TOKEN_VARIABLE, AUTHORIZATION.as_str(), &format!("Bearer {token}"))?;
        }
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        Ok(headers)
    }

    fn checked_labels(self) -> Result<Labels, Error> {
        const REMEDY: &str = "name it with letters, digits and _, no digit first, and not __ first";
        for (name, _) in &self.labels {
            let is_legal = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_legal || name.is_empty() || name.starts_with("__") || name.starts_with(|c: char| c.is_ascii_digit())
            {
                return Err(Error::setting("Parca::label", name, "it cannot be the name of a label", REMEDY));
            }
        }
        Ok(self.labels.into_iter().collect())
    }
}

impl fmt::Debug for Parca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parca")
            .field("headers", &self.access.headers)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

/// The name in `stats()`.
pub(super) fn name(settings: &Settings) -> String {
    format!("parca {}", settings.endpoint.shown)
}

/// What the message of a success says: that all was taken in.
pub(super) fn acknowledgement(message: &[u8]) -> Answer {
    match messages::WriteRawResponse::decode(message) {
        Ok(_) => Answer::Accepted { warning: None },
        Err(_) => {
            Answer::Refused { why: format!("answered OK with a message that is not Parca's: {}", excerpt(message)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(parca: Parca, variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let environment = Environment::new(&lookup);
        let (settings, _) = parca.settings(&environment).map_err(|error| error.to_string())?;
        Ok((settings, environment.variables.outweighed()))
    }

    /// Check that each setting that cannot be is refused by its name, and that no secret is repeated, nor by `Debug`.
    #[test]
    fn bad_settings_are_refused_by_name() {
        let good = || Parca::new("http://c:7070");
        let cases = [
            (Parca::new("grpc.polarsignals.com:443"), "Parca::new=\"grpc.polarsignals.com:443\""),
            (Parca::new("http://c:7070/api"), "a gRPC endpoint has no path"),
            (good().bearer_token("hunter2\n"), "Parca::bearer_token=\"authorization\""),
            (good().header("te", "hunter2"), "sets this header itself"),
            (good().timeout(Duration::ZERO), "Parca::timeout=\"0ns\""),
            (good().label("k8s.pod", "a"), "Parca::label=\"k8s.pod\""),
            (good().label("__name__", "a"), "Parca::label=\"__name__\""),
            (good().label("9", "a"), "Parca::label=\"9\""),
            (good().label("", "a"), "Parca::label=\"\""),
            (good().ca_certificate("hunter2"), "Parca::ca_certificate"),
            (good().client_certificate("hunter2", "hunter2"), "Parca::client_certificate"),
        ];
        for (parca, expected) in cases {
            let shown = format!("{parca:?}");
            let error = settings(parca, &[]).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!format!("{error} {shown}").contains("hunter2"), "{error} {shown}");
        }
        let error = settings(good(), &[(TOKEN_VARIABLE, "hunter2\nx: y")]).unwrap_err();
        assert!(error.contains(TOKEN_VARIABLE) && !error.contains("hunter2"), "{error}");
    }

    /// Check that code outweighs the variable, which is then named.
    #[test]
    fn code_outweighs_the_variable() {
        let parca = Parca::new("https://c").header("Authorization", "Basic code");
        let (found, outweighed) = settings(parca, &[(TOKEN_VARIABLE, "environment")]).unwrap();
        assert_eq!(found.headers[AUTHORIZATION], "Basic code");
        assert_eq!(outweighed, ["Parca::header(authorization) over PARCA_BEARER_TOKEN"]);
    }

    /// Check what an acknowledgement is: the message of Parca, also of a later one, and not any bytes.
    #[test]
    fn an_acknowledgement_is_parcas_message() {
        for message in [&b""[..], &[0x0a, 2, 0x08, 5]] {
            assert_eq!(acknowledgement(message), Answer::Accepted { warning: None });
        }
        assert!(matches!(acknowledgement(b"<html>please log in</html>"), Answer::Refused { .. }));
    }
}
