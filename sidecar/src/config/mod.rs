//! Settings: command line, environment, a file of TOML; each checked once, here.
//!
//! In: what the command line says ([`CommandLine`]), a look-up of variables, the text of a file. Out: a [`Config`] in which everything can
//! be, or an error that names flag, variable, or file and line, and says what to write. Runs once, at start, on the main thread.
//!
//! Highest first: command line, `PROFILER_*`, the file; of destinations: `OTEL_*`, `PYROSCOPE_*` and `PROFILER_FILES_DIR` as the SDK reads
//! them, then the file's `[[export]]`. So what a pod's manifest says outweighs what an image brought.

mod environment;
mod export;
mod file;
mod layer;
mod outside;
mod pattern;
mod pull;
mod units;

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use profiler::export::{Limits, MetricsTarget, SpoolSettings, Target, check_interval, resolve, unknown_variables};
use profiler::serve::Security;

use self::export::Export;
use self::layer::Layer;
pub use self::layer::{CommandLine, Said};
use self::outside::Folder;
pub use self::pattern::{Filter, Pattern, Subject};
pub use self::units::{parse_bytes, parse_duration};
use crate::capture::Bounds;
use crate::error::Error;
use crate::named_file;
use crate::plain::plain;
use crate::pull::{Endpoint, is_ours};

/// Samples a second and processor where nobody says another rate.
pub const DEFAULT_RATE_HZ: u32 = 99;
/// Length of a profile where nobody says another one.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// How often the runtimes of Go programs are captured where nobody says otherwise.
pub const DEFAULT_RUNTIME_INTERVAL: Duration = Duration::from_secs(60);
/// Where pages are served where nobody says another address.
pub const DEFAULT_SERVE: &str = "127.0.0.1:6070";
/// Own CPU time that is allowed, in percent of one processor.
pub const DEFAULT_CPU_PERCENT: f64 = 5.0;
/// Own memory that is allowed, in bytes.
pub const DEFAULT_MEMORY: u64 = 160 << 20;

/// What the agent does, checked.
#[derive(Debug)]
pub struct Config {
    /// Samples a second and processor.
    pub rate_hz: u32,
    /// Length of a profile.
    pub interval: Duration,
    /// Which processes.
    pub filter: Filter,
    /// Address of page and pulls; `None`: nothing is served.
    pub serve: Option<Said<String>>,
    /// Address where OTLP profiles are taken; `None`: none are.
    pub receive: Option<SocketAddr>,
    /// Whether processes that profile themselves by the SDK are sampled all the same.
    pub profile_sdk: bool,
    /// Whether stacks go on into the kernel.
    pub kernel: bool,
    /// Own CPU time that is allowed, in percent of one processor.
    pub cpu_percent: f64,
    /// Own memory that is allowed, in bytes.
    pub memory: u64,
    /// Bytes that may wait for each destination.
    pub queue_bytes: Option<usize>,
    /// How often heap, goroutines and contention of Go programs are captured; `None`: when they are asked for.
    pub runtime_interval: Option<Duration>,
    /// How much of a runtime is read.
    pub runtime_bounds: Bounds,
    /// Where profiles are pulled of what cannot be read from outside.
    pub pulls: Vec<Endpoint>,
    /// How programs that serve profiles are asked where they are found, at whichever address; none where they are not looked for.
    pub pull_found: Vec<Endpoint>,
    /// Who may ask at the page, and over what.
    pub security: Security,
    /// A folder for what waits to be sent.
    pub spool: Option<SpoolSettings>,
    /// Folders that settings name.
    folders: Vec<Folder>,
    /// Who said how large the spool may be, where there is none.
    pub spool_bound: Option<String>,
    /// Where profiles are sent.
    pub destinations: Vec<Target>,
    /// Where figures of Go's runtimes are sent, as metrics.
    pub metrics: Vec<MetricsTarget>,
    /// Variables that have our prefix and are no settings.
    unknown: Vec<String>,
}

