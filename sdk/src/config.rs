//! What a user can set, and where from: code first, then `PROFILER_*`, then `OTEL_*`.
//!
//! In: [`Config`] as code built it, and the environment. Out: [`Settings`], checked, of which every later stage may rely
//! on every field. Runs once, in `start`; reads the environment and nothing else.

mod environment;

use std::ffi::OsString;
use std::time::Duration;

use profiler_proto::resource::Resource;

use self::environment::Environment;
use crate::context::spans::{SpanLink, SpanSettings};
use crate::engine::EngineChoice;
use crate::error::Error;
use crate::export::{self, Destination, Otlp};
use crate::heap::HeapSettings;

/// Samples per second of CPU time where nothing else is set.
const DEFAULT_RATE_HZ: u32 = 100;
/// Highest rate; beyond it the profiler would be what it measures.
const MAX_RATE_HZ: u32 = 10_000;
/// How often profiles leave where nothing else is set.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest and longest interval.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

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
    destinations: Vec<Otlp>,
    serve: Option<String>,
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

    /// How often a profile is exported, 100 ms to 1 h; 10 s if not set.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// The engine to take samples with; [`EngineChoice::Auto`] if not set.
    pub fn engine(mut self, engine: EngineChoice) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Adds a destination. Where code adds none, `OTEL_EXPORTER_OTLP_*` say where to.
    pub fn export(mut self, destination: Otlp) -> Self {
        self.destinations.push(destination);
        self
    }

    /// Serves the page, `/debug/pprof/*`, `/stats` and `/healthz` at this address, as `127.0.0.1:6060`; port 0 takes a
    /// free one. See [`Profiler::serve_address`](crate::Profiler::serve_address).
    pub fn serve(mut self, address: impl Into<String>) -> Self {
        self.serve = Some(address.into());
        self
    }

    /// Whether addresses get names here; on if not set. Off, profiles carry addresses, mappings and build ids for a backend
    /// that finds the names itself, and frames are called `libc.so.6+0x28b0`.
    pub fn symbolize(mut self, on: bool) -> Self {
        self.symbolize = Some(on);
        self
    }

    /// Which span a sample links to; [`SpanLink::Current`] if not set.
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
    /// set; `profiler::jemalloc!()` says 1 MiB, jemalloc by itself 512 KiB.
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
    pub(crate) destinations: Vec<Destination>,
    pub(crate) serve: Option<String>,
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
        let environment = Environment { lookup };
        let rate_hz = match self.rate_hz {
            Some(rate) => checked_rate("Config::rate_hz", rate)?,
            None => environment.rate()?.unwrap_or(DEFAULT_RATE_HZ),
        };
        let interval = match self.interval {
            Some(interval) => checked_interval("Config::interval", interval)?,
            None => environment.interval()?.unwrap_or(DEFAULT_INTERVAL),
        };
        let (service, resource) = environment.resource(self.service, self.tags)?;
        let destinations = if self.destinations.is_empty() {
            export::from_env(lookup)?
        } else {
            self.destinations.into_iter().map(Destination::otlp).collect::<Result<_, _>>()?
        };
        Ok(Settings {
            service,
            resource,
            rate_hz,
            interval,
            engine: self.engine.map_or_else(|| environment.engine(), Ok)?,
            destinations,
            serve: self.serve.map_or_else(|| environment.serve(), |address| Ok(Some(address)))?,
            symbolize: self.symbolize.map_or_else(|| environment.flag("PROFILER_SYMBOLIZE", true), Ok)?,
            spans: SpanSettings {
                link: self.span_link.map_or_else(|| environment.span_link(), Ok)?,
                unsampled: self
                    .link_unsampled_spans
                    .map_or_else(|| environment.flag("PROFILER_LINK_UNSAMPLED_SPANS", false), Ok)?,
            },
            ring_words: self.ring_words,
            heap: HeapSettings {
                wanted: self.heap.map_or_else(|| environment.heap(), |on| Ok(Some(on)))?,
                lg_interval: match self.heap_interval {
                    Some(bytes) => Some(checked_heap_interval("Config::heap_interval", bytes)?),
                    None => environment.heap_interval()?,
                },
                most_live: self.heap_blocks,
            },
        })
    }
}

