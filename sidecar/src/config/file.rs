//! The file of settings: TOML, in which every key is known.
//!
//! In: a path. Out: a layer and tables of destinations, or an error with file and line. The keys:
//!
//! ```toml
//! rate_hz = 99
//! interval = "10s"            # or a number of seconds
//! serve = "127.0.0.1:6070"    # "off": nothing is served
//! receive = "127.0.0.1:4317"
//! profile_sdk = false
//! kernel = true
//! queue_bytes = 16777216
//! runtime_interval = "60s"    # "off": what Go's runtimes keep is read when it is asked for
//! max_buckets = 100000
//! max_goroutines = 100000
//! metrics = true              # figures of Go's runtimes, as OTLP metrics
//! spool_folder = "/var/lib/profiler/spool"
//! spool_bytes = 268435456
//!
//! [targets]
//! pids = [7]
//! include = ["*/server", "service=shop-*"]
//! exclude = ["container=3f2a*"]
//!
//! [budget]
//! cpu_percent = 5
//! memory = "160MiB"           # or a number of bytes
//!
//! [[pull]]
//! url = "http://127.0.0.1:6060" # "discover": what Go programs listen at; docs/sidecar.md has the rest
//! service = "shop"            # where its process is not in sight
//! ca = "/etc/shop/ca.pem"
//! headers = { authorization = "Bearer a" }
//!
//! [[export]]
//! to = "otlp-grpc"            # otlp-http, pyroscope, parca, files
//! endpoint = "http://collector:4317"
//! headers = { "x-tenant" = "a" }
//! ```

use std::fmt;
use std::path::Path;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::export::Export;
use super::layer::{Layer, Said};
use super::pull::Pull;
use super::text_of;
use crate::error::Error;

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    rate_hz: Option<Spanned<u32>>,
    interval: Option<Spanned<Amount>>,
    serve: Option<Spanned<String>>,
    receive: Option<Spanned<String>>,
    profile_sdk: Option<Spanned<bool>>,
    kernel: Option<Spanned<bool>>,
    queue_bytes: Option<Spanned<usize>>,
    runtime_interval: Option<Spanned<Amount>>,
    max_buckets: Option<Spanned<usize>>,
    max_goroutines: Option<Spanned<usize>>,
    metrics: Option<Spanned<bool>>,
    spool_folder: Option<Spanned<String>>,
    spool_bytes: Option<Spanned<u64>>,
    targets: Targets,
    budget: Budget,
    pull: Vec<Spanned<Pull>>,
    export: Vec<Spanned<Export>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Targets {
    pids: Vec<Spanned<u32>>,
    include: Vec<Spanned<String>>,
    exclude: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Budget {
    cpu_percent: Option<Spanned<f64>>,
    memory: Option<Spanned<Amount>>,
}

/// A text such as `10s`, or a number without a unit, as it may stand in such a text.
#[derive(Debug)]
struct Amount(String);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text with a unit, such as \"10s\" or \"160MiB\", or a number")
    }

    fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
        Ok(Amount(text.to_owned()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
        Ok(Amount(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
        Ok(Amount(number.to_string()))
    }
}

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<(Layer, Vec<Said<Export>>), Error> {
    let text = text_of(path)?;
    let ends = text.match_indices('\n').map(|(end, _)| end).collect();
    let source = Source { path, text: &text, ends };
    let file: File = toml::from_str(&text).map_err(|error| {
        let offset = error.span().map(|span| span.start);
        let place = offset.map_or_else(|| path.display().to_string(), |offset| source.place(offset));
        let (why, key) = (without_value(error.message().trim()), offset.and_then(|offset| source.key(offset)));
        let place = match key {
            // One that is not known is named by its error.
            Some(key) if !why.starts_with("unknown field") => format!("{place}: {key}"),
            _ => place,
        };
        Error::new(place, why, "settings files are TOML: write it as docs/sidecar.md shows")
    })?;
    let exports =
        file.export.into_iter().map(|export| Said::new(source.place(export.span().start), export.into_inner()));
    let exports = exports.collect();
    let layer = Layer {
        rate_hz: source.said("rate_hz", file.rate_hz),
        interval: source.amount("interval", file.interval),
        serve: source.said("serve", file.serve),
        receive: source.said("receive", file.receive),
        profile_sdk: source.said("profile_sdk", file.profile_sdk),
        kernel: source.said("kernel", file.kernel),
        queue_bytes: source.said("queue_bytes", file.queue_bytes),
        runtime_interval: source.amount("runtime_interval", file.runtime_interval),
        max_buckets: source.said("max_buckets", file.max_buckets),
        max_goroutines: source.said("max_goroutines", file.max_goroutines),
        metrics: source.said("metrics", file.metrics),
        pulls: source.each("pull", file.pull),
        spool_folder: source.said("spool_folder", file.spool_folder),
        spool_bytes: source.said("spool_bytes", file.spool_bytes),
        pids: source.each("pids", file.targets.pids),
        include: source.each("include", file.targets.include),
        exclude: source.each("exclude", file.targets.exclude),
        cpu_percent: source.said("cpu_percent", file.budget.cpu_percent),
        memory: source.amount("memory", file.budget.memory),
    };
    Ok((layer, exports))
}

/// An error of serde's without the value that it quotes, which may be a secret: "invalid type: string "…", expected a map".
fn without_value(why: &str) -> String {
    match why.split_once(": ").zip(why.rsplit_once(", expected ")) {
        Some(((kind @ ("invalid type" | "invalid value"), found), (_, expected))) => {
            // What it is stands before what it says: "string", "integer", "floating point".
            let what = found.split(['`', '"']).next().unwrap_or_default();
            let what = what.split(", expected ").next().unwrap_or_default().trim();
            let expected = if expected == "a boolean" { "true or false" } else { expected };
            format!("{kind}: {what}, expected {expected}")
        }
        _ => why.to_owned(),
    }
}

struct Source<'a> {
    path: &'a Path,
    text: &'a str,
    /// Where lines end.
    ends: Vec<usize>,
}

impl Source<'_> {
    /// File and line of a byte.
    fn place(&self, offset: usize) -> String {
        let line = 1 + self.ends.partition_point(|end| *end < offset);
        format!("{}:{line}", self.path.display())
    }

    /// The key of the value that begins there, if it is in the same line. What is behind it may be a secret.
    fn key(&self, offset: usize) -> Option<&str> {
        let line = self.text.get(..offset)?.rsplit('\n').next()?;
        let (pairs, _) = line.rsplit_once('=')?;
        let key = pairs.rsplit(['{', ',']).next()?.trim();
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        Some(key).filter(|key| !key.is_empty() && key.chars().all(is_of_key))
    }

    fn said<T>(&self, key: &str, value: Option<Spanned<T>>) -> Option<Said<T>> {
        value.map(|value| Said::new(format!("{}: {key}", self.place(value.span().start)), value.into_inner()))
    }

    fn amount(&self, key: &str, value: Option<Spanned<Amount>>) -> Option<Said<String>> {
        self.said(key, value).map(|said| Said::new(said.origin, said.value.0))
    }

    fn each<T>(&self, key: &str, values: Vec<Spanned<T>>) -> Vec<Said<T>> {
        values.into_iter().filter_map(|value| self.said(key, Some(value))).collect()
    }
}