impl Config {
    /// The settings in force. `lookup` gives the value of a variable.
    ///
    /// # Errors
    /// What cannot be: the error names flag, variable, or file and line.
    pub fn new(command_line: CommandLine, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let variables = environment::read(lookup)?;
        let path = command_line.config.clone().or_else(|| lookup("PROFILER_CONFIG").map(PathBuf::from));
        let (from_file, exports) = match path.filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => file::read(&path)?,
            None => (Layer::default(), Vec::new()),
        };
        let layer = command_line.layer().over(variables).over(from_file);
        let (destinations, folders) = destinations(exports, lookup)?;
        let said = layer.metrics.as_ref().map(|said| said.value);
        let security = Security::new().or_variables(lookup).map_err(of_sdk)?;
        let token = lookup("PROFILER_PULL_TOKEN").map(OsString::into_string).transpose().map_err(|_| {
            Error::new(
                "PROFILER_PULL_TOKEN",
                "it is not UTF-8",
                "give the token as the program's server knows it, in ASCII",
            )
        })?;
        let config = check(layer, token.as_deref().filter(|token| !token.is_empty()), security, destinations)?;
        let metrics = metrics(&config, said, lookup)?;
        let folders = folders.into_iter().map(Folder::of_profiles).chain(config.folders).collect();
        Ok(Self { metrics, folders, ..config })
    }

    /// The same, if the tokens and files that it names can be used.
    ///
    /// # Errors
    /// What cannot be used, by the setting that names it.
    pub fn at_hand(self) -> Result<Self, Error> {
        outside::check(&self)?;
        Ok(self)
    }

    /// Whether the folders that it names can be used now. They need not be: who writes to them tries again.
    ///
    /// # Errors
    /// What cannot be used, by the setting that names it.
    pub fn check_folders(&self) -> Result<(), Error> {
        self.folders.iter().try_for_each(Folder::check)
    }

    /// The same in an environment with variables of these `names`, of which some may be no settings.
    #[must_use]
    pub fn among(self, names: impl IntoIterator<Item = OsString>) -> Self {
        Self { unknown: unknown_variables(names), ..self }
    }

    /// Settings that have no effect, and why.
    #[must_use]
    pub fn idle(&self) -> Vec<(&str, &'static str)> {
        let of_nobody = self.security.settings().into_iter().flatten().filter(|_| self.serve.is_none());
        let of_nothing = self.spool_bound.iter().map(|said| (&**said, "there is no folder for a spool"));
        let unknown = self.unknown.iter().map(|name| (&**name, "no setting has this name"));
        of_nobody.map(|setting| (setting, "nothing is served")).chain(of_nothing).chain(unknown).collect()
    }
}

impl fmt::Display for Config {
    /// For `--check-config`: without secrets, which stand in headers alone, and each setting in its line, whatever names have in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = || "off".to_owned();
        writeln!(f, "rate: {} Hz, profiles of {:?}, kernel frames: {}", self.rate_hz, self.interval, self.kernel)?;
        writeln!(f, "processes: {}", plain(&self.filter.to_string()))?;
        writeln!(f, "those that profile themselves by the SDK: {}", if self.profile_sdk { "also" } else { "not" })?;
        writeln!(f, "served at: {}", self.serve.as_ref().map_or_else(off, |said| said.value.clone()))?;
        let [token, certificate] = self.security.settings().map(|setting| setting.unwrap_or("off"));
        writeln!(f, "token for the page: {token}, TLS: {}", plain(certificate))?;
        for (setting, why) in self.idle() {
            writeln!(f, "without effect: {}, for {why}", plain(setting))?;
        }
        let runtimes = self.runtime_interval.map_or_else(off, |interval| format!("each {interval:?}"));
        let Bounds { buckets, goroutines } = self.runtime_bounds;
        writeln!(f, "heap, goroutines, contention: {runtimes}, at most {buckets} stacks, {goroutines} goroutines")?;
        let found = (!self.pull_found.is_empty()).then(|| "what is found".to_owned());
        let pulled: Vec<String> = self.pulls.iter().map(Endpoint::name).chain(found).collect();
        if !pulled.is_empty() {
            writeln!(f, "pulled where it cannot be read from outside: {}", plain(&pulled.join(", ")))?;
        }
        writeln!(f, "received at: {}", self.receive.map_or_else(off, |address| address.to_string()))?;
        writeln!(f, "own bounds: {} % of a processor, {} MiB", self.cpu_percent, self.memory >> 20)?;
        let spool = self.spool.as_ref();
        let spool = spool.map(|spool| format!("{}, {} MiB", spool.folder.display(), spool.bytes >> 20));
        writeln!(f, "kept on disk until sent: {}", plain(&spool.unwrap_or_else(off)))?;
        let metrics: Vec<&str> = self.metrics.iter().map(MetricsTarget::name).collect();
        let metrics = if metrics.is_empty() { "nobody".to_owned() } else { metrics.join(", ") };
        writeln!(f, "figures of Go's runtimes sent to: {}", plain(&metrics))?;
        let waits = self.queue_bytes.unwrap_or(Limits::default().queue_bytes);
        writeln!(f, "waiting for each destination: at most {waits} bytes")?;
        match self.destinations.is_empty() {
            true => write!(f, "sent to: nobody; set OTEL_EXPORTER_OTLP_ENDPOINT"),
            false => {
                let names: Vec<String> = self.destinations.iter().map(Target::name).collect();
                write!(f, "sent to: {}", plain(&names.join(", ")))
            }
        }
    }
}

