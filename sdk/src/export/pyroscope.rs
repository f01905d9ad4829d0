//! A Pyroscope server as code sets it, and how the environment completes it.
//!
//! In: what the builder [`Pyroscope`] was told; `PYROSCOPE_*`, for what it was not told. Out: [`PyroscopeSettings`], checked, or an
//! error that names the method or the variable. Nothing is connected to here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::{AUTHORIZATION, USER_AGENT};

use super::access::Access;
use super::endpoint::{Endpoint, PathRule};
use super::headers::{Headers, TENANT};
use super::protocol::{Compression, Protocol};
use super::push::{LONGEST_NAME, LONGEST_VALUE, is_label_name};
use super::pusher::PATH;
use super::settings::{DEFAULT_TIMEOUT, Settings};
use crate::error::Error;
use crate::variables::Variables;

/// What errors call the builder.
const BUILDER: &str = "Pyroscope";

/// The variable that makes a destination by itself.
pub(super) const SERVER_ADDRESS: &str = "PYROSCOPE_SERVER_ADDRESS";
const USER: &str = "PYROSCOPE_BASIC_AUTH_USER";
const PASSWORD: &str = "PYROSCOPE_BASIC_AUTH_PASSWORD";
const TENANT_ID: &str = "PYROSCOPE_TENANT_ID";

/// Most labels that code sets: a series has 30 at most, and those of the process and of its tags come to them.
const MOST_LABELS: usize = 20;

/// A Pyroscope server, or Grafana Cloud's, as code sets it. What cannot be is refused when the profiler is started.
///
/// Profiles are pushed as Pyroscope's own clients do it (`push.v1`), under the types that its users know:
/// `process_cpu:cpu:nanoseconds:cpu:nanoseconds`, `memory:inuse_space:bytes:space:bytes`. What is not set here comes from
/// `PYROSCOPE_BASIC_AUTH_USER` and `PYROSCOPE_BASIC_AUTH_PASSWORD`, and from `PYROSCOPE_TENANT_ID`. Where code adds no destination at all,
/// `PYROSCOPE_SERVER_ADDRESS` makes one.
///
/// ```
/// use profiler::export::Pyroscope;
///
/// let own = Pyroscope::new("http://pyroscope:4040").tenant_id("team-a").label("region", "eu");
/// let cloud = Pyroscope::new("https://profiles-prod-001.grafana.net").basic_auth("1234", "token");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Pyroscope {
    server_address: String,
    access: Access,
    labels: Vec<(String, String)>,
}

/// A server whose settings are known to be good.
#[derive(Debug, Clone)]
pub(super) struct PyroscopeSettings {
    pub(super) http: Settings,
    /// The labels that code sets on every series.
    pub(super) labels: Arc<[(String, String)]>,
}

impl Pyroscope {
    /// The server at this address, as `http://pyroscope:4040`; the path of the method is added to it.
    pub fn new(server_address: impl Into<String>) -> Self {
        Self { server_address: server_address.into(), access: Access::default(), labels: Vec::new() }
    }

