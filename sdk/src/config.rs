//! What a user can set, and where from: code first, then `PROFILER_*`, then `OTEL_*`.
//!
//! In: [`Config`] as code built it, and the environment. Out: [`Settings`], checked, of which every later stage may rely
//! on every field. Runs once, in `start`, on the caller's thread; waits for nothing.

mod environment;
mod resource;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use profiler_proto::resource::Resource;

use self::environment::Environment;
use crate::context::spans::{SpanLink, SpanSettings};
use crate::engine::EngineChoice;
use crate::error::Error;
use crate::export::{self, Destination, Limits, SpoolSettings, Target};
use crate::heap::HeapSettings;

/// Samples per second of CPU time where nothing else is set.
const DEFAULT_RATE_HZ: u32 = 100;
/// Highest rate; beyond it the profiler would be what it measures.
const MAX_RATE_HZ: u32 = 10_000;
/// How often profiles leave where nothing else is set.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest and longest interval.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Bytes that may wait for a destination: at least the largest request, so that one always fits.
const QUEUES: std::ops::RangeInclusive<usize> = 2_000_000..=1 << 30;

/// Bytes that may be in the folder of the spool: several segments at least.
const SPOOLS: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 40;

/// The longest interval between samples of the heap.
const MAX_HEAP_INTERVAL: u64 = 1 << 40;

/// What to profile and where profiles go. What is not set here comes from the environment, see the
/// [crate documentation](crate#settings).
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Config {
    service: Option<String>,
    tags: Vec<(String, String)>,
    rate_hz: Option<u32>,
    interval: Option<Duration>,
    engine: Option<EngineChoice>,
    destinations: Vec<Destination>,
    queue_bytes: Option<usize>,
    spool: Option<PathBuf>,
    spool_bytes: Option<u64>,
    serve: Option<String>,
    #[cfg(feature = "serve")]
    security: crate::serve::Security,
    #[cfg(feature = "serve")]
    serves_within: bool,
    symbolize: Option<bool>,
    span_link: Option<SpanLink>,
    link_unsampled_spans: Option<bool>,
    ring_words: Option<usize>,
    heap: Option<bool>,
    heap_interval: Option<u64>,
    heap_blocks: Option<usize>,
}

impl Config {
    /// Settings for the service of this name (`service.name`).
    pub fn new(service: impl Into<String>) -> Self {
        Self { service: Some(service.into()), ..Self::default() }
    }

    /// Settings for the service that `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` names.
    pub fn from_env() -> Self {
        Self::default()
    }