/// The destinations of the environment, else those of the file; with the folders among them.
fn destinations(
    file: Vec<Said<Export>>,
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(Vec<Target>, Vec<Said<PathBuf>>), Error> {
    let refused = |error: profiler::Error| Error::new("destination", error.to_string(), "see `run --help`");
    let named = |said: &Said<Export>| {
        said.value.folder().map(|folder| Said::new(format!("{}: folder", said.origin), folder.to_owned()))
    };
    let folders = file.iter().filter_map(named).collect();
    let destination = |said: Said<Export>| Ok((said.value.destination(&said.origin)?, said.origin));
    let file = file.into_iter().map(destination).collect::<Result<Vec<_>, _>>()?;
    let targets = resolve(Vec::new(), lookup).map_err(refused)?;
    if targets.is_empty() {
        let target = |(destination, place): (_, String)| {
            resolve(vec![destination], lookup).map_err(|error| export::refused(&place, &error.to_string()))
        };
        let targets = file.into_iter().map(target).collect::<Result<Vec<_>, _>>()?;
        return Ok((targets.into_iter().flatten().collect(), folders));
    }
    let folder = lookup("PROFILER_FILES_DIR").filter(|folder| !folder.is_empty());
    Ok((targets, folder.map(|folder| Said::new("PROFILER_FILES_DIR", folder.into())).into_iter().collect()))
}

/// Where metrics go: nowhere, if there never are any, or we or OpenTelemetry's exporters are told so. Variables that are of no use are not looked at.
fn metrics(
    config: &Config,
    said: Option<bool>,
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<MetricsTarget>, Error> {
    let is_none = lookup("OTEL_METRICS_EXPORTER").is_some_and(|value| value.to_string_lossy().trim() == "none");
    if config.runtime_interval.is_none() || !said.unwrap_or(!is_none) {
        return Ok(Vec::new());
    }
    MetricsTarget::resolve(&config.destinations, lookup).map_err(of_sdk)
}

fn check(layer: Layer, token: Option<&str>, security: Security, destinations: Vec<Target>) -> Result<Config, Error> {
    let interval =
        said_or(layer.interval, DEFAULT_INTERVAL, |said| lasting(&said, units::interval(&said)?, &destinations))?;
    let receive = said_or(layer.receive, None, |said| units::received(&said))?;
    let serve = units::served(layer.serve.unwrap_or_else(|| Said::new("--serve", DEFAULT_SERVE.into())))?;
    check_apart(serve.as_ref().map(|said| &*said.value), receive)?;
    check_loop(receive, &destinations)?;
    let (pulls, pull_found) = pull::endpoints(layer.pulls, token)?;
    let folders = layer.spool_folder.iter().filter(|said| !said.value.is_empty()).map(Folder::of_spool).collect();
    let spool = spool(layer.spool_folder, layer.spool_bytes.as_ref())?;
    let spool_bound = layer.spool_bytes.filter(|_| spool.is_none()).map(|said| said.origin);
    Ok(Config {
        rate_hz: said_or(layer.rate_hz, DEFAULT_RATE_HZ, |said| units::rate(&said))?,
        interval,
        filter: Filter::new(&layer.pids, &layer.include, &layer.exclude)?,
        serve,
        receive,
        profile_sdk: layer.profile_sdk.is_some_and(|said| said.value),
        kernel: layer.kernel.is_none_or(|said| said.value),
        cpu_percent: said_or(layer.cpu_percent, DEFAULT_CPU_PERCENT, |said| units::percent(&said))?,
        memory: said_or(layer.memory, DEFAULT_MEMORY, |said| units::memory(&said))?,
        queue_bytes: layer.queue_bytes.map(|said| units::queue_bytes(&said)).transpose()?,
        runtime_interval: said_or(layer.runtime_interval, Some(DEFAULT_RUNTIME_INTERVAL), |said| {
            let interval = units::runtime_interval(&said)?;
            interval.map(|interval| lasting(&said, interval, &destinations)).transpose()
        })?,
        runtime_bounds: bounds(layer.max_buckets, layer.max_goroutines)?,
        pulls,
        pull_found,
        security,
        spool,
        unknown: Vec::new(),
        folders,
        spool_bound,
        destinations,
        metrics: Vec::new(),
    })
}

/// The interval, if what lasts for so long is taken where it is sent.
fn lasting(said: &Said<String>, interval: Duration, destinations: &[Target]) -> Result<Duration, Error> {
    check_interval(&said.origin, interval, destinations).map_err(of_sdk)?;
    Ok(interval)
}

fn bounds(buckets: Option<Said<usize>>, goroutines: Option<Said<usize>>) -> Result<Bounds, Error> {
    let default = Bounds::default();
    Ok(Bounds {
        buckets: said_or(buckets, default.buckets, |said| units::most(&said))?,
        goroutines: said_or(goroutines, default.goroutines, |said| units::most(&said))?,
    })
}

/// The spool, if it has a folder.
fn spool(folder: Option<Said<String>>, bytes: Option<&Said<u64>>) -> Result<Option<SpoolSettings>, Error> {
    let bytes = bytes.map(units::spool_bytes).transpose()?;
    let settings = folder.filter(|said| !said.value.is_empty()).map(|said| SpoolSettings::new(said.value));
    Ok(settings.map(|settings| match bytes {
        Some(bytes) => settings.bytes(bytes),
        None => settings,
    }))
}

/// An error of the SDK's, which is of the same three parts.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
pub(crate) fn of_sdk(error: profiler::Error) -> Error {
    let text = error.to_string();
    let (what, rest) = text.split_once(": ").unwrap_or((&text, ""));
    let (why, remedy) = rest.rsplit_once("; ").unwrap_or((rest, ""));
    Error::new(what, why, remedy)
}

/// Refuses to send to ourselves what we received, again and again.
fn check_loop(receive: Option<SocketAddr>, destinations: &[Target]) -> Result<(), Error> {
    let Some(address) = receive else { return Ok(()) };
    match destinations.iter().map(Target::name).find(|name| leads_to(name, address)) {
        Some(name) => Err(Error::new(
            format!("profiles are received at {address} and sent to {name}"),
            "that is the same address: each profile would go round for ever",
            "receive at another address, or send somewhere else",
        )),
        None => Ok(()),
    }
}

/// Refuses to serve and to receive at one address.
fn check_apart(serve: Option<&str>, receive: Option<SocketAddr>) -> Result<(), Error> {
    let served = serve.and_then(|address| address.parse::<SocketAddr>().ok());
    let Some((served, received)) = served.zip(receive) else { return Ok(()) };
    // Each free port that is asked for is another one.
    let is_one_port = served.port() == received.port() && served.port() != 0;
    let has = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    if !is_one_port || !(served.ip() == received.ip() || has(served, received) || has(received, served)) {
        return Ok(());
    }
    Err(Error::new(
        format!("the page is served at {served} and profiles are received at {received}"),
        "one address can have one of the two",
        "set another port for --receive (PROFILER_RECEIVE, receive) or --serve (PROFILER_SERVE, serve)",
    ))
}

/// Whether the address in a destination's name is `receive`, as far as can be told without a resolver.
fn leads_to(name: &str, receive: SocketAddr) -> bool {
    let authority = name.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    let at = receive.ip().to_canonical();
    if let Some(port) = authority.strip_prefix("localhost:") {
        return port.parse() == Ok(receive.port()) && (at.is_loopback() || at.is_unspecified());
    }
    let Ok(sent) = authority.parse::<SocketAddr>() else { return false };
    // What is meant for any address, Linux sends to the loopback.
    let ip = match sent.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let hears = at.is_unspecified() && (at.is_ipv6() || ip.is_ipv4());
    sent.port() == receive.port() && (ip == at || hears && is_ours(ip))
}

fn said_or<T, U>(
    said: Option<Said<T>>,
    default: U,
    check: impl FnOnce(Said<T>) -> Result<U, Error>,
) -> Result<U, Error> {
    said.map_or(Ok(default), check)
}

/// The text of a file of settings.
fn text_of(path: &Path) -> Result<String, Error> {
    const REMEDY: &str = "give --config the path of a TOML file that this process can read";
    let failed = |why: String| Error::new(path.display().to_string(), why, REMEDY);
    let bytes = named_file::read(path).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests;
