//! One source of settings: each with the name of the place that said it.
//!
//! In: values as they were read. Out: the same, the higher source over the lower. Nothing is checked here.

use std::path::PathBuf;

use super::pull::Pull;

/// A value, and who said it: a flag, a variable, a line of a file.
#[derive(Debug, Clone)]
pub struct Said<T> {
    /// The flag, the variable, or file, line and key: what an error names.
    pub origin: String,
    /// The value.
    pub value: T,
}

impl<T> Said<T> {
    pub(super) fn new(origin: impl Into<String>, value: T) -> Self {
        Self { origin: origin.into(), value }
    }
}

/// What the command line says, unchecked.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--rate-hz`.
    pub rate_hz: Option<u32>,
    /// `--interval`.
    pub interval: Option<String>,
    /// `--pid`, each time.
    pub pids: Vec<u32>,
    /// `--include`, each time.
    pub include: Vec<String>,
    /// `--exclude`, each time.
    pub exclude: Vec<String>,
    /// `--serve`.
    pub serve: Option<String>,
    /// `--receive`.
    pub receive: Option<String>,
    /// `--profile-sdk`.
    pub profile_sdk: bool,
    /// `--runtime-interval`.
    pub runtime_interval: Option<String>,
    /// `--max-buckets`.
    pub max_buckets: Option<usize>,
    /// `--max-goroutines`.
    pub max_goroutines: Option<usize>,
    /// `--pull`, each time.
    pub pulls: Vec<String>,
}

impl CommandLine {
    pub(super) fn layer(self) -> Layer {
        fn each<T>(flag: &str, values: Vec<T>) -> Vec<Said<T>> {
            values.into_iter().map(|value| Said::new(flag, value)).collect()
        }
        Layer {
            rate_hz: self.rate_hz.map(|value| Said::new("--rate-hz", value)),
            interval: self.interval.map(|value| Said::new("--interval", value)),
            pids: each("--pid", self.pids),
            include: each("--include", self.include),
            exclude: each("--exclude", self.exclude),
            serve: self.serve.map(|value| Said::new("--serve", value)),
            receive: self.receive.map(|value| Said::new("--receive", value)),
            profile_sdk: self.profile_sdk.then(|| Said::new("--profile-sdk", true)),
            runtime_interval: self.runtime_interval.map(|value| Said::new("--runtime-interval", value)),
            max_buckets: self.max_buckets.map(|value| Said::new("--max-buckets", value)),
            max_goroutines: self.max_goroutines.map(|value| Said::new("--max-goroutines", value)),
            pulls: each("--pull", self.pulls.into_iter().map(Pull::at).collect()),
            ..Layer::default()
        }
    }
}

/// The settings of one source.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) rate_hz: Option<Said<u32>>,
    pub(super) interval: Option<Said<String>>,
    pub(super) pids: Vec<Said<u32>>,
    pub(super) include: Vec<Said<String>>,
    pub(super) exclude: Vec<Said<String>>,
    pub(super) serve: Option<Said<String>>,
    pub(super) receive: Option<Said<String>>,
    pub(super) profile_sdk: Option<Said<bool>>,
    pub(super) kernel: Option<Said<bool>>,
    pub(super) cpu_percent: Option<Said<f64>>,
    pub(super) memory: Option<Said<String>>,
    pub(super) queue_bytes: Option<Said<usize>>,
    pub(super) runtime_interval: Option<Said<String>>,
    pub(super) max_buckets: Option<Said<usize>>,
    pub(super) max_goroutines: Option<Said<usize>>,
    pub(super) metrics: Option<Said<bool>>,
    pub(super) pulls: Vec<Said<Pull>>,
    pub(super) spool_folder: Option<Said<String>>,
    pub(super) spool_bytes: Option<Said<u64>>,
}

impl Layer {
    /// What this one says, and of all else what `lower` says. Lists are taken whole, from one of them.
    pub(super) fn over(self, lower: Self) -> Self {
        fn list<T>(own: Vec<T>, lower: Vec<T>) -> Vec<T> {
            if own.is_empty() { lower } else { own }
        }
        Self {
            rate_hz: self.rate_hz.or(lower.rate_hz),
            interval: self.interval.or(lower.interval),
            pids: list(self.pids, lower.pids),
            include: list(self.include, lower.include),
            exclude: list(self.exclude, lower.exclude),
            serve: self.serve.or(lower.serve),
            receive: self.receive.or(lower.receive),
            profile_sdk: self.profile_sdk.or(lower.profile_sdk),
            kernel: self.kernel.or(lower.kernel),
            cpu_percent: self.cpu_percent.or(lower.cpu_percent),
            memory: self.memory.or(lower.memory),
            queue_bytes: self.queue_bytes.or(lower.queue_bytes),
            runtime_interval: self.runtime_interval.or(lower.runtime_interval),
            max_buckets: self.max_buckets.or(lower.max_buckets),
            max_goroutines: self.max_goroutines.or(lower.max_goroutines),
            metrics: self.metrics.or(lower.metrics),
            pulls: list(self.pulls, lower.pulls),
            spool_folder: self.spool_folder.or(lower.spool_folder),
            spool_bytes: self.spool_bytes.or(lower.spool_bytes),
        }
    }
}