/// CPU time between samples at this rate.
pub(crate) fn period(rate_hz: u32) -> Duration {
    Duration::from_secs(1) / rate_hz.max(1)
}

/// Whether the profiler is to run at all.
pub(crate) fn enabled(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<bool, Error> {
    Environment { lookup }.flag("PROFILER_ENABLED", true)
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

/// The interval as a power of two, if it is one; `name` is what set it.
pub(crate) fn checked_heap_interval(name: &str, bytes: u64) -> Result<u32, Error> {
    if bytes.is_power_of_two() && bytes <= MAX_HEAP_INTERVAL {
        return Ok(bytes.trailing_zeros());
    }
    let why = "the interval must be a power of two of bytes, 1 to 1 TiB";
    Err(Error::setting(name, bytes, why, "set an interval such as 524288"))
}

fn no_service_name(name: &str) -> Error {
    let remedy = "name the service: profiler::start(\"checkout\"), or OTEL_SERVICE_NAME=checkout";
    Error::setting("service.name", name, "the service has no name", remedy)
}

/// Attributes that this process knows of itself. Source of the names: OpenTelemetry semantic conventions, resource.
fn detected() -> Resource {
    let mut resource = Resource::new()
        .with("process.pid", i64::from(std::process::id()))
        .with("process.runtime.name", "rustc")
        .with("telemetry.sdk.name", "profiler")
        .with("telemetry.sdk.language", "rust")
        .with("telemetry.sdk.version", env!("CARGO_PKG_VERSION"));
    if let Some(name) =
        std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    {
        resource.set("process.executable.name", name);
    }
    if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        resource.set("host.name", host.trim());
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn resolve(config: Config, variables: &[(&str, &str)]) -> Result<Settings, Error> {
        config.resolve(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    fn message(config: Config, variables: &[(&str, &str)]) -> String {
        resolve(config, variables).unwrap_err().to_string()
    }

    /// Check that durations have units, and fractions, and nothing else.
    #[test]
    fn durations_have_units() {
        let millis = |text| environment::parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(["10", "1.5s", "500ms", "2m", "1h"].map(millis), [10_000, 1500, 500, 120_000, 3_600_000].map(Some));
        assert_eq!(["", "s", "-1s", "1.5.1s", "1e3", "10 s", "9999999999999999999999h"].map(millis), [None; 7]);
    }

    /// Check that code wins over `PROFILER_*`, and that over the default.
    #[test]
    fn code_wins_over_the_environment() {
        let variables = [("PROFILER_RATE_HZ", "50"), ("PROFILER_INTERVAL", "500ms"), ("PROFILER_SERVE", "127.0.0.1:1")];
        let from_env = resolve(Config::new("a"), &variables).unwrap();
        assert_eq!((from_env.rate_hz, from_env.interval), (50, Duration::from_millis(500)));
        assert_eq!(from_env.serve.as_deref(), Some("127.0.0.1:1"));
        let config = Config::new("a").rate_hz(20).interval(Duration::from_secs(2)).serve("127.0.0.1:2");
        let from_code = resolve(config, &variables).unwrap();
        assert_eq!((from_code.rate_hz, from_code.interval), (20, Duration::from_secs(2)));
        assert_eq!(from_code.serve.as_deref(), Some("127.0.0.1:2"));
        for (name, choice) in EngineChoice::NAMES {
            assert_eq!(resolve(Config::new("a"), &[("PROFILER_ENGINE", name)]).unwrap().engine, *choice);
        }
        let default = resolve(Config::new("a"), &[]).unwrap();
        assert_eq!((default.rate_hz, default.interval, default.serve), (100, Duration::from_secs(10), None));
        assert_eq!(default.destinations.len(), 0);
    }

    /// Check that the name of the service comes from code, else from `OTEL_SERVICE_NAME`, else from the attributes.
    #[test]
    fn the_service_name_has_three_sources() {
        let all = [("OTEL_SERVICE_NAME", "b"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=c,team=x%20y")];
        assert_eq!(resolve(Config::new("a"), &all).unwrap().service, "a");
        let settings = resolve(Config::from_env(), &all).unwrap();
        assert_eq!((settings.service.as_str(), settings.resource.get("team")), ("b", Some(&"x y".into())));
        assert_eq!(resolve(Config::from_env(), &all[1..]).unwrap().service, "c");
        assert!(message(Config::from_env(), &[]).contains("OTEL_SERVICE_NAME"));
    }

    /// Check that every setting that cannot be is refused by name, with its value and what to do.
    #[test]
    fn impossible_settings_are_named() {
        for (name, value) in [
            ("PROFILER_RATE_HZ", "0"),
            ("PROFILER_RATE_HZ", "10001"),
            ("PROFILER_RATE_HZ", "fast"),
            ("PROFILER_INTERVAL", "1ms"),
            ("PROFILER_INTERVAL", "soon"),
            ("PROFILER_ENGINE", "diesel"),
            ("PROFILER_SPAN_LINK", "leaf"),
            ("PROFILER_LINK_UNSAMPLED_SPANS", "some"),
            ("PROFILER_SERVE", "6060x"),
            ("OTEL_RESOURCE_ATTRIBUTES", "novalue"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=%ff"),
        ] {
            let message = message(Config::new("a"), &[(name, value)]);
            assert!(message.contains(name) && message.contains("; "), "{message}");
        }
        assert!(message(Config::new("a").rate_hz(0), &[]).contains("Config::rate_hz=\"0\""));
        assert!(message(Config::new(" "), &[]).contains("service.name"));
        assert!(message(Config::new("a").tag("", "b"), &[]).contains("Config::tag"));
    }

    /// Check that a variable that is not UTF-8 is refused by name.
    #[test]
    fn a_variable_that_is_not_utf8_is_refused() {
        let broken = |name: &str| (name == "OTEL_SERVICE_NAME").then(|| OsString::from_vec(vec![0xff, b'a']));
        let message = Config::from_env().resolve(&broken).unwrap_err().to_string();
        assert!(message.contains("OTEL_SERVICE_NAME") && message.contains("UTF-8"), "{message}");
    }

    /// Check that symbolizing is on unless code or the environment says no, code first.
    #[test]
    fn symbolizing_can_be_turned_off() {
        let on = |config: Config, value: &str| resolve(config, &[("PROFILER_SYMBOLIZE", value)]).unwrap().symbolize;
        assert!(on(Config::new("a"), "") && on(Config::new("a"), "1") && !on(Config::new("a"), "0"));
        assert!(on(Config::new("a").symbolize(true), "0") && !on(Config::new("a").symbolize(false), "1"));
        assert!(message(Config::new("a"), &[("PROFILER_SYMBOLIZE", "often")]).contains("PROFILER_SYMBOLIZE=\"often\""));
    }

    /// Check that samples link to current spans that are sampled, unless code or the environment says otherwise, code first.
    #[test]
    fn links_can_be_chosen() {
        let link = |config: Config, value: &str| resolve(config, &[("PROFILER_SPAN_LINK", value)]).unwrap().spans.link;
        let (unset, local_root) = (Config::new("a"), Config::new("a").span_link(SpanLink::LocalRoot));
        assert_eq!([link(unset.clone(), ""), link(unset, "local_root")], [SpanLink::Current, SpanLink::LocalRoot]);
        assert_eq!(link(local_root, "current"), SpanLink::LocalRoot);
        let unsampled = |config: Config, value: &str| {
            resolve(config, &[("PROFILER_LINK_UNSAMPLED_SPANS", value)]).unwrap().spans.unsampled
        };
        assert!(!unsampled(Config::new("a"), "") && unsampled(Config::new("a"), "1"));
        assert!(!unsampled(Config::new("a").link_unsampled_spans(false), "1"));
    }

    /// Check that the profiler can be turned off.
    #[test]
    fn the_profiler_can_be_turned_off() {
        for (value, expected) in [("0", false), ("off", false), ("1", true), ("", true)] {
            assert_eq!(
                enabled(&|name| (name == "PROFILER_ENABLED").then(|| value.into())).unwrap(),
                expected,
                "{value}"
            );
        }
        let message = enabled(&|_| Some("maybe".into())).unwrap_err().to_string();
        assert!(message.contains("PROFILER_ENABLED=\"maybe\""), "{message}");
    }
}
