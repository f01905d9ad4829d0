//! One `[[export]]` of the file of settings.
//!
//! In: the table as it stands there. Out: a destination of the SDK's, which checks the rest, or an error with file and line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use profiler::export::{Destination, Files, Otlp, Parca, Pyroscope};
use serde::Deserialize;

use crate::error::Error;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Export {
    to: To,
    endpoint: Option<String>,
    folder: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum To {
    OtlpGrpc,
    OtlpHttp,
    Pyroscope,
    Parca,
    Files,
}

/// That the SDK refuses the destination of this `place`, which names its own methods.
pub(super) fn refused(place: &str, why: &str) -> Error {
    const NAMES: [(&str, &str); 7] = [
        ("Otlp::grpc", "endpoint"),
        ("Otlp::http", "endpoint"),
        ("Pyroscope::new", "endpoint"),
        ("Parca::new", "endpoint"),
        ("Otlp::header", "headers"),
        ("Pyroscope::header", "headers"),
        ("Parca::header", "headers"),
    ];
    let why = NAMES.iter().fold(why.to_owned(), |why, (method, key)| why.replace(method, key));
    Error::new(format!("{place}: export"), why, "see `run --help`")
}

impl Export {
    /// The folder that profiles are written to.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref().filter(|_| self.to == To::Files)
    }

    /// The destination; `place` is file and line.
    pub(super) fn destination(self, place: &str) -> Result<Destination, Error> {
        let refused = |why: &str, remedy: &str| Err(Error::new(format!("{place}: export"), why, remedy));
        if self.to == To::Files {
            if self.endpoint.is_some() || !self.headers.is_empty() {
                return refused("files have no endpoint and no headers", "set folder alone");
            }
            return match self.folder {
                Some(folder) => Ok(Files::new(folder).into()),
                None => refused("there is no folder", "set folder = \"/var/profiles\""),
            };
        }
        if self.folder.is_some() {
            return refused("only files have a folder", "remove it, or set to = \"files\"");
        }
        let Some(endpoint) = self.endpoint else {
            return refused("there is no endpoint", "set endpoint = \"http://collector:4318\"");
        };
        macro_rules! with_headers {
            ($of:expr) => {
                self.headers.into_iter().fold($of, |of, (name, value)| of.header(name, value)).into()
            };
        }
        Ok(match self.to {
            To::OtlpHttp => with_headers!(Otlp::http(endpoint)),
            To::Pyroscope => with_headers!(Pyroscope::new(endpoint)),
            To::Parca => with_headers!(Parca::new(endpoint)),
            To::OtlpGrpc | To::Files => with_headers!(Otlp::grpc(endpoint)),
        })
    }
}
