//! Where profiles are pulled: `--pull`, `PROFILER_PULL`, `[[pull]]`.
//!
//! In: addresses and tables as they stand there. Out: endpoints, and whether others are to be found; or what is wrong, with flag, variable, or file and line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::layer::Said;
use crate::error::Error;
use crate::pull::Endpoint;

/// Stands for endpoints that are found by the ports of processes.
const DISCOVER: &str = "discover";

/// One `[[pull]]`; of flags and variables, the address alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pull {
    url: String,
    service: Option<String>,
    ca: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl Pull {
    /// One that is but an address.
    pub(super) fn at(url: String) -> Self {
        Self { url, ..Self::default() }
    }

    fn endpoint(self, token: Option<&str>) -> Result<Endpoint, String> {
        let mut endpoint = Endpoint::new(&self.url)?;
        if let Some(token) = token {
            endpoint = endpoint.header("authorization", &format!("Bearer {token}"))?;
        }
        for (name, value) in &self.headers {
            endpoint = endpoint.header(name, value)?;
        }
        let endpoint = self.ca.into_iter().fold(endpoint, Endpoint::trusting);
        Ok(self.service.into_iter().fold(endpoint, Endpoint::called))
    }
}

/// The endpoints, and whether others are to be found. `token` goes to all of them that have no other.
pub(super) fn endpoints(pulls: Vec<Said<Pull>>, token: Option<&str>) -> Result<(Vec<Endpoint>, bool), Error> {
    let (mut endpoints, mut discovers) = (Vec::new(), false);
    for Said { origin, value } in pulls {
        if value.url == DISCOVER {
            discovers = true;
            continue;
        }
        let shown: String = value.url.chars().filter(|c| !c.is_control()).take(80).collect();
        // What an address says before an @ is a password.
        let shown = shown.rsplit_once('@').map_or(shown.as_str(), |(_, host)| host).to_owned();
        let refused = |why| {
            let remedy = "write an address such as http://127.0.0.1:6060, or discover";
            Error::new(format!("{origin}={shown}"), why, remedy)
        };
        endpoints.push(value.endpoint(token).map_err(refused)?);
    }
    Ok((endpoints, discovers))
}