    /// Adds an attribute of the process as a whole, as `region` or `deployment.environment.name`.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.push((key.into(), value.into()));
        self
    }

    /// Samples per second of CPU time and thread, 1 to 10,000; 100 if not set.
    pub fn rate_hz(mut self, rate_hz: u32) -> Self {
        self.rate_hz = Some(rate_hz);
        self
    }

    /// How often a profile is exported, 100 ms to 1 h, with a Pyroscope among the destinations less than 55 min; 10 s if not set. One that fills up
    /// leaves sooner, after a tenth of that at the earliest.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// The engine to take samples with; [`EngineChoice::Auto`] if not set. In the variable: `auto`, `perf`, `timer`, `process_timer`, `setitimer`.
    pub fn engine(mut self, engine: EngineChoice) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Adds a destination, such as an [`Otlp`](export::Otlp) or a [`Pyroscope`](export::Pyroscope). Where code adds none,
    /// `OTEL_EXPORTER_OTLP_*` and `PYROSCOPE_*` say where to.
    pub fn export(mut self, destination: impl Into<Destination>) -> Self {
        self.destinations.push(destination.into());
        self
    }

    /// Most bytes of encoded profiles that wait for each destination, 2 MB to 1 GiB; 16 MiB if not set. Beyond it the oldest are
    /// lost, and counted (`queue_full`).
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = Some(bytes);
        self
    }

    /// Keeps what waits for destinations in this folder, too, which is made if there is none: it outlives an outage that is longer than memory
    /// lasts, and the process. What an earlier process left there is sent first in time. Each process has a folder of its own; where it
    /// cannot be used, the log and [`Stats::spool`](crate::Stats::spool) say so, and all goes on from memory. None if not set.
    pub fn spool(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spool = Some(folder.into());
        self
    }

    /// Most bytes in the folder of the spool, 16 MiB to 1 TiB; 256 MiB if not set. Beyond it the oldest are lost, and counted
    /// (`spool_full`).
    pub fn spool_bytes(mut self, bytes: u64) -> Self {
        self.spool_bytes = Some(bytes);
        self
    }

    /// Serves the page, `/debug/pprof/*`, `/stats` and `/healthz` at this address, as `127.0.0.1:6060`; port 0 takes a
    /// free one. See [`Profiler::serve_address`](crate::Profiler::serve_address).
    pub fn serve(mut self, address: impl Into<String>) -> Self {
        self.serve = Some(address.into());
        self
    }

    /// Keeps the profiles of the last minutes for `profiler::serve::service()` (feature `tower`), the same pages inside of the host's own
    /// server. An address of [`Config::serve`] is not needed for that, and keeps them, too.
    #[cfg(feature = "serve")]
    pub fn serve_within(mut self) -> Self {
        self.serves_within = true;
        self
    }

    /// Has the server speak TLS, with the certificate (and its chain) and the private key of these PEM files.
    #[cfg(feature = "serve")]
    pub fn serve_tls(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.security = self.security.tls_by(["Config::serve_tls"; 2], certificate, key);
        self
    }

    /// Has the server answer only those who know `token`, of at least 16 characters: as `Authorization: Bearer`, or as the password that a
    /// browser asks for.
    #[cfg(feature = "serve")]
    pub fn serve_token(mut self, token: impl Into<std::sync::Arc<str>>) -> Self {
        self.security = self.security.token_by("Config::serve_token", token);
        self
    }

    /// Whether addresses get names here; on if not set. Off, profiles carry addresses, mappings and build ids for a backend
    /// that finds the names itself, and frames are called `libc.so.6+0x28b0`.
    pub fn symbolize(mut self, on: bool) -> Self {
        self.symbolize = Some(on);
        self
    }

    /// Which span a sample links to; [`SpanLink::Current`] if not set. In the variable: `current`, `local_root`.
    pub fn span_link(mut self, link: SpanLink) -> Self {
        self.span_link = Some(link);
        self
    }

    /// Whether samples link also to spans that are not sampled, which no backend has; off if not set.
    pub fn link_unsampled_spans(mut self, on: bool) -> Self {
        self.link_unsampled_spans = Some(on);
        self
    }

    /// Whether the heap is profiled. If not set, it is where it can be: the feature `heap`, and jemalloc with profiling
    /// (`profiler::jemalloc!()`). Set to `true`, [`start`](crate::start) gives an error where it cannot be.
    pub fn heap(mut self, on: bool) -> Self {
        self.heap = Some(on);
        self
    }

    /// Bytes allocated between samples of the heap, on average: a power of two, 1 to 1 TiB. As jemalloc's options say if not
    /// set; `profiler::jemalloc!()` says 1 MiB, jemalloc by itself 512 KiB. What the environment says to jemalloc (`lg_prof_sample`) goes before this, and
    /// where jemalloc takes samples for others, theirs stays: `HeapStats::notes` says so. The 1 MiB of
    /// `profiler::jemalloc!()` becomes longer, with jemalloc's hooks, while there would be more than 500 samples in a second of CPU time; set here, it stays.
    pub fn heap_interval(mut self, bytes: u64) -> Self {
        self.heap_interval = Some(bytes);
        self
    }

    /// Most live samples of the heap: for tests of what does not fit.
    #[doc(hidden)]
    pub fn heap_blocks(mut self, blocks: usize) -> Self {
        self.heap_blocks = Some(blocks);
        self
    }

    /// Size of the ring between signal handlers and reader, in 64-bit words: for tests of loss.
    #[doc(hidden)]
    pub fn ring_words(mut self, words: usize) -> Self {
        self.ring_words = Some(words);
        self
    }
}

impl From<&str> for Config {
    fn from(service: &str) -> Self {
        Self::new(service)
    }
}

impl From<String> for Config {
    fn from(service: String) -> Self {
        Self::new(service)
    }
}

/// Settings that can be relied on.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) service: String,
    pub(crate) resource: Resource,
    pub(crate) rate_hz: u32,
    pub(crate) interval: Duration,
    pub(crate) engine: EngineChoice,
    pub(crate) destinations: Vec<Target>,
    pub(crate) limits: Limits,
    /// Where what waits is kept on disk.
    pub(crate) spool: Option<SpoolSettings>,
    /// The name of what set it, and the address.
    pub(crate) serve: Option<(&'static str, String)>,
    #[cfg(feature = "serve")]
    pub(crate) security: crate::serve::Security,
    /// Whether profiles are kept for the host's own server.
    #[cfg(feature = "serve")]
    pub(crate) serves_within: bool,
    /// Whether addresses get names.
    pub(crate) symbolize: bool,
    /// Which spans samples link to.
    pub(crate) spans: SpanSettings,
    /// `None`: as the ring likes it.
    pub(crate) ring_words: Option<usize>,
    pub(crate) heap: HeapSettings,
}