    /// Sends user and password with every request (`Authorization: Basic`, RFC 7617); for Grafana Cloud, the number of the
    /// instance and a token.
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.access.headers.set_basic_auth(user.into(), password.into());
        self
    }

    /// Sends this token with every request (`Authorization: Bearer`, RFC 6750).
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.access.headers.set_bearer_token(token.into());
        self
    }

    /// Names the tenant that profiles belong to (`X-Scope-OrgID`), for a server with several.
    pub fn tenant_id(mut self, id: impl Into<String>) -> Self {
        self.access.headers.set_tenant(id.into());
        self
    }

    /// Puts this label on all profiles, beside those of the process; at most 20, with names of letters, digits and `_`. The same name
    /// again replaces the value.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.labels.retain(|(known, _)| *known != name);
        self.labels.push((name, value));
        self
    }

    /// Sends this header with every request. The same name again, whichever method sets it, replaces the value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.access.headers.set(name.into(), value.into());
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

    /// Shows this certificate (PEM, with the chain that leads to it) and proves it by its key (PEM), for servers that ask
    /// who we are.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.access.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The server that the environment describes by itself.
    pub(super) fn described(variables: &Variables<'_>) -> Result<Option<PyroscopeSettings>, Error> {
        let address = variables.text(SERVER_ADDRESS)?;
        address.map(|address| Self::new(address).checked(SERVER_ADDRESS, variables)).transpose()
    }

    /// This server, completed from the environment.
    pub(super) fn settings(self, variables: &Variables<'_>) -> Result<PyroscopeSettings, Error> {
        self.checked("Pyroscope::new", variables)
    }

    /// The same, whose address was set by `setting`.
    fn checked(self, setting: &str, variables: &Variables<'_>) -> Result<PyroscopeSettings, Error> {
        let protocol = Protocol::Http;
        let http = Settings {
            protocol,
            endpoint: Endpoint::parse(setting, &self.server_address, protocol, PathRule::Below(PATH))?,
            headers: self.request_headers(variables)?,
            timeout: self.access.checked_timeout(BUILDER)?.unwrap_or(DEFAULT_TIMEOUT),
            compression: Compression::Gzip,
            tls: self.access.tls(BUILDER)?,
        };
        self.labels.iter().try_for_each(|(name, value)| checked_label(name, value))?;
        if self.labels.len() > MOST_LABELS {
            let why = format!("there are more than {MOST_LABELS} labels");
            return Err(Error::setting("Pyroscope::label", self.labels.len(), &why, "set those that you search by"));
        }
        Ok(PyroscopeSettings { http, labels: self.labels.into() })
    }

    fn request_headers(&self, variables: &Variables<'_>) -> Result<http::HeaderMap, Error> {
        let method = |method: &str| if method == "tenant" { "tenant_id".into() } else { method.to_owned() };
        let mut headers = self.access.headers.checked_as(|name| format!("{BUILDER}::{}", method(name)))?;
        let mut unsaid = Headers::default();
        if headers.contains_key(AUTHORIZATION) {
            [USER, PASSWORD]
                .into_iter()
                .for_each(|variable| variables.outweigh("Pyroscope::header(authorization)", variable));
        } else if let Some((user, password)) = credentials(variables)? {
            unsaid.set_basic_auth(user, password);
        }
        if headers.contains_key(TENANT) {
            variables.outweigh("Pyroscope::tenant_id", TENANT_ID);
        } else if let Some(id) = variables.text(TENANT_ID)? {
            unsaid.set_tenant(id);
        }
        let variable = |method: &str| if method == "tenant" { TENANT_ID } else { USER }.to_owned();
        headers.extend(unsaid.checked_as(variable)?);
        let ours = HeaderValue::from_static(concat!("profiler-sdk/", env!("CARGO_PKG_VERSION")));
        headers.entry(USER_AGENT).or_insert(ours);
        Ok(headers)
    }
}

impl PyroscopeSettings {
    /// The name in `stats()`.
    pub(super) fn name(&self) -> String {
        format!("pyroscope {}", self.http.endpoint.shown.trim_end_matches(PATH))
    }
}

impl fmt::Debug for Pyroscope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headers, labels) = (&self.access.headers, &self.labels);
        f.debug_struct("Pyroscope").field("headers", headers).field("labels", labels).finish_non_exhaustive()
    }
}

/// User and password of the environment, which sets both or neither.
fn credentials(variables: &Variables<'_>) -> Result<Option<(String, String)>, Error> {
    let refuse = |variable: &str, missing, remedy| Error::setting(variable, "set", missing, remedy);
    match (variables.text(USER)?, variables.text(PASSWORD)?) {
        (Some(user), Some(password)) => Ok(Some((user, password))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(refuse(USER, "its password is not set", "set PYROSCOPE_BASIC_AUTH_PASSWORD beside it")),
        (None, Some(_)) => Err(refuse(PASSWORD, "its user is not set", "set PYROSCOPE_BASIC_AUTH_USER beside it")),
    }
}

fn checked_label(name: &str, value: &str) -> Result<(), Error> {
    let refuse = |why: String, remedy| Err(Error::setting("Pyroscope::label", name, why, remedy));
    if !is_label_name(name) || name.starts_with("__") || name.len() > LONGEST_NAME {
        return refuse("it is not the name of a label".into(), "write letters, digits and _, no digit and no __ first");
    }
    if value.is_empty() || value.len() > LONGEST_VALUE {
        return refuse(format!("its value has {} bytes", value.len()), "set a value of 1 to 2048 bytes");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
