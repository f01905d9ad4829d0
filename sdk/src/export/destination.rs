//! Where profiles are sent: destinations as a user says them, and as they are once checked.
//!
//! In: what code asks for ([`Destination`]) and the environment. Out: [`Target`]s for
//! [`Exporter::start`](super::Exporter::start), complete and known to be good. Nothing is connected to here.
//!
//! A new kind of destination is a builder in a file of its own, a variant of [`Destination`] with its `From`, and a variant of
//! [`Kind`]; the compiler then asks for the rest. What the environment says of it by itself goes into `described`.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use profiler_proto::ProfileSet;

use super::env::Environment;
use super::files::Files;
use super::files::folder::Folder;
use super::otlp::{Otlp, Unsaid};
use super::parca::{self, Parca};
use super::pyroscope::{Pyroscope, PyroscopeSettings, SERVER_ADDRESS};
use super::retry::Retry;
use super::settings::Settings;
use crate::error::Error;

/// Somewhere that profiles go, as code asks for it. What cannot be is refused when the profiler is started.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Destination {
    /// An OTLP endpoint.
    Otlp(Otlp),
    /// A Pyroscope server.
    Pyroscope(Pyroscope),
    /// A folder for pprof files.
    Files(Files),
    /// A Parca.
    Parca(Parca),
}

impl From<Otlp> for Destination {
    fn from(otlp: Otlp) -> Self {
        Self::Otlp(otlp)
    }
}

impl From<Pyroscope> for Destination {
    fn from(pyroscope: Pyroscope) -> Self {
        Self::Pyroscope(pyroscope)
    }
}

impl From<Files> for Destination {
    fn from(files: Files) -> Self {
        Self::Files(files)
    }
}

impl From<Parca> for Destination {
    fn from(parca: Parca) -> Self {
        Self::Parca(parca)
    }
}

/// A destination that can be sent to: all its settings are known and good.
#[derive(Debug)]
pub struct Target {
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Local { name: String, deliver: Deliver },
    Otlp(Box<Settings>),
    Pyroscope(Box<PyroscopeSettings>),
    Files(Folder),
    Parca(Box<Settings>, Arc<parca::Labels>),
}

/// Takes a set in, at once; called on whatever thread offers it.
pub type Deliver = Arc<dyn Fn(&Arc<ProfileSet>) + Send + Sync>;