impl Settings {
    /// CPU time between samples.
    pub(crate) fn period(&self) -> Duration {
        period(self.rate_hz)
    }
}

impl Config {
    /// These settings, completed from the variables that `lookup` finds.
    pub(crate) fn resolve(self, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings, Error> {
        let environment = Environment::new(lookup);
        let (service, resource) = environment.resource(self.service, self.tags)?;
        let (interval_setting, interval) = environment.interval(self.interval)?;
        let destinations = export::resolve(self.destinations, lookup)?;
        export::check_interval(interval_setting, interval, &destinations)?;
        let serve = environment.serve(self.serve)?;
        #[cfg(feature = "serve")]
        let security = environment.security(self.security, serve.is_some(), self.serves_within)?;
        let settings = Settings {
            service,
            resource,
            rate_hz: environment.rate(self.rate_hz)?,
            interval,
            engine: environment.engine(self.engine)?,
            destinations,
            limits: Limits { queue_bytes: environment.queue_bytes(self.queue_bytes)?, ..Limits::default() },
            spool: environment.spool(self.spool, self.spool_bytes)?,
            serve,
            #[cfg(feature = "serve")]
            security,
            #[cfg(feature = "serve")]
            serves_within: self.serves_within,
            symbolize: environment.symbolize(self.symbolize)?,
            spans: SpanSettings {
                link: environment.span_link(self.span_link)?,
                unsampled: environment.link_unsampled_spans(self.link_unsampled_spans)?,
            },
            ring_words: self.ring_words,
            heap: HeapSettings {
                wanted: environment.heap(self.heap)?,
                lg_interval: environment.heap_interval(self.heap_interval)?,
                most_live: self.heap_blocks,
            },
        };
        environment.log();
        Ok(settings)
    }
}

/// CPU time between samples at this rate.
pub(crate) fn period(rate_hz: u32) -> Duration {
    Duration::from_secs(1) / rate_hz.max(1)
}

/// Whether the profiler is to run at all.
pub(crate) fn enabled(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<bool, Error> {
    Environment::new(lookup).enabled()
}

/// The rate, if it can be; `name` is what set it.
pub(crate) fn checked_rate(name: &str, rate_hz: u32) -> Result<u32, Error> {
    match rate_hz {
        1..=MAX_RATE_HZ => Ok(rate_hz),
        _ => Err(Error::setting(name, rate_hz, "the rate must be 1 to 10000 Hz", "set a rate such as 100")),
    }
}

fn checked_interval(name: &str, interval: Duration) -> Result<Duration, Error> {
    if INTERVALS.contains(&interval) {
        return Ok(interval);
    }
    let value = format!("{interval:?}");
    Err(Error::setting(name, value, "the interval must be 100 ms to 1 h", "set an interval such as 10s"))
}

fn checked_queue_bytes(name: &str, bytes: usize) -> Result<usize, Error> {
    if QUEUES.contains(&bytes) {
        return Ok(bytes);
    }
    let why = "a queue has room for 2000000 (the largest request) to 1073741824 bytes";
    Err(Error::setting(name, bytes, why, "set a size such as 16777216"))
}

fn checked_spool_bytes(name: &str, bytes: u64) -> Result<u64, Error> {
    if SPOOLS.contains(&bytes) {
        return Ok(bytes);
    }
    let why = "a spool has room for 16777216 to 1099511627776 bytes";
    Err(Error::setting(name, bytes, why, "set a size such as 268435456"))
}

/// The interval as a power of two, if it is one; `name` is what set it.
pub(crate) fn checked_heap_interval(name: &str, bytes: u64) -> Result<u32, Error> {
    if bytes.is_power_of_two() && bytes <= MAX_HEAP_INTERVAL {
        return Ok(bytes.trailing_zeros());
    }
    let why = "the interval must be a power of two of bytes, 1 to 1 TiB";
    Err(Error::setting(name, bytes, why, "set an interval such as 524288"))
}

#[cfg(test)]
mod table;
#[cfg(test)]
mod tests;
