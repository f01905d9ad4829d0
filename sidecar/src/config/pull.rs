//! Where profiles are pulled: `--pull`, `PROFILER_PULL`, `[[pull]]`.
//!
//! In: addresses and tables as they stand there. Out: endpoints, and how those are asked that are found; or what is wrong, with flag, variable, or file and line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::layer::Said;
use crate::error::Error;
use crate::pull::{Endpoint, Tls};

/// Stands for endpoints that are found by the ports of processes.
const DISCOVER: &str = "discover";

/// One `[[pull]]`; of flags and variables, the address alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pull {
    url: String,
    /// Of those that are found by their ports: `http` or `https`.
    scheme: Option<String>,
    service: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Pull {
    /// One that is but an address.
    pub(super) fn at(url: String) -> Self {
        Self { url, ..Self::default() }
    }

    fn endpoint(self, token: Option<&str>) -> Result<Endpoint, String> {
        if self.scheme.is_some() {
            return Err("an address has its scheme itself: `scheme` is for `url = \"discover\"`".into());
        }
        let mut endpoint = Endpoint::new(&self.url)?;
        if let Some(token) = token {
            endpoint = endpoint.header("authorization", &format!("Bearer {token}"))?;
        }
        let service = self.service.clone();
        Ok(service.into_iter().fold(self.asked(endpoint)?, Endpoint::called))
    }

    /// How those are asked that are found, at whichever port of whom: so the token, which they were not named with, is not for them.
    fn found(self) -> Result<Endpoint, String> {
        if self.service.is_some() {
            return Err("what is found has its process's name: `service` is for an address".into());
        }
        let scheme = self.scheme.as_deref().unwrap_or("http");
        if !["http", "https"].contains(&scheme) {
            return Err("`scheme` is neither http nor https".into());
        }
        let endpoint = Endpoint::new(&format!("{scheme}://localhost"))?;
        self.asked(endpoint)
    }

    fn asked(self, mut endpoint: Endpoint) -> Result<Endpoint, String> {
        for (name, value) in &self.headers {
            endpoint = endpoint.header(name, value)?;
        }
        let identity = match (self.cert, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("`cert` and `key` are of no use without each other".into()),
        };
        let (authorities, server_name) = (self.ca, self.server_name);
        endpoint.over(Tls { authorities, identity, server_name, is_unverified: self.insecure })
    }
}

/// As much of an address as errors may show: what stands before an @ is a password, and what stands behind a ? may be one. Where it could be either, nothing.
fn shown(url: &str) -> String {
    let (before, rest) = url.rsplit_once('@').unwrap_or(("", url));
    let is_unclear = before.contains(['?', '#']);
    let shown = rest.split(['?', '#']).next().filter(|_| !is_unclear).unwrap_or("…");
    shown.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// The endpoints, and how those are asked that are found, in each way that is said. `token` goes to all that have no other, but not to those that are found.
pub(super) fn endpoints(pulls: Vec<Said<Pull>>, token: Option<&str>) -> Result<(Vec<Endpoint>, Vec<Endpoint>), Error> {
    let (mut endpoints, mut found) = (Vec::new(), Vec::new());
    for Said { origin, value } in pulls {
        let shown = shown(&value.url);
        let refused = |why| {
            let remedy = "write an address such as http://127.0.0.1:6060, or discover";
            Error::new(format!("{origin}={shown}"), why, remedy)
        };
        match value.url == DISCOVER {
            true => found.push(value.found().map_err(refused)?),
            false => endpoints.push(value.endpoint(token).map_err(refused)?),
        }
    }
    Ok((endpoints, found))
}