/// The destinations in force: those of code, with what they leave open from the environment; where there are none, those
/// that the environment describes. `lookup` gives the value of a variable. What both set is said in the log, by name.
///
/// Read are `ENDPOINT`, `PROTOCOL` (`http/protobuf`, the default, or `grpc`), `HEADERS`, `TIMEOUT` (milliseconds),
/// `COMPRESSION` (`gzip`, the default, or `none`), `CERTIFICATE`, `CLIENT_CERTIFICATE` and `CLIENT_KEY` (paths of PEM
/// files) and `INSECURE`, each first behind `OTEL_EXPORTER_OTLP_PROFILES_`, then behind `OTEL_EXPORTER_OTLP_`. The first two
/// and the last are for destinations of the environment alone. `PYROSCOPE_SERVER_ADDRESS` describes another one, to which
/// `PYROSCOPE_BASIC_AUTH_USER`, `PYROSCOPE_BASIC_AUTH_PASSWORD` and `PYROSCOPE_TENANT_ID` belong.
/// `PROFILER_FILES_DIR` names a folder for files.
///
/// # Errors
/// If an endpoint, a header, a timeout or a certificate cannot be; the error names method or variable.
pub fn resolve(
    destinations: Vec<Destination>,
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<Target>, Error> {
    let environment = Environment::new(lookup);
    let targets = if destinations.is_empty() {
        described(&environment)?
    } else {
        environment.outweigh("Config::export", "ENDPOINT");
        environment.variables.outweigh("Config::export", SERVER_ADDRESS);
        Files::outweigh(&environment.variables);
        destinations.into_iter().map(|destination| destination.target(&environment)).collect::<Result<_, _>>()?
    };
    environment.variables.log_outweighed();
    Ok(targets)
}

/// Refuses an `interval`, which `setting` set, of which no profile would be taken any more by one of `destinations`: a peer that goes by the begin
/// of a profile takes it to be as old as the interval is long, when it has just ended.
///
/// # Errors
/// The interval is too long; the error names setting, destination and limit.
pub fn check_interval(setting: &str, interval: Duration, destinations: &[Target]) -> Result<(), Error> {
    let max_age = Retry::default().max_age;
    let Some(strict) = destinations.iter().find(|target| target.goes_by_the_begin() && interval >= max_age) else {
        return Ok(());
    };
    let (name, minutes) = (strict.name(), max_age.as_secs() / 60);
    let why = format!(
        "{name} refuses profiles that began an hour ago, so none that began {minutes} minutes ago is sent to it"
    );
    let remedy = "set an interval of less than 55 minutes, such as 10s: the less, the longer an outage may be";
    Err(Error::setting(setting, format!("{interval:?}"), why, remedy))
}

/// What the environment describes by itself.
fn described(environment: &Environment<'_>) -> Result<Vec<Target>, Error> {
    let mut targets = Vec::new();
    if let Some((protocol, endpoint)) = environment.endpoint()? {
        targets.push(Unsaid::default().settings(protocol, endpoint, environment)?.into());
    }
    targets.extend(Pyroscope::described(&environment.variables)?.map(Target::from));
    targets.extend(Files::described(&environment.variables)?.map(Target::from));
    Ok(targets)
}

impl Destination {
    fn target(self, environment: &Environment<'_>) -> Result<Target, Error> {
        match self {
            Self::Otlp(otlp) => otlp.settings(environment).map(Target::from),
            Self::Pyroscope(pyroscope) => pyroscope.settings(&environment.variables).map(Target::from),
            Self::Files(files) => files.checked("Files::new").map(Target::from),
            Self::Parca(parca) => {
                let (settings, labels) = parca.settings(environment)?;
                Ok(Target { kind: Kind::Parca(Box::new(settings), labels) })
            }
        }
    }
}

impl From<Settings> for Target {
    fn from(settings: Settings) -> Self {
        Self { kind: Kind::Otlp(Box::new(settings)) }
    }
}

impl From<PyroscopeSettings> for Target {
    fn from(settings: PyroscopeSettings) -> Self {
        Self { kind: Kind::Pyroscope(Box::new(settings)) }
    }
}

impl From<Folder> for Target {
    fn from(folder: Folder) -> Self {
        Self { kind: Kind::Files(folder) }
    }
}

impl Target {
    /// A destination in this process, such as the store that the page is drawn from. `deliver` is called for every set
    /// on the thread that offers it, must be quick, and always accepts.
    pub fn local(name: impl Into<String>, deliver: Deliver) -> Self {
        Self { kind: Kind::Local { name: name.into(), deliver } }
    }

    /// Whether its peer takes a profile to be as old as its begin.
    fn goes_by_the_begin(&self) -> bool {
        matches!(self.kind, Kind::Pyroscope(_))
    }

    /// The name in `stats()`: `otlp-grpc http://collector:4317`, `parca http://parca:7070`, `files /var/profiles`, `store`.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::Local { name, .. } => name.clone(),
            Kind::Otlp(settings) => settings.name(),
            Kind::Pyroscope(settings) => settings.name(),
            Kind::Files(folder) => folder.name(),
            Kind::Parca(settings, _) => parca::name(settings),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { name, .. } => f.debug_struct("Local").field("name", name).finish_non_exhaustive(),
            Self::Otlp(settings) => settings.fmt(f),
            Self::Pyroscope(settings) => settings.fmt(f),
            Self::Files(folder) => folder.fmt(f),
            Self::Parca(settings, _) => settings.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(destinations: Vec<Destination>, variables: &[(&str, &str)]) -> Vec<String> {
        let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        resolve(destinations, &lookup).unwrap().iter().map(Target::name).collect()
    }

    /// Check the names that `stats()` shows, which leave a query out, and that destinations of code replace that of the
    /// environment.
    #[test]
    fn a_destination_is_named_after_its_endpoint() {
        let grpc = || vec![Otlp::grpc("http://c:4317").into()];
        assert_eq!(names(grpc(), &[]), ["otlp-grpc http://c:4317"]);
        let http = vec![Otlp::http("https://c?key=hunter2").into()];
        assert_eq!(names(http, &[]), ["otlp-http https://c/v1development/profiles"]);
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://e:4318")];
        assert_eq!(names(Vec::new(), &variables), ["otlp-http http://e:4318/v1development/profiles"]);
        assert_eq!(names(grpc(), &variables), ["otlp-grpc http://c:4317"]);
    }

    /// Check that without an endpoint nothing is sent, whatever else is set.
    #[test]
    fn without_an_endpoint_there_is_no_destination() {
        let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "")];
        assert_eq!((names(Vec::new(), &[]).len(), names(Vec::new(), &variables).len()), (0, 0));
    }
}
